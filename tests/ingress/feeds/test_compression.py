"""Compressed files: each record once, in bounded memory, and no more than a limit."""

from __future__ import annotations

import bz2
import gzip
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from tests.ingress.kit import HandClock, events
from tidegate.errors import SourceError
from tidegate.ingress.feeds import compression
from tidegate.ingress.feeds.file_formats import READERS, FilePosition, RecordShape
from tidegate.ingress.feeds.files import FilesFeed
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import SegmentLog
from tidegate.model import Schema
from tidegate.services.definitions import Files, Stream

SCHEMA = Schema({"vid": "string", "n": "int64?"})


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


COMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}
SUFFIXES = pytest.mark.parametrize("suffix", sorted(COMPRESS))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    made = SegmentLog(tmp_path / "log")
    yield made
    made.close()


def feed(log: SegmentLog, path: Path, state: Path | None = None, end_s: float = 10) -> FilesFeed:
    stream = Stream("s", SCHEMA)
    return FilesFeed(Files(str(path)), RawStreamWriter(log, stream), state, HandClock(end_s=end_s))


def rows(numbers: range) -> bytes:
    return b"".join(b'{"vid":"v","n":%d}\n' % n for n in numbers)


def numbers(log: SegmentLog) -> list[int]:
    return [event["n"] for event in events(log, "s")]


@SUFFIXES
def test_compressed_files_are_read_by_their_endings(log: SegmentLog, tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / f"a.csv{suffix}").write_bytes(COMPRESS[suffix](b'vid,n\n"x\ny",1\nz,2\n'))
    (folder / f"b.NDJSON{suffix}").write_bytes(COMPRESS[suffix](rows(range(3, 5_000))))
    feed(log, folder).run(Event())
    assert events(log, "s.quarantine") == []
    assert numbers(log) == list(range(1, 5_000))
    assert events(log, "s")[0]["_id"] == f"a.csv{suffix}:1"


@SUFFIXES
def test_compressed_file_that_grows_is_read_on(log: SegmentLog, tmp_path: Path, suffix: str) -> None:
    """Of gzip, zstd and bz2 alike, two files one after the other are a file."""
    file = tmp_path / f"x.ndjson{suffix}"
    file.write_bytes(COMPRESS[suffix](rows(range(10))))
    feed(log, file, tmp_path / "state").run(Event())
    file.write_bytes(file.read_bytes() + COMPRESS[suffix](rows(range(10, 20))))
    feed(log, file, tmp_path / "state").run(Event())
    feed(log, file, None).run(Event())
    assert numbers(log) == list(range(20))


@SUFFIXES
def test_damaged_file_gives_what_comes_before_the_damage(log: SegmentLog, tmp_path: Path, suffix: str) -> None:
    whole = COMPRESS[suffix](b"".join(b'{"vid":"%d","n":%d}\n' % (hash((n, "x")) % 10**12, n) for n in range(20_000)))
    (tmp_path / f"x.ndjson{suffix}").write_bytes(whole[: len(whole) * 3 // 4])
    feed(log, tmp_path / f"x.ndjson{suffix}").run(Event())
    found = numbers(log)
    assert found == list(range(len(found)))
    (refused,) = events(log, "s.quarantine")
    assert refused["_id"] == f"x.ndjson{suffix}"
    assert refused["_reason"].startswith("the compressed file is damaged or incomplete: ")


@SUFFIXES
def test_text_that_is_not_compressed_is_refused(log: SegmentLog, tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"x.csv{suffix}").write_bytes(b"vid,n\na,1\n")
    feed(log, tmp_path / f"x.csv{suffix}").run(Event())
    assert events(log, "s") == []
    assert len(events(log, "s.quarantine")) == 1


@SUFFIXES
def test_bomb_is_refused_at_the_limit_in_bounded_memory(
    log: SegmentLog, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "MIN_EXPANDED_BYTES", 40 << 20)
    monkeypatch.setattr(compression, "MAX_EXPANSION", 1)
    piece = COMPRESS[suffix](b" " * (16 << 20))
    (tmp_path / f"x.csv{suffix}").write_bytes(piece * 4)  # 64 MiB without a line end
    tracemalloc.start()
    try:
        feed(log, tmp_path / f"x.csv{suffix}").run(Event())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 90 << 20  # some copies of the longest record
    (refused,) = events(log, "s.quarantine")
    assert refused["_reason"].startswith(f"the file expands to more than {40 << 20} bytes")


def test_stop_ends_a_feed_that_skips_lines_read_before(log: SegmentLog, tmp_path: Path) -> None:
    file = tmp_path / "x.ndjson.gz"
    file.write_bytes(gzip.compress(rows(range(10))))
    stop = Event()
    stop.set()
    reader = compression.compressed_reader(READERS["ndjson"], ".gz", 100, stop)
    with file.open("rb") as opened, pytest.raises(compression.StoppedError):
        next(reader(opened, FilePosition(), RecordShape(SCHEMA), True))


def test_compressed_parquet_is_refused(log: SegmentLog, tmp_path: Path) -> None:
    (tmp_path / "x.parquet.gz").write_bytes(b"")
    with pytest.raises(SourceError, match=r"a Parquet file compresses its columns itself"):
        feed(log, tmp_path / "x.parquet.gz").run(Event())
