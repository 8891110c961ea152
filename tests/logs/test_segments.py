"""The log of files: the contract of a log, crashes, clocks and other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.logs.contract import LogContract, all_of, record, waiting
from tidegate.errors import CursorError, LogError, LogUnreachable
from tidegate.logs import Cursor, EventLog, Gap, RetentionLimits, SegmentLog, files, writer


class TestSegments(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[EventLog]:
        log = SegmentLog(tmp_path, segment_bytes=500)
        yield log
        log.close()


class TestSynced(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[EventLog]:
        log = SegmentLog(tmp_path, segment_bytes=2_000, fsync="append")
        yield log
        log.close()


def test_reopened_log_appends_after_the_last_record(tmp_path: Path) -> None:
    for turn in range(4):
        log = SegmentLog(tmp_path, segment_bytes=200)
        log.create("gps")
        log.append("gps", "0", [record(turn * 10 + n) for n in range(10)])
        log.close()
    assert all_of(SegmentLog(tmp_path), "gps", SegmentLog(tmp_path).begin("gps"))[0] == [record(n) for n in range(40)]


def test_files_that_cannot_be_read_are_not_an_absent_stream(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    log.create("gps")
    log.append("gps", "0", [record(1)])
    begin = log.begin("gps")
    generation = tmp_path / "gps" / "generation"
    generation.rename(tmp_path / "aside")
    generation.symlink_to(generation)  # the system refuses to open it, also for root
    for call in (
        lambda: log.begin("gps"),
        lambda: log.partitions("gps"),
        lambda: log.read("gps", begin),
        lambda: log.wait("gps", begin, 0.0),
    ):
        with pytest.raises(LogUnreachable, match=r"can't read .*/gps/generation: Too many levels.*; check the disk"):
            call()
    generation.unlink()
    (tmp_path / "aside").rename(generation)
    assert log.read("gps", begin).records == (record(1),)


@pytest.mark.parametrize("torn", [b'{"n":', b"x" * 70_000])
def test_incomplete_record_is_not_read_and_the_next_writer_removes_it(tmp_path: Path, torn: bytes) -> None:
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


def test_acknowledged_records_survive_a_kill(tmp_path: Path) -> None:
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
    acknowledged = 0
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(200):
            acknowledged = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        child.stdout.close()
        child.wait()
        log = SegmentLog(tmp_path)
        records, _ = all_of(log, "gps", log.begin("gps"), max_records=1_000)
        # The log has all records that the child has acknowledged, in order.
        assert len(records) >= acknowledged
        assert records[:acknowledged] == [b'{"n":%d}' % n for n in range(acknowledged)]
        log.delete("gps")


def test_since_finds_records_by_append_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "TIME_EVERY_BYTES", 100)
    now = [1_000_000]
    log = SegmentLog(tmp_path, segment_bytes=1_000, clock=lambda: now[0])
    log.create("gps")
    moments = {}
    for n in range(200):
        moments[n] = now[0]
        log.append("gps", "0", [record(n)])
        now[0] += 10
    for since in (0, 1_000_000, 1_000_005, 1_000_990, 1_001_995, 9_000_000):
        records = all_of(log, "gps", log.since("gps", since))[0]
        expected = [n for n in range(200) if moments[n] >= since]
        first = 200 - len(records)
        assert records == [record(n) for n in range(first, 200)]
        # No record is missed, and only a few are older.
        assert first <= (expected[0] if expected else 200)
        assert first >= (expected[0] if expected else 200) - 15
    log.close()


def test_time_index_knows_the_age_of_records_to_ten_milliseconds(tmp_path: Path) -> None:
    now = [1_000_000]
    log = SegmentLog(tmp_path, clock=lambda: now[0])
    log.create("gps")
    appended = {}
    for pause_micros in (0, 3_000, 3_000, 5_000, 60_000_000, 9_999, 1, -5_000_000, 2_000):
        now[0] += pause_micros
        appended[log.end("gps").offsets["0"]] = now[0]
        log.append("gps", "0", [record(7)])
    (segment,) = files.segments_of(str(tmp_path / "gps" / "0"))
    times = segment.times()
    for offset, moment in appended.items():
        found = [micros for micros, begin in times if begin <= offset][-1]
        assert 0 <= moment - found < 10_000
    log.close()


def test_old_segments_expire_by_age_but_never_the_newest(tmp_path: Path) -> None:
    now = [0]
    log = SegmentLog(tmp_path, segment_bytes=100, clock=lambda: now[0])
    log.create("gps")
    for n in range(30):
        log.append("gps", "0", [record(n)])
        now[0] += 1_000_000
    log.expire("gps", RetentionLimits(age_s=10.0))
    records, _ = all_of(log, "gps", log.begin("gps"))
    assert records[-1] == record(29)
    assert 10 <= len(records) <= 18
    now[0] += 10**12
    log.expire("gps", RetentionLimits(age_s=10.0, size_bytes=0))
    assert all_of(log, "gps", log.begin("gps"))[0][-1] == record(29)
    assert len(list((tmp_path / "gps" / "0").glob("*.log"))) == 1
    log.close()


def test_concurrent_appends_share_a_sync_and_lose_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    records, _ = all_of(log, "gps", log.begin("gps"), max_records=1_000)
    assert sorted(records) == sorted(record(t * 1_000 + n) for t in range(6) for n in range(50))
    assert 0 < len(syncs) <= 300
    log.close()


@pytest.mark.parametrize("torn", [b"", b"1234567", files.TIME.pack(5, 10**9), files.TIME.pack(0, 0) + b"12"])
def test_damaged_time_index_does_not_change_results(
    tmp_path: Path, torn: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TIME_EVERY_BYTES", 20)
    now = [1_000]
    for turn in range(3):
        log = SegmentLog(tmp_path, clock=lambda: now[0])
        log.create("gps")
        for n in range(10):
            log.append("gps", "0", [record(turn * 10 + n)])
            now[0] += 10
        log.close()
        (index,) = (tmp_path / "gps" / "0").glob("*.times")
        with index.open("ab") as half:
            half.write(torn)
        reader = SegmentLog(tmp_path)
        for skipped in range(turn * 10 + 10):
            records, _ = all_of(reader, "gps", reader.since("gps", 1_000 + skipped * 10))
            left = turn * 10 + 10 - skipped
            assert left <= len(records) <= left + 4


def test_reader_follows_new_and_expired_segments_of_another_process(tmp_path: Path) -> None:
    log, reader = SegmentLog(tmp_path, segment_bytes=60), SegmentLog(tmp_path)
    log.create("gps")
    start = cursor = reader.begin("gps")
    for n in range(50):
        log.append("gps", "0", [record(n)])
        read = reader.read("gps", cursor)
        assert read.records == (record(n),)
        cursor = read.cursor
        if n % 7 == 0:
            log.expire("gps", RetentionLimits(size_bytes=100))
            # The segments that the reader has cached are deleted: it must report a gap, not the end of the stream.
            early = reader.read("gps", start, 1)
            assert len(early.records) == 1
            assert [gap.missed_from for gap in early.gaps] == ([0] if log.begin("gps").offsets["0"] else [])
            assert reader.read("gps", Cursor(start.generation, {})).gaps == ()
    log.close()


def test_read_at_the_end_does_not_list_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SegmentLog(tmp_path, segment_bytes=200)
    log.create("gps")
    log.append("gps", "0", [record(n) for n in range(20)])
    cursor = log.read("gps", log.begin("gps")).cursor
    listed: list[str] = []
    monkeypatch.setattr(files, "segments_of", listed.append)
    for _ in range(5):
        assert log.read("gps", cursor).records == ()
        assert not log.wait("gps", cursor, 0.01)
    assert listed == []
    log.close()


def test_missing_segment_is_a_gap(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, segment_bytes=60)
    log.create("gps")
    for n in range(20):
        log.append("gps", "0", [record(n)])
    log.close()
    paths = sorted((tmp_path / "gps" / "0").glob("*.log"))
    paths[1].unlink()
    first = log.read("gps", log.begin("gps"))
    rest = log.read("gps", first.cursor)
    assert rest.gaps == (Gap("0", int(paths[1].stem), int(paths[2].stem)),)
    assert rest.records[-1] == record(19)


def test_offset_inside_a_record_is_refused(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    log.create("gps")
    log.append("gps", "0", [record(1), record(2)])
    with pytest.raises(CursorError, match="offset 3 of gps/0 is inside a record, not at its start"):
        log.read("gps", log.begin("gps").moved("0", 3))
    with pytest.raises(CursorError, match="is beyond its end"):
        log.read("gps", log.begin("gps").moved("0", 3_000))
    log.close()


@pytest.mark.parametrize("stream", ["../gps", "gps/0", "", ".", "gps/../gps"])
def test_name_with_a_path_is_not_a_stream(tmp_path: Path, stream: str) -> None:
    log = SegmentLog(tmp_path / "data")
    for name in ("gps", "0"):
        log.create(name)
    (tmp_path / "gps").mkdir()
    (tmp_path / "gps" / "generation").write_text("a")
    for use in (log.begin, log.delete, lambda name: log.read(name, Cursor("a", {}))):
        with pytest.raises(LogError, match="no stream"):
            use(stream)


def test_append_to_a_stream_that_another_process_recreated_goes_to_the_new_one(tmp_path: Path) -> None:
    log, other = SegmentLog(tmp_path), SegmentLog(tmp_path)
    log.create("gps")
    log.append("gps", "0", [record(1)])
    old = log.end("gps")
    other.delete("gps")
    with pytest.raises(LogError, match="no stream 'gps'"):
        log.append("gps", "0", [record(2)])
    other.create("gps")
    log.append("gps", "0", [record(3)])
    assert other.read("gps", other.begin("gps")).records == (record(3),)
    with pytest.raises(CursorError, match="deleted and created again"):
        log.read("gps", old)
    assert [path.name for path in tmp_path.iterdir()] == ["gps"]
    log.close()


def test_second_writer_of_a_partition_is_refused(tmp_path: Path) -> None:
    log, other = SegmentLog(tmp_path), SegmentLog(tmp_path)
    log.create("gps")
    log.append("gps", "0", [record(1)])
    other.append("gps", "0", [record(2)])
    with pytest.raises(LogError, match="only one process may write to a partition"):
        log.append("gps", "0", [record(3)])
    log.append("gps", "0", [record(4)])  # the writer was opened again, after the records of the other
    assert all_of(log, "gps", log.begin("gps"))[0] == [record(1), record(2), record(4)]
    log.close()
    other.close()


def test_partial_write_on_a_full_disk_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SegmentLog(tmp_path)
    log.create("gps")
    log.append("gps", "0", [record(1)])
    real, left = os.write, [30]

    def write(file: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        written = real(file, data[: left[0]])
        left[0] -= written
        return written

    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        with pytest.raises(LogError, match=r"can't append to .*gps/0: No space left on device"):
            log.append("gps", "0", [record(n) for n in range(2, 9)])
    assert log.read("gps", log.begin("gps")).records == (record(1),)
    end = log.append("gps", "0", [record(2)])
    assert log.end("gps").offsets == {"0": end}
    assert log.read("gps", log.begin("gps")).records == (record(1), record(2))
    log.close()


def test_close_during_appends_loses_no_record(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, segment_bytes=300)
    log.create("gps")

    def go(thread: int) -> None:
        for n in range(200):
            log.append("gps", "0", [record(thread * 1_000 + n)])

    threads = [threading.Thread(target=go, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        log.close()
    records, _ = all_of(log, "gps", log.begin("gps"), max_records=1_000)
    assert sorted(records) == sorted(record(t * 1_000 + n) for t in range(3) for n in range(200))
    log.close()


def test_concurrent_creates_give_one_generation(tmp_path: Path) -> None:
    for n in range(20):
        seen: list[str] = []

        def make(stream: str, seen: list[str]) -> None:
            log = SegmentLog(tmp_path)
            log.create(stream)
            seen.append(log.begin(stream).generation)

        threads = [threading.Thread(target=make, args=(f"s{n}", seen)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 4
        assert len(set(seen)) == 1
        assert seen[0]


def test_concurrent_create_delete_and_expire_raise_only_unknown_stream(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def go(seed: int) -> None:
        log = SegmentLog(tmp_path, segment_bytes=50)
        try:
            for n in range(60):
                log.create("gps")
                try:
                    if n % 9 == seed:
                        log.delete("gps")
                    log.expire("gps", RetentionLimits(size_bytes=100))
                    log.read("gps", log.begin("gps"))
                    log.wait("gps", log.end("gps"), 0.0)
                    for k in range(5):
                        log.append("gps", "0", [record(k)])
                except LogError:
                    pass
            log.close()
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=go, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_wait_ends_when_the_stream_is_deleted(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    log.create("gps")
    cursor = log.end("gps")
    errors: list[str] = []

    def wait() -> None:
        try:
            log.wait("gps", cursor, 60.0)
        except LogError as exc:
            errors.append(str(exc))

    waiter = threading.Thread(target=wait)
    waiter.start()
    log.delete("gps")
    waiter.join()
    assert errors == ["no stream 'gps'"]


def test_incomplete_record_does_not_end_a_wait(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    log.create("gps")
    log.append("gps", "0", [record(1)])
    cursor = log.end("gps")
    log.close()
    (path,) = (tmp_path / "gps" / "0").glob("*.log")
    with path.open("ab", buffering=0) as file:
        file.write(b'{"n":')
        assert not log.wait("gps", cursor, 0.02)
        with waiting(log, "gps", cursor) as results:
            file.write(b"2}\n")
    assert results == [True]
    assert log.read("gps", cursor).records == (b'{"n":2}',)


def test_error_names_an_unknown_fsync(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="unknown fsync 'sometimes'; expected one of never, append"):
        SegmentLog(tmp_path, fsync="sometimes")
