"""The named workloads: a whole Tidegate, those who listen and those who send, each in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.pipelines.harness import running
from benchmarks.reporting import Row, Setting, measured

SERVICES = """
streams:
  taxi:
    schema: {t: int64, cell: int64, vid: string, time: timestamp, longitude: float64, latitude: float64,
             speed: float64, direction: float64, satellites: int32}
    event_time: time
    key: vid
services:
  gps:
    from: taxi
    constraints: {longitude: "BETWEEN 115.25 AND 117.30", latitude: "BETWEEN 39.26 AND 41.03", speed: ">= 0"}
    mask: {vid: hmac}
"""
SUBSCRIBERS = 1_000
IDLE = 10_000


def sse(setting: Setting) -> Iterator[Row]:
    """A thousand subscribers, each of a thousandth of the events: at 2,000 events a second, and at 10,000."""
    with _up() as (_, port), _listening(port, [f"cell = {n}" for n in range(SUBSCRIBERS)]) as ask:
        for rate, p50, p99 in ((2_000, 10.0, 50.0), (10_000, 20.0, 100.0)):
            with _sending(port, rate, setting.warm_s + setting.measured_s, max(1, rate // 200)) as sent:
                time.sleep(setting.warm_s)
                ask()
                time.sleep(setting.measured_s - 2)
                found = ask()
                count, spent = sent()
            what = f"{SUBSCRIBERS:,} SSE subscribers, 0.1 % each, {rate:,} events/s"
            yield measured(f"{what}: p50", found["p50"], "ms", p50)
            yield measured(f"{what}: p99", found["p99"], "ms", p99)
            yield measured(f"{what}: longest", found["longest"], "ms")
            yield measured(f"{what}: deliveries", found["count"] / (setting.measured_s - 2), "1/s")
            yield measured(f"{what}: acknowledged", count / spent, "1/s")


def ingest(setting: Setting) -> Iterator[Row]:
    """As many events as are taken, in requests of 500."""
    with _up() as (_, port), _sending(port, 0, setting.measured_s, 500) as sent:
        count, spent = sent()
    yield measured("NDJSON over HTTP in batches of 500: acknowledged", count / spent, "events/s", least=40_000)


def memory(_: Setting) -> Iterator[Row]:
    """What connections cost on which nothing comes."""
    with _up() as (pid, port):
        before = _resident(pid)
        with _listening(port, ["cell = -1"] * IDLE):
            time.sleep(2)
            each = (_resident(pid) - before) / IDLE / 1024
    yield measured(f"{IDLE:,} idle SSE connections: memory of each", each, "KB", 30.0)


@contextmanager
def _up() -> Iterator[tuple[int, int]]:
    """A Tidegate that is ready: the process of its gateway, and its port."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name, running(Path(name), SERVICES) as up:
        said = (Path(name) / "err.txt").read_text()
        found = re.search(r"http://127\.0\.0\.1:([0-9]+)", said)
        assert found is not None, said
        yield _gateway_of(up.process.pid), int(found[1])


def _gateway_of(parent: int) -> int:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().split(b"\0")
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        if above == parent and b"gateway" in line:
            return int(folder.name)
    raise RuntimeError("the gateway's process is not there")


def _resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@contextmanager
def _listening(port: int, filters: Sequence[str]) -> Iterator[Callable[[], dict[str, Any]]]:
    command = [sys.executable, "-m", "benchmarks.delivery.listeners", str(port), "gps", json.dumps(filters)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "connected\n"
        stdin, stdout = process.stdin, process.stdout

        def ask() -> dict[str, Any]:
            stdin.write("\n")
            stdin.flush()
            found: dict[str, Any] = json.loads(stdout.readline())
            return found

        try:
            yield ask
        finally:
            process.terminate()


@contextmanager
def _sending(port: int, rate: int, seconds: float, size: int) -> Iterator[Callable[[], tuple[int, float]]]:
    command = [sys.executable, "-m", "benchmarks.delivery.sender", str(port), "taxi"]
    command += [str(rate), str(seconds), str(SUBSCRIBERS), str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        stdout = process.stdout

        def sent() -> tuple[int, float]:
            count, spent = json.loads(stdout.readline())
            return count, spent

        try:
            yield sent
        finally:
            process.terminate()


WORKLOADS: dict[str, Callable[[Setting], Iterator[Row]]] = {"sse": sse, "ingest": ingest, "memory": memory}
