"""Real Tidegate processes for attacks: `tidegate gateway` and `tidegate up`, started as an operator starts them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.pipelines.running import until
from tests.ports import free_port


@dataclass(frozen=True, slots=True)
class Running:
    """A Tidegate process that takes requests."""

    process: subprocess.Popen[bytes]
    url: str
    data: Path
    output: Path
    """What the process has printed so far."""

    def client(self, key: str | None = None, **more: Any) -> httpx.Client:
        """Return an HTTP client for the gateway, with an API key if one is given."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, timeout=30, headers=headers, **more)


def tidegate(*args: object, data: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one `tidegate` command on a data folder, and wait for it."""
    command = [sys.executable, "-m", "tidegate", *map(str, args), "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=200, check=False)


def create_key(data: Path, name: str, role: str, *services: str) -> str:
    """Create an API key with the command line and return its secret."""
    scope = [part for service in services for part in ("--service", service)]
    created = tidegate("keys", "create", name, "--role", role, *scope, "--json", data=data)
    assert created.returncode == 0, created.stderr
    secret: str = json.loads(created.stdout)["secret"]
    return secret


def write_profile(folder: Path, **settings: Any) -> Path:
    """Write a profile file and return its path; keys are required unless `access` says otherwise."""
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump({"access": {"required": True}, **settings}))
    return path


@contextmanager
def gateway(data: Path, *args: object, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Run `tidegate gateway` over an existing data folder until the block ends. Starts no Spark."""
    with _running(["gateway"], data, args, env, r"listening: (\S+)") as running:
        yield running


@contextmanager
def up(
    data: Path, *args: object, services: str | None = None, env: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Run `tidegate up`, with a service file of this text if one is given, until the block ends. Starts Spark."""
    files = []
    if services is not None:
        data.mkdir(parents=True, exist_ok=True)
        files = [data.parent / "services.yaml"]
        files[0].write_text(services)
    with _running(["up", *map(str, files)], data, args, env, r"ready: (http[^\s,]+)") as running:
        yield running


@contextmanager
def _running(
    command: list[str], data: Path, args: tuple[object, ...], env: Mapping[str, str] | None, ready: str
) -> Iterator[Running]:
    data.mkdir(parents=True, exist_ok=True)
    output = data.parent / f"{command[0]}.txt"
    whole = [sys.executable, "-m", "tidegate", *command, "--data", str(data), "--port", str(free_port())]
    with output.open("wb") as written:
        process = subprocess.Popen(
            [*whole, *map(str, args)], stdout=written, stderr=written, env={**os.environ, **(env or {})}
        )
    try:
        until(
            lambda: bool(re.search(ready, output.read_text())) or process.poll() is not None,
            f"{command[0]} to be ready",
        )
        found = re.search(ready, output.read_text())
        assert found is not None, output.read_text()
        yield Running(process, found[1], data, output)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
