"""Tidegate in one process, its load in another, and observers of its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from benchmarks.measure import group_cpu_s, percentile
from tidegate.logs import Cursor, SegmentLog

PATIENCE_S = 180.0

STREAM = (
    "{schema: {n: int64, t: float64, vid: string, cid: string, time: timestamp, longitude: float64, latitude: float64, "
    "speed: float64, direction: float64, satellites: int32}, event_time: time, key: vid}"
)
"""The schema of the events that `load` sends."""


@dataclass
class Tidegate:
    """A running Tidegate."""

    folder: Path
    process: subprocess.Popen[bytes]
    started: float
    ready_s: float

    @property
    def log(self) -> SegmentLog:
        """Open the log."""
        return SegmentLog(self.folder / "log")

    def cpu_s(self) -> float:
        """Return the CPU time of its processes."""
        return group_cpu_s(self.process.pid)

    def kill(self) -> float:
        """Kill all processes with SIGKILL, Spark's JVM included; return the time."""
        os.killpg(self.process.pid, signal.SIGKILL)
        moment = time.time()
        self.process.wait()
        return moment


@contextmanager
def running(folder: Path, services: str, *options: str) -> Iterator[Tidegate]:
    """Run `tidegate up`; yields when it is ready, and always ends it."""
    file = folder / "services.yaml"
    file.write_text(services)
    errors = folder / "err.txt"
    started = time.time()
    errors.write_bytes(b"")
    with errors.open("ab") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", "up", str(file), "--data", str(folder), "--port", "0", *options],
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    try:
        wait_for(lambda: b"ready:" in errors.read_bytes() or process.poll() is not None, "it to be ready")
        if process.poll() is not None:
            raise RuntimeError(f"it ended: {errors.read_text()[-2_000:]}")
        yield Tidegate(folder, process, started, time.time() - started)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def loaded(
    folder: Path, streams: list[str], rate: int, seconds: float, cameras: int = 50
) -> Iterator[subprocess.Popen[bytes]]:
    """Send events from another process; `cameras` is how many values `cid` has."""
    command = [sys.executable, "-m", "benchmarks.pipelines.load", str(folder / "log"), ",".join(streams)]
    process = subprocess.Popen([*command, str(rate), str(seconds), str(cameras)], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate()


@contextmanager
def data_folder() -> Iterator[Path]:
    """Make a data folder, and remove it in the end."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        yield Path(name)


@dataclass
class Seen:
    """Latencies of one stream in milliseconds, by the second in which they were observed."""

    count: int = 0
    latencies: list[float] = field(default_factory=list)
    seconds: dict[int, list[float]] = field(default_factory=dict)


def follow(
    log: SegmentLog,
    stream: str,
    cursor: Cursor,
    stop: Event,
    warm_until: float,
    moment: Callable[[bytes], float] | None = None,
) -> Seen:
    """Read a stream until `stop` is set, and record the age of each record; leaves out the warm-up."""
    seen = Seen()
    found = moment or appended_at
    while not stop.is_set():
        if not log.wait(stream, cursor, 0.1):
            continue
        read = log.read(stream, cursor, 10_000)
        now = time.time()
        cursor = read.cursor
        seen.count += len(read.records)
        if now < warm_until:
            continue
        late = [1_000 * (now - found(record)) for record in read.records]
        seen.latencies += late
        seen.seconds.setdefault(int(now - warm_until), []).extend(late)
    return seen


def by_second(seen: Seen) -> dict[str, list[tuple[float, float]]]:
    """Return a chart of latencies over the time of a run."""
    return {
        name: [(float(n), percentile(found, share)) for n, found in sorted(seen.seconds.items())]
        for name, share in (("p50", 0.5), ("p99", 0.99), ("longest", 1.0))
    }


def appended_at(record: bytes) -> float:
    """Return the time `t` of a record."""
    at = record.index(b'"t":') + 4
    end = record.find(b",", at)
    return float(record[at : end if end > 0 else record.index(b"}", at)])


def wait_for(true: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition of another process."""
    deadline = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience_s:g} s for {what}")
        time.sleep(0.005)
