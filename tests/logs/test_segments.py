"""The embedded log: the contract, and what a crash, a clock and another process do to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.logs.contract import LogContract, all_of, record
from tests.logs.contract import test_a_text_that_is_no_cursor_is_refused as test_a_text_that_is_no_cursor_is_refused
from tidegate.errors import LogError
from tidegate.logs import EventLog, Retention, SegmentLog, segments


class TestSegments(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[EventLog]:
        made = SegmentLog(tmp_path, segment_bytes=500)
        yield made
        made.close()


class TestSynced(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[EventLog]:
        made = SegmentLog(tmp_path, segment_bytes=2_000, fsync="append")
        yield made
        made.close()


def test_it_goes_on_where_it_was_closed(tmp_path: Path) -> None:
    for turn in range(4):
        log = SegmentLog(tmp_path, segment_bytes=200)
        log.create("gps")
        log.append("gps", "0", [record(turn * 10 + n) for n in range(10)])
        log.close()
    assert all_of(SegmentLog(tmp_path), "gps", SegmentLog(tmp_path).begin("gps"))[0] == [record(n) for n in range(40)]


@pytest.mark.parametrize("torn", [b'{"n":', b"x" * 70_000])
def test_a_torn_record_is_not_read_and_is_cut_off_by_the_next_writer(tmp_path: Path, torn: bytes) -> None:
    log = SegmentLog(tmp_path)
    log.create("gps")
    log.append("gps", "0", [record(1), record(2)])
    log.close()
    (file,) = (tmp_path / "gps" / "0").glob("*.log")
    with file.open("ab") as half:
        half.write(torn)
    reader = SegmentLog(tmp_path)
    assert reader.read("gps", reader.begin("gps")).records == (record(1), record(2))
    end = reader.end("gps")
    again = SegmentLog(tmp_path)
    again.append("gps", "0", [record(3)])
    assert again.read("gps", end).records == (record(3),)
    again.close()
    assert file.read_bytes().splitlines() == [record(1), record(2), record(3)]


def test_nothing_that_append_has_returned_for_is_lost_to_a_kill(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from tidegate.logs import SegmentLog
log = SegmentLog(Path(sys.argv[1]), segment_bytes=4_000)
log.create("gps")
n = 0
while True:
    log.append("gps", "0", [b'{"n":%d}' % (n + k) for k in range(3)])
    n += 3
    print(n, flush=True)
"""
    said = 0
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(200):
            said = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read().split()
        said = int(rest[-1]) if rest else said
        child.stdout.close()
        child.wait()
        log = SegmentLog(tmp_path)
        found, _ = all_of(log, "gps", log.begin("gps"), most=1_000)
        # Whole appends only, in order, and all that the child knows of.
        assert len(found) >= said
        assert found[:said] == [b'{"n":%d}' % n for n in range(said)]
        log.delete("gps")


def test_records_are_found_by_when_they_were_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "TIME_EVERY_BYTES", 100)
    now = [1_000_000]
    log = SegmentLog(tmp_path, segment_bytes=1_000, clock=lambda: now[0])
    log.create("gps")
    moments = {}
    for n in range(200):
        moments[n] = now[0]
        log.append("gps", "0", [record(n)])
        now[0] += 10
    for wanted in (0, 1_000_000, 1_000_005, 1_000_990, 1_001_995, 9_000_000):
        found = all_of(log, "gps", log.since("gps", wanted))[0]
        expected = [n for n in range(200) if moments[n] >= wanted]
        first = 200 - len(found)
        assert found == [record(n) for n in range(first, 200)]
        # Nothing is missed, and not much comes from before.
        assert first <= (expected[0] if expected else 200)
        assert first >= (expected[0] if expected else 200) - 15
    log.close()


def test_old_segments_expire_by_age_and_never_the_newest(tmp_path: Path) -> None:
    now = [0]
    log = SegmentLog(tmp_path, segment_bytes=100, clock=lambda: now[0])
    log.create("gps")
    for n in range(30):
        log.append("gps", "0", [record(n)])
        now[0] += 1_000_000
    log.expire("gps", Retention(age_s=10.0))
    found, _ = all_of(log, "gps", log.begin("gps"))
    assert found[-1] == record(29)
    assert 10 <= len(found) <= 18
    now[0] += 10**12
    log.expire("gps", Retention(age_s=10.0, size_bytes=0))
    assert all_of(log, "gps", log.begin("gps"))[0][-1] == record(29)
    assert len(list((tmp_path / "gps" / "0").glob("*.log"))) == 1
    log.close()


def test_threads_that_append_at_once_share_a_sync_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = []
    real = os.fdatasync

    def counted(file: int) -> None:
        syncs.append(file)
        real(file)

    monkeypatch.setattr(os, "fdatasync", counted)
    log = SegmentLog(tmp_path, segment_bytes=5_000, fsync="append")
    log.create("gps")

    def go(thread: int) -> None:
        for n in range(50):
            log.append("gps", "0", [record(thread * 1_000 + n)])

    threads = [threading.Thread(target=go, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found, _ = all_of(log, "gps", log.begin("gps"), most=1_000)
    assert sorted(found) == sorted(record(t * 1_000 + n) for t in range(6) for n in range(50))
    assert 0 < len(syncs) <= 300
    log.close()


def test_an_unknown_fsync_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="unknown fsync 'sometimes'; expected one of never, append"):
        SegmentLog(tmp_path, fsync="sometimes")
