"""A backup that is made while services run under load, restored into another folder: each event counts once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.polling import until
from tidegate.cli.data_folder.home import Home
from tidegate.logs import SegmentLog

pytestmark = [pytest.mark.spark, pytest.mark.processes]

SERVICES = """
streams: {raw: {schema: {n: int64, kind: string, time: timestamp}, event_time: time, key: kind, partitions: 2}}
services:
  odd: {from: raw, pipeline: [{filter: kind = 'odd'}]}
  rare: {from: odd, pipeline: [{filter: n > 100}]}
  counted: {from: raw, pipeline: [{aggregate: {count: n, by: [kind], window: {length: 60s}, emit: updates}}]}
"""


@contextmanager
def up(folder: Path) -> Iterator[httpx.Client]:
    """Run `tidegate up`, and kill it in the end."""
    output = folder.with_suffix(".txt")
    command = [sys.executable, "-m", "tidegate", "up", "--port", "0", "--data", str(folder)]
    if not folder.exists():
        folder.with_suffix(".yaml").write_text(SERVICES)
        command.append(str(folder.with_suffix(".yaml")))
    with output.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written)
    try:
        until(lambda: "ready:" in output.read_text() or process.poll() is not None, "it to be ready", 180)
        assert process.poll() is None, output.read_text()
        running = Home(folder).running()
        assert running is not None
        assert running.url is not None
        with httpx.Client(base_url=running.url, timeout=120) as client:
            yield client
    finally:
        process.kill()
        process.wait()


def publish(client: httpx.Client, numbers: range) -> None:
    events = [{"n": n, "kind": "odd" if n % 2 else "even", "time": "2026-01-01T00:00:10Z"} for n in numbers]
    assert client.post("/v1/streams/raw/events", json=events).json()["accepted"] == len(numbers)


def numbers_of(log: SegmentLog, stream: str) -> list[int]:
    found, at = [], log.begin(stream)
    while (read := log.read(stream, at, 10_000)).records:
        found += [json.loads(record)["n"] for record in read.records]
        at = read.cursor
    return found


def tidegate(*args: object) -> str:
    command = [sys.executable, "-m", "tidegate", *map(str, args)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_each_event_counts_once_after_a_restore(tmp_path: Path) -> None:
    data, saved, new = tmp_path / "data", tmp_path / "saved", tmp_path / "new"
    with up(data) as client, closing(SegmentLog(data / "log")) as log:
        publish(client, range(400))
        until(lambda: len(numbers_of(log, "counted")) == 400, "the state to have all")
        backup = subprocess.Popen([sys.executable, "-m", "tidegate", "backup", str(saved), "--data", str(data)])
        sent = 400
        while backup.poll() is None:
            publish(client, range(sent, sent + 20))
            sent += 20
        assert backup.returncode == 0
    tidegate("restore", saved, "--data", new)
    os.link(data / "secrets.key", new / "secrets.key")
    with up(new) as client, closing(SegmentLog(new / "log")) as log:
        kept = sorted(numbers_of(log, "raw"))
        assert len(kept) == len(set(kept)) >= 400
        # What the backup does not have is sent again; partitions are copied one after the other.
        for n in sorted(set(range(sent + 100)) - set(kept)):
            publish(client, range(n, n + 1))
        total = sent + 100
        until(lambda: len(numbers_of(log, "odd")) >= total // 2, "all odd numbers", 120)
        until(lambda: len(numbers_of(log, "rare")) >= (total - 100) // 2, "all rare numbers", 120)
        until(lambda: len(numbers_of(log, "counted")) >= total, "every count", 120)
        assert sorted(numbers_of(log, "odd")) == list(range(1, total, 2))
        assert sorted(numbers_of(log, "rare")) == list(range(101, total, 2))
        assert sorted(numbers_of(log, "counted")) == sorted([*range(1, total // 2 + 1)] * 2)
