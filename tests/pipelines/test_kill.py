"""Kill -9 under load: the output is that of an uninterrupted run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import KILLS
from tests.pipelines.running import until
from tidegate.logs import SegmentLog
from tidegate.model import timestamps

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("kill")]

SERVICES = """
streams:
  a: {schema: &s {n: int64, vid: string, speed: float64, time: timestamp}, event_time: time}
  b: {schema: *s, event_time: time}
services:
  merged:
    from: [a, b]
    pipeline: [merge, {filter: "speed <> 50"}]
    constraints: {speed: "< 90"}
  twice: {from: merged, pipeline: [{project: {n: n, vid: vid, double: speed * 2, time: time}}]}
  counted:
    from: a
    pipeline:
      - aggregate:
          {count: count, sum: {n: total}, by: [vid], window: {length: 4s, slide: 2s, lateness: 5s}, emit: updates}
  closed:
    from: a
    pipeline: [{aggregate: {count: count, sum: {n: total}, by: [vid], window: {length: 2s, lateness: 5s}}}]
"""
"""A busy machine may stop this process between the time that an event has and its append, hence the lateness."""
RATE = 300
OUTPUTS = ("merged", "merged.quarantine", "twice", "counted", "closed")


class Load:
    """A thread that appends to both streams until `end` is called."""

    def __init__(self, log: SegmentLog) -> None:
        self.sent: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
        self._log, self._stop = log, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        n = 0
        while not self._stop.wait(0.01):
            moment = timestamps.to_text(time.time_ns() // 1_000)
            for stream, sent in self.sent.items():
                events = [
                    {"n": n + k, "vid": f"V{(n + k) % 7}", "speed": float((n + k) % 100), "time": moment}
                    for k in range(RATE // 100)
                ]
                self._log.append(stream, "0", [json.dumps(event).encode() for event in events])
                sent += events
            n += RATE // 100


@contextmanager
def running(folder: Path, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Tidegate with its own JVM, as a group of processes that dies at once."""
    command = [sys.executable, "-m", "tidegate", "up", str(file), "--data", str(folder), "--no-gateway"]
    with (folder / "err.txt").open("ab") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors, start_new_session=True)
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Output:
    """All events of a stream, read on each time they are asked for."""

    def __init__(self, log: SegmentLog, stream: str) -> None:
        self._log, self._stream, self._cursor = log, stream, log.begin(stream)
        self._events: list[dict[str, Any]] = []

    def events(self) -> list[dict[str, Any]]:
        while (read := self._log.read(self._stream, self._cursor, 50_000)).records:
            self._events += [json.loads(record) for record in read.records]
            self._cursor = read.cursor
        return self._events


class Counts:
    """The last that was put out of each window, read on likewise."""

    def __init__(self, output: Output) -> None:
        self._output, self._read = output, 0
        self._found: dict[tuple[str, int], tuple[int, int]] = {}

    def last(self) -> dict[tuple[str, int], tuple[int, int]]:
        events = self._output.events()
        for event in events[self._read :]:
            self._found[event["vid"], _micros(event["window_end"])] = event["count"], event["total"]
        self._read = len(events)
        return self._found


def size(log: SegmentLog, stream: str) -> int:
    return sum(log.end(stream).offsets.values()) if stream in log.streams() else 0


def test_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    file = tmp_path / "services.yaml"
    file.write_text(SERVICES)
    log = SegmentLog(tmp_path / "log")
    for stream in ("a", "b"):
        log.create(stream)
    chance = random.Random(20261116)
    recovery: list[float] = []
    with Load(log) as load:
        for n in range(KILLS):
            before = {name: size(log, name) for name in OUTPUTS}
            begun = time.monotonic()
            with running(tmp_path, file) as process:
                if n == 0:  # services begin where their inputs end: before anything is sent
                    until(lambda: "ready:" in (tmp_path / "err.txt").read_text(), "the first start")
                    load.begin()
                until(lambda b=before, p=process: _grew(log, b, p), "output of every service", interval_s=0.1)  # type: ignore[misc]
                recovery.append(time.monotonic() - begun)
                time.sleep(chance.uniform(0.0, 5.0))  # the moment of the kill, not a wait for anything
        last = {name: size(log, name) for name in OUTPUTS}
        with running(tmp_path, file) as process:
            until(lambda: _grew(log, last, process), "output after the last kill")
            load.end()
            outputs = {name: Output(log, name) for name in OUTPUTS}
            _await_end(outputs, load, process)
    _judge(outputs, load)
    print("seconds from start to new output of all services:", [round(each, 1) for each in recovery])


def _grew(log: SegmentLog, before: dict[str, int], process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "it ended by itself"
    return all(size(log, name) > before[name] for name in OUTPUTS)


def _await_end(outputs: dict[str, Output], load: Load, process: subprocess.Popen[bytes]) -> None:
    wanted = sum(1 for sent in load.sent.values() for e in sent if e["speed"] != 50.0 and e["speed"] < 90)
    counts, told = _truth(load, 4.0, 2.0), Counts(outputs["counted"])
    closed = sum(1 for _, end in _truth(load, 2.0, 2.0) if end < _last_moment(load))
    until(lambda: len(outputs["twice"].events()) >= wanted, "the last of the merged events")
    until(lambda: told.last() == counts, "the last update", interval_s=0.5)
    until(lambda: len(outputs["closed"].events()) >= closed, "the last window that can close")
    assert process.poll() is None


def _judge(outputs: dict[str, Output], load: Load) -> None:
    """Event for event, in the order of each source."""
    found = {name: output.events() for name, output in outputs.items()}
    for stream, sent in load.sent.items():
        passed = [e["n"] for e in sent if e["speed"] != 50.0 and e["speed"] < 90]
        refused = [e["n"] for e in sent if e["speed"] >= 90]
        assert [e["n"] for e in found["merged"] if e["_src"].startswith(f"{stream}/")] == passed
        assert [e["n"] for e in found["merged.quarantine"] if e["_src"].startswith(f"{stream}/")] == refused
        assert [e["n"] for e in found["twice"] if e["_src"].startswith(f"merged/{stream}.")] == passed
    assert Counts(outputs["counted"]).last() == _truth(load, 4.0, 2.0)
    for name in ("counted", "closed"):
        doubled = [id_ for id_, count in Counter(e["_id"] for e in found[name]).items() if count > 1]
        assert doubled == []
    truth = _truth(load, 2.0, 2.0)
    for event in found["closed"]:
        assert truth[event["vid"], _micros(event["window_end"])] == (event["count"], event["total"])


def _truth(load: Load, length_s: float, slide_s: float) -> dict[tuple[str, int], tuple[int, int]]:
    length, slide = round(length_s * 1e6), round(slide_s * 1e6)
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for event in load.sent["a"]:
        at = _micros(event["time"])
        end = at // slide * slide + slide
        while end - length <= at:
            count, total = found.get((event["vid"], end), (0, 0))
            found[event["vid"], end] = count + 1, total + event["n"]
            end += slide
    return found


def _last_moment(load: Load) -> int:
    return max(_micros(event["time"]) for event in load.sent["a"])


def _micros(text: str) -> int:
    found = timestamps.from_text(text)
    assert found is not None
    return found
