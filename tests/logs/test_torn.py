"""Records that are lost at the end of a partition: their offsets are never used again, and readers get a gap."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.logs.contract import record
from tidegate.logs import Cursor, SegmentLog, files, torn
from tidegate.logs.log import Gap

APPENDER = """
import sys
from pathlib import Path
from tidegate.logs import SegmentLog
log = SegmentLog(Path(sys.argv[1]))
log.create("gps")
for n in range(50):
    print(log.append("gps", "0", [b'{"n":%d}' % n]), flush=True)
input()
"""


def filled(folder: Path, count: int = 20) -> Cursor:
    """Append records, close the log, and return the cursor behind them."""
    log = SegmentLog(folder)
    log.create("gps")
    log.append("gps", "0", [record(n) for n in range(count)])
    end = log.end("gps")
    log.close()
    return end


def cut(folder: Path, byte_count: int) -> None:
    """Remove bytes from the end of the newest segment."""
    newest = files.segments_of(str(folder / "gps" / "0"))[-1]
    os.truncate(newest.path, newest.size() - byte_count)


@pytest.mark.parametrize("lost", [1, 5, 200, None])
def test_reader_behind_lost_records_gets_every_new_record(lost: int | None, tmp_path: Path) -> None:
    cursor = filled(tmp_path)
    cut(tmp_path, files.segments_of(str(tmp_path / "gps" / "0"))[-1].size() if lost is None else lost)
    reader, log = SegmentLog(tmp_path), SegmentLog(tmp_path)
    reader.partitions("gps")
    log.append("gps", "0", [record(n) for n in range(100, 140)])
    read = reader.read("gps", cursor)
    assert read.records == tuple(record(n) for n in range(100, 140))
    end = cursor.offsets["0"]
    assert [(gap.missed_from, gap.resumed_at) for gap in read.gaps] == [(end, end + 1)]
    # A reader that had not read everything is told of it, too.
    found: list[bytes] = []
    gaps: list[Gap] = []
    at = reader.begin("gps")
    while (read := reader.read("gps", at, 7)).records:
        found += read.records
        gaps += read.gaps
        at = read.cursor
    assert found[-40:] == [record(n) for n in range(100, 140)]
    assert len(found) < 60
    assert [gap.resumed_at for gap in gaps] == ([] if lost is None else [end + 1])
    log.close()


def test_killed_writer_continues_without_a_gap(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    ends = [int(child.stdout.readline()) for _ in range(50)]
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    child.stdin.close()
    log = SegmentLog(tmp_path)
    assert log.append("gps", "0", [b"{}"]) == ends[-1] + 3
    assert log.read("gps", log.begin("gps")).gaps == ()
    log.close()


def test_power_failure_lets_the_writer_continue_at_a_later_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SegmentLog(tmp_path, segment_bytes=1_000)
    log.create("gps")
    end = log.append("gps", "0", [record(1)])  # and never closed: the machine stops here
    monkeypatch.setattr(torn, "_boot", lambda: "another")
    cut(tmp_path, 3)
    again = SegmentLog(tmp_path, segment_bytes=1_000)
    assert again.append("gps", "0", [record(2)]) > 1_000 + torn.MAX_LOST_BYTES
    read = again.read("gps", Cursor(again.begin("gps").generation, {"0": end}))
    assert read.records == (record(2),)
    assert [gap.missed_from for gap in read.gaps] == [end]
    again.close()


@pytest.mark.parametrize("note", ["mark", "record"])
def test_service_that_has_read_further_shows_that_records_are_lost(note: str, tmp_path: Path) -> None:
    end = filled(tmp_path).offsets["0"]
    (tmp_path / "gps" / "0" / "writer").unlink()  # an earlier version wrote the stream
    log = SegmentLog(tmp_path)
    log.create("fast", ["gps.0"])
    if note == "mark":
        (tmp_path / "fast" / "gps.0" / "mark").write_text(f"{end} 0")
    else:
        log.append("fast", "gps.0", [b'{"_src":"gps/0:%d"}' % (end - len(record(19)) - 1)])
    cut(tmp_path, 2)
    assert log.append("gps", "0", [record(2)]) > end
    log.close()


def test_stream_that_was_deleted_leaves_no_note(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    log.create("gps")
    log.append("gps", "0", [record(n) for n in range(9)])
    log.delete("gps")
    log.create("gps")
    assert log.append("gps", "0", [b"{}"]) == 3
    log.close()


def test_reader_passes_a_lost_segment_and_is_told(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, segment_bytes=100)
    log.create("gps")
    for n in range(60):
        log.append("gps", "0", [record(n)])
    segments = files.segments_of(str(tmp_path / "gps" / "0"))
    lost, following = segments[2], segments[3]
    lost.unlink()
    at = log.begin("gps")
    found: list[bytes] = []
    gaps: list[Gap] = []
    while (read := log.read("gps", at, 4)).records:
        found += read.records
        gaps += read.gaps
        at = read.cursor
    assert [(gap.missed_from, gap.resumed_at) for gap in gaps] == [(lost.base, following.base)]
    assert found[-1] == record(59)
    log.close()
