"""Servers, subscribers and producers of a benchmark, each in its own process, which ends with the block."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.delivery.listeners import Wanted
from benchmarks.pipelines.harness import running, wait_for
from tidegate.logs import SegmentLog
from tidegate.registry import SqliteRegistry
from tidegate.services import loads

PATIENCE_S = 60.0
"""How long to wait for a line of a process."""
NEVER_MS = 1e6
"""The age of an event that did not arrive; JSON has no infinity."""


@dataclass(frozen=True)
class Serving:
    """The server that subscribers connect to."""

    folder: Path
    group: int
    """The process group of the server."""
    gateway: int
    """The pid of the process with the sockets."""
    port: int
    tls: bool = False

    @property
    def log(self) -> Path:
        """The folder of its log."""
        return self.folder / "log"

    def cpu_s(self) -> float:
        """Return the CPU time of the process with the sockets."""
        fields = Path(f"/proc/{self.gateway}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metric(self, name: str) -> float:
        """Return the value of one Prometheus metric."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])

    def resident_bytes(self) -> int:
        """Return the memory of the process with the sockets."""
        return int(Path(f"/proc/{self.gateway}/statm").read_text().split()[1]) * 4096


@contextmanager
def whole(services: str) -> Iterator[Serving]:
    """Run Tidegate with Spark, gateway and ingest; yields it when it is ready."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name, running(Path(name), services) as up:
        said = (Path(name) / "err.txt").read_text()
        found = re.search(r"http://127\.0\.0\.1:([0-9]+)", said)
        assert found is not None, said
        yield Serving(Path(name), up.process.pid, _gateway_of(up.process.pid), int(found[1]))


@contextmanager
def gateway_alone(services: str, certify: Callable[[Path], tuple[Path, Path]] | None = None) -> Iterator[Serving]:
    """Run a gateway without Spark; the benchmark appends to the output of services.

    `certify` writes a certificate and its key into a folder, for TLS.
    """
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        folder = Path(name)
        registry = SqliteRegistry(folder / "registry.sqlite")
        registry.apply(loads(services))
        make_streams(folder, list(registry.services()))
        registry.close()
        command = [sys.executable, "-m", "tidegate", "gateway", "--data", name, "--port", "0"]
        if certify is not None:
            cert, key = certify(folder)
            command += ["--tls-cert", str(cert), "--tls-key", str(key)]
        with serving(folder, command) as found:
            yield found


def make_streams(folder: Path, names: Sequence[str]) -> None:
    """Create the streams that the benchmark appends to."""
    log = SegmentLog(folder / "log")
    for name in names:
        log.create(name)
    log.close()


@contextmanager
def serving(folder: Path, command: Sequence[str]) -> Iterator[Serving]:
    """Run a server process, with its children, that prints its address when it listens."""
    said = folder / "said.txt"
    with said.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, start_new_session=True)
    try:
        address = re.compile(rb"listening: http(s?)://127\.0\.0\.1:([0-9]+)")
        wait_for(lambda: address.search(said.read_bytes()) is not None or process.poll() is not None, "it to listen")
        found = address.search(said.read_bytes())
        if found is None:
            raise RuntimeError(f"it ended: {said.read_text()[-2_000:]}")
        yield Serving(folder, process.pid, process.pid, int(found[2]), bool(found[1]))
    finally:
        _end(process, group=True)


class Helper:
    """A process that answers each line of input with one line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._rest = process, b""

    def tell(self, line: str) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def hear(self, patience_s: float = PATIENCE_S) -> str:
        """Return the next line of output. Raises an error if there is none."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise TimeoutError(f"{self._process.args!r}: waited {patience_s:g} s for an answer")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise RuntimeError(f"{self._process.args!r} has ended with {self._process.wait()}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def ask(self, line: str = "") -> dict[str, Any]:
        """Send a line, and return the answer."""
        self.tell(line)
        found: dict[str, Any] = json.loads(self.hear())
        return found


@contextmanager
def helper(module: str, *arguments: object) -> Iterator[Helper]:
    """Run a module of the benchmarks as a process."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Helper(process)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes], *, group: bool = False) -> None:
    def send(number: int) -> None:
        if group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)

    if process.poll() is None:
        send(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            send(signal.SIGKILL)
            process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


@contextmanager
def listening(
    port: int, wanted: Sequence[Wanted], *, ids: bool = False, small: bool = False, tls: bool = False
) -> Iterator[Helper]:
    """Run SSE subscribers, all of them live; `ask` returns what arrived since the last `ask`.

    `ids`: they note which events came; `small`: the system holds little for them.
    """
    with helper("benchmarks.delivery.listeners") as found:
        said = {"port": port, "wanted": [asdict(each) for each in wanted], "ids": ids, "small": small, "tls": tls}
        found.tell(json.dumps(said))
        heard = found.hear()
        assert heard == "connected", heard
        yield found


@contextmanager
def sending(
    port: int, stream: str, rate: int, seconds: float, cells: int, size: int, *, tls: bool = False
) -> Iterator[Helper]:
    """Send events over HTTP; the process prints how many were acknowledged, and in how many seconds."""
    with helper("benchmarks.delivery.sender", port, stream, rate, seconds, cells, size, int(tls)) as found:
        yield found


@contextmanager
def appending(log: Path, streams: Sequence[str], rate: int, seconds: float, cells: int) -> Iterator[Helper]:
    """Append events to the log directly; the process prints their number."""
    with helper("benchmarks.delivery.appender", log, ",".join(streams), rate, seconds, cells) as found:
        yield found


def until(true: Callable[[], bool], patience_s: float) -> bool:
    """Wait for a condition; return True if it holds within the time."""
    deadline = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def of(found: Mapping[str, Any], name: str) -> float:
    """Return a percentile of ages in milliseconds; longer than any run if no event arrived."""
    value: float = found.get(name, NEVER_MS)
    return value


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
