"""`tidegate doctor`: checks whether Tidegate can run on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.data_folder.permissions import open_to_others
from tidegate.cli.input import options

_MIN_JAVA_VERSION = 17
_MIN_FREE_GB = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    what: str
    ok: bool
    found: str
    remedy: str = ""
    """What to do; empty if the check passed."""
    optional: bool = False
    """True if Tidegate also runs without it, with limits."""


def doctor(
    port: Annotated[int, typer.Option(help="The port of the gateway.")] = 8080,
    data: Annotated[str, typer.Option(help="The data folder.")] = ".",
    as_json: options.AsJson = False,
) -> None:
    """Check what this machine lacks to run Tidegate, and say how to get it; exit code 1 if Tidegate can't run."""
    findings = examine(port, Path(data))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            typer.echo(f"{_verdict(finding):<7}  {finding.what:<10} {finding.found}")
            if finding.remedy:
                typer.echo(f"         {'':<10} {finding.remedy}")
    raise typer.Exit(0 if all(finding.ok or finding.optional for finding in findings) else 1)


def _verdict(finding: Finding) -> str:
    return "ok" if finding.ok else "slower" if finding.optional else "MISSING"


def examine(port: int, data: Path) -> list[Finding]:
    """Run all checks. `port` and `data` are those that Tidegate would use."""
    checks: list[Callable[[], Finding]] = [
        python,
        java,
        lambda: package("pyarrow", "arrow"),
        lambda: package("pyspark", "spark"),
        connector,
        lambda: free_port(port),
        lambda: disk(data),
        lambda: folder(data),
    ]
    return [check() for check in checks]


def python() -> Finding:
    """Check the version of Python."""
    version = ".".join(map(str, sys.version_info[:3]))
    return _finding("python", sys.version_info[:2] >= (3, 11), version, "install Python 3.11 or newer")


def java() -> Finding:
    """Check for a JDK, in JAVA_HOME or else on the PATH."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    remedy = "install a JDK 17+ (Debian: apt-get install openjdk-17-jdk-headless), or set JAVA_HOME"
    if shutil.which(command) is None:
        return Finding("java", False, f"no {command}", remedy)
    output = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    number = int(version[1]) if version else 0
    return _finding("java", number >= _MIN_JAVA_VERSION, f"version {number or 'unknown'}", remedy)


def package(name: str, extra: str) -> Finding:
    """Check for a Python package that an extra installs."""
    is_installed = find_spec(name) is not None
    return _finding(
        name, is_installed, "installed" if is_installed else "not installed", f"pip install 'tidegate[{extra}]'"
    )


def connector() -> Finding:
    """Check for the connector to Spark, or for a compiler that can build it."""
    if find_spec("pyspark") is None:
        return Finding("connector", False, "needs pyspark", "pip install 'tidegate[spark]'", optional=True)
    from tidegate.pipelines.connector import build

    archive = build.find()
    if archive is not None:
        return Finding("connector", True, archive.name)
    if build.compiler() is not None:
        return Finding("connector", True, "compiled at the first start")
    remedy = "install a JDK, which compiles it (a JRE does not), or a wheel, which contains it"
    state = "not compiled, and no javac: services run in micro-batches only"
    return Finding("connector", False, state, remedy, optional=True)


def free_port(port: int) -> Finding:
    """Check whether a port on loopback is free."""
    if not 0 < port < 2**16:
        return Finding("port", False, f"{port} is no port", "choose one from 1 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return Finding("port", False, f"{port}: {error.strerror}", "choose another one with --port")
    return Finding("port", True, f"{port} is free")


def disk(folder: Path) -> Finding:
    """Check the free disk space of the data folder."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free_gb = shutil.disk_usage(existing).free / 2**30
    if not os.access(existing, os.W_OK):
        return Finding("disk", False, f"{existing} is not writable", "choose another folder with --data")
    remedy = f"free {_MIN_FREE_GB} GiB, or choose another folder with --data"
    return _finding("disk", free_gb >= _MIN_FREE_GB, f"{free_gb:.0f} GiB free in {existing}", remedy)


def folder(data: Path) -> Finding:
    """Check whether other users of this machine can access the data folder."""
    if not (data / "registry.sqlite").exists() and not (data / "log").is_dir():
        return Finding("folder", True, f"no data in {data.absolute()} yet")
    exposed = open_to_others(data)
    if not exposed:
        return Finding("folder", True, f"{data.absolute()} is private")
    state = f"other users can access {exposed[0].absolute()}"
    return Finding("folder", False, state, f"restart Tidegate, which makes it private, or chmod 700 {data.absolute()}")


def _finding(what: str, ok: bool, detail: str, remedy: str) -> Finding:
    return Finding(what, ok, detail, "" if ok else remedy)
