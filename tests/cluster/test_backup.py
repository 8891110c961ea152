"""A backup under load that is restored, and an output that is made again after its segments are lost."""

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

from tests.conftest import LENGTH
from tests.polling import until
from tidegate.cli.data_folder.home import Home
from tidegate.logs import SegmentLog

pytestmark = [
    pytest.mark.spark,
    pytest.mark.processes,
    pytest.mark.xdist_group("backup"),
    pytest.mark.skipif(LENGTH != "soak", reason="takes two minutes: in the soak only"),
]

SERVICES = """
streams: {raw: {schema: {n: int64, kind: string, time: timestamp}, event_time: time, key: kind, partitions: 2}}
services:
  odd: {from: raw, pipeline: [{filter: kind = 'odd'}]}
  rare: {from: odd, pipeline: [{filter: n > 100}]}
  counted:
    from: raw
    idle: never  # the events are old, and a busy machine may be silent for longer than the default
    pipeline: [{aggregate: {count: n, by: [kind], window: {length: 60s}, emit: updates}}]
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


def run(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def tidegate(*args: object) -> str:
    result = run(*args)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """Return a data folder whose Tidegate was killed, a backup made before that, and how many events were sent."""
    folder = tmp_path_factory.mktemp("backup")
    data, saved = folder / "data", folder / "saved"
    with up(data) as client, closing(SegmentLog(data / "log")) as log:
        publish(client, range(400))
        until(lambda: len(numbers_of(log, "counted")) == 400, "the state to have all")
        backup = subprocess.Popen([sys.executable, "-m", "tidegate", "backup", str(saved), "--data", str(data)])
        sent = 400
        while backup.poll() is None:
            publish(client, range(sent, sent + 20))
            sent += 20
        assert backup.returncode == 0
        until(lambda: len(numbers_of(log, "odd")) == sent // 2, "all odd numbers")
        until(lambda: len(numbers_of(log, "rare")) == (sent - 100) // 2, "all rare numbers")
    return data, saved, sent


def test_each_event_counts_once_after_a_restore(used: tuple[Path, Path, int], tmp_path: Path) -> None:
    data, saved, sent = used
    new = tmp_path / "new"
    tidegate("restore", saved, "--data", new)
    os.link(data / "secrets.key", new / "secrets.key")
    assert tidegate("check", "--data", new) == "nothing is lost or damaged\n"
    with up(new) as client, closing(SegmentLog(new / "log")) as log:
        kept = sorted(numbers_of(log, "raw"))
        assert len(kept) == len(set(kept)) >= 400
        # What the backup does not have is sent again; partitions are copied one after the other.
        for n in sorted(set(range(sent + 100)) - set(kept)):
            publish(client, range(n, n + 1))
        total = sent + 100
        until(lambda: len(numbers_of(log, "odd")) >= total // 2, "all odd numbers")
        until(lambda: len(numbers_of(log, "rare")) >= (total - 100) // 2, "all rare numbers")
        until(lambda: len(numbers_of(log, "counted")) >= total, "every count")
        assert sorted(numbers_of(log, "odd")) == list(range(1, total, 2))
        assert sorted(numbers_of(log, "rare")) == list(range(101, total, 2))
        assert sorted(numbers_of(log, "counted")) == sorted([*range(1, total // 2 + 1)] * 2)


def split(folder: Path) -> list[Path]:
    """Split the one segment of a partition into three, and return their files."""
    (segment,) = folder.glob("*.log")
    lines = segment.read_bytes().splitlines(keepends=True)
    thirds = [b"".join(lines[n * len(lines) // 3 : (n + 1) * len(lines) // 3]) for n in range(3)]
    base, files = int(segment.stem), []
    for third in thirds:
        files.append(folder / f"{base:020d}.log")
        files[-1].write_bytes(third)
        base += len(third)
    return files


def test_lost_segments_are_found_and_outputs_made_again(used: tuple[Path, Path, int]) -> None:
    data, _, sent = used
    options = ["--data", data]
    outputs = [path for name in ("odd", "rare") for path in (data / "log" / name).iterdir() if any(path.glob("*.log"))]
    filled = [path for path in outputs if sum(file.stat().st_size for file in path.glob("*.log"))]
    counted = max(
        (data / "log" / "counted").iterdir(), key=lambda path: sum(f.stat().st_size for f in path.glob("*.log"))
    )
    originals = {path: next(path.glob("*.log")).read_bytes() for path in filled}
    for path in (*filled, counted):
        split(path)[1].unlink()
    found = run("check", *options)
    assert found.returncode == 1
    assert found.stdout.count("lost ") == len(filled) + 1
    assert "until `tidegate repair odd` has made it again" in found.stdout
    assert "apply counted with --backfill" in found.stdout
    with closing(SegmentLog(data / "log")) as log:
        read = log.read("odd", log.begin("odd"), 10_000)
        again = log.read("odd", read.cursor, 10_000)
        assert [gap.partition for gap in (*read.gaps, *again.gaps)] == [
            path.name for path in filled if path.parent.name == "odd"
        ]
    repaired = run("repair", *options)
    assert repaired.returncode == 1, repaired.stderr
    assert repaired.stdout.count("events made again") == len(filled)
    assert f"counted/{counted.name}" in repaired.stderr
    assert "stays lost: the service has a state: apply its definition with --backfill" in repaired.stderr
    for path, original in originals.items():
        assert b"".join(file.read_bytes() for file in sorted(path.glob("*.log"))) == original
    assert run("repair", "odd", *options).stdout == "no output has lost a segment\n"
    with closing(SegmentLog(data / "log")) as log:
        assert sorted(numbers_of(log, "odd")) == list(range(1, sent, 2))
        assert sorted(numbers_of(log, "rare")) == list(range(101, sent, 2))
