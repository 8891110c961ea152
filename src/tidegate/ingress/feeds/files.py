"""Feeds a raw stream from files: each record once, in order, as fast as possible or at the pace of the event times."""

from __future__ import annotations

import glob
import logging
from pathlib import Path
from threading import Event
from typing import BinaryIO

import orjson

from tidegate.errors import SourceError
from tidegate.ingress.feeds.compression import StoppedError, compressed_reader, uncompressed_name
from tidegate.ingress.feeds.feed import FeedRequest, Report
from tidegate.ingress.feeds.file_formats import FORMAT_BY_SUFFIX, READERS, FilePosition, FileRecord, Reader, RecordShape
from tidegate.ingress.feeds.payloads import TimeConverter
from tidegate.ingress.feeds.resume_position import SAVE_INTERVAL_S, ResumePosition
from tidegate.ingress.raw_streams import Input, RawStreamWriter
from tidegate.logs.clock import Clock, SystemClock
from tidegate.model import events
from tidegate.services.definitions import Files
from tidegate.services.roots import Opener, open_any

MAX_BATCH_RECORDS = 2_000
FOLDER_POLL_INTERVAL_S = 1.0
"""How often a folder is searched for new files and new lines."""
MIN_WAIT_S = 0.002
"""During replay, events that are due within this time are appended together."""

_log = logging.getLogger(__name__)


def make_feed(request: FeedRequest) -> FilesFeed:
    """Build the feed of a stream with files as its source."""
    stream, context = request.stream, request.context
    source = stream.source
    assert isinstance(source, Files)
    opener = context.resources.opener(source.path, stream.origin)
    return FilesFeed(source, request.writer, context.state, context.clock, request.report, opener)


class FilesFeed:
    """Appends the records of one file, or of all files of a folder or pattern, including files that are added later.

    The id of a record is the path of its file (below the folder) and its number from 1, so that each is appended once
    (`resume_position`). Files may only grow: the feed does not read a record again. The feed of one file ends; that of
    a folder or pattern runs until it is stopped.
    """

    def __init__(
        self,
        source: Files,
        writer: RawStreamWriter,
        state: Path | None = None,
        clock: Clock | None = None,
        report: Report = _log.warning,
        open_file: Opener = open_any,
    ) -> None:
        self._open = open_file
        if source.speed is not None and not source.speed > 0:
            raise SourceError(f"speed: expected a number above 0, not {source.speed!r}")
        if source.speed is not None and writer.stream.schema.event_time is None:
            raise SourceError("speed: a stream that is replayed at a speed needs an event_time")
        if source.format is not None and source.format not in READERS:
            raise SourceError(f"format: expected {', '.join(READERS)}, not {source.format!r}")
        self._source, self._writer, self._clock, self._report = source, writer, clock or SystemClock(), report
        self._position = ResumePosition(writer, source.path, state)
        self._has_no_pattern = not glob.has_magic(source.path)
        self._times = TimeConverter(writer.stream.schema, source)

    def run(self, stop: Event) -> None:
        """Append all records; for a folder or pattern, also new ones until `stop` is set. Raises SourceError."""
        self._positions = {name: FilePosition(*position) for name, position in self._position.load().items()}
        self._pace = None if self._source.speed is None else ReplayPace(self._source.speed, self._clock)
        self._saved_s = self._clock.monotonic()
        sizes: dict[str, int] = {}
        while not stop.is_set():
            paths = self._list_files()
            is_file = self._has_no_pattern and not Path(self._source.path).is_dir()
            for name, path in paths.items():
                size = path.stat().st_size
                if not stop.is_set():
                    self._read(name, path, size, is_file or sizes.get(name) == size, stop)
                sizes[name] = size
            if not stop.is_set():
                self._position.clear_stored()
            self._save()
            if is_file:
                return
            self._clock.wait(stop, FOLDER_POLL_INTERVAL_S)

    def _list_files(self) -> dict[str, Path]:
        """Return files by their path below the folder, in order."""
        source = Path(self._source.path)
        if not self._has_no_pattern:
            root = source
            while glob.has_magic(str(root)):
                root = root.parent
            paths = [Path(path) for path in glob.glob(self._source.path, recursive=True)]
        elif source.is_dir():
            root, paths = source, list(source.iterdir())
        elif source.is_file():
            self._format(source)
            return {source.name: source}
        else:
            raise SourceError(f"path: no file or folder {self._source.path!r}")
        named = {path.relative_to(root).as_posix(): path for path in paths if self._is_input(path)}
        return dict(sorted(named.items()))

    def _is_input(self, path: Path) -> bool:
        has_format = self._source.format is not None or _format_by_name(path) is not None
        return has_format and not path.name.startswith(".") and path.is_file()

    def _format(self, path: Path) -> str:
        name = self._source.format or _format_by_name(path)
        if name is None:
            raise SourceError(f"path: {path.name!r} ends in none of {', '.join(FORMAT_BY_SUFFIX)}; give its format")
        if name == "parquet" and uncompressed_name(path)[1] is not None:
            raise SourceError(f"path: {path.name!r}: a Parquet file compresses its columns itself; decompress it")
        return name

    def _read(self, name: str, path: Path, size: int, final: bool, stop: Event) -> None:
        """Append the unread records of a file. `final`: the file no longer grows, so read its last line."""
        position = self._positions.get(name, FilePosition())
        if size <= position.offset:
            if size < position.offset:
                self._report(f"{name} is shorter than the part that was read: {size} of {position.offset} bytes")
            return
        kind, suffix = self._format(path), uncompressed_name(path)[1]
        if suffix is not None and not final:
            return  # it is still being written, or was found just now
        try:
            file = self._open(path)
        except SourceError as exc:
            if path == Path(self._source.path):
                raise
            self._report(str(exc))  # continue with the other files of the folder
            return
        reader = READERS[kind] if suffix is None else compressed_reader(READERS[kind], suffix, size, stop)
        with file:
            is_read = self._read_open(name, file, reader, size, final, stop)
        if is_read and (kind == "parquet" or suffix is not None):
            self._positions[name] = FilePosition(self._positions.get(name, position).records, size)

    def _read_open(self, name: str, file: BinaryIO, reader: Reader, size: int, final: bool, stop: Event) -> bool:
        """Append records; return True if there are no more of them now."""
        position = self._positions.get(name, FilePosition())
        shape = RecordShape(self._writer.stream.schema, self._source.columns)
        rows: list[FileRecord] = []
        try:
            for record in reader(file, position, shape, final):
                row = self._with_times(record)
                wait_s = self._pace.wait_s(self._event_time(row)) if self._pace else 0.0
                if wait_s > MIN_WAIT_S or len(rows) >= MAX_BATCH_RECORDS:
                    self._flush(name, rows)
                    if wait_s > MIN_WAIT_S:
                        self._clock.wait(stop, wait_s)
                if stop.is_set():
                    break
                rows.append(row)
            self._flush(name, rows)
        except StoppedError:
            self._flush(name, rows)
        except SourceError as exc:
            self._flush(name, rows)
            if final:
                self._refuse_file(name, str(exc))
                self._positions[name] = FilePosition(self._positions.get(name, position).records, size)
            return False
        return not stop.is_set()

    def _with_times(self, record: FileRecord) -> FileRecord:
        if record.reason is not None:
            return record
        raw, reason = self._times.convert(record.raw)
        return record._replace(raw=raw, reason=reason)

    def _flush(self, name: str, rows: list[FileRecord]) -> None:
        if not rows:
            return
        ids = {f"{name}:{row.position.records}": row for row in rows}
        writer, position = self._writer, self._position
        inputs = position.without_stored(Input(row.raw, id_) for id_, row in ids.items() if row.reason is None)
        if inputs:
            writer.append_inputs(inputs)
        bad = position.without_stored(Input(b"", id_) for id_, row in ids.items() if row.reason is not None)
        writer.refuse([writer.refusal(ids[id_].raw, ids[id_].reason or "", id_) for _, id_ in bad if id_ is not None])
        self._positions[name] = rows[-1].position
        rows.clear()
        if self._clock.monotonic() - self._saved_s >= SAVE_INTERVAL_S:
            self._save()

    def _refuse_file(self, name: str, reason: str) -> None:
        if self._position.without_stored([Input(b"", name)]):
            self._writer.refuse([self._writer.refusal(b"", reason, name)])

    def _save(self) -> None:
        self._position.save({name: list(position) for name, position in self._positions.items()})
        self._saved_s = self._clock.monotonic()

    def _event_time(self, row: FileRecord) -> int | None:
        if row.reason is not None:
            return None
        try:
            event = orjson.loads(row.raw)
        except ValueError:
            return None
        return events.event_time(event, self._writer.stream.schema) if isinstance(event, dict) else None


def _format_by_name(path: Path) -> str | None:
    return FORMAT_BY_SUFFIX.get(uncompressed_name(path)[0].suffix.lower())


class ReplayPace:
    """When events of a replay are due: the gaps between their times, divided by the speed."""

    def __init__(self, speed: float, clock: Clock) -> None:
        self._speed, self._clock = speed, clock
        self._start: tuple[int, float] | None = None

    def wait_s(self, time: int | None) -> float:
        """Return how long to wait before an event; 0 for an event that is late or has no time."""
        if time is None:
            return 0.0
        if self._start is None:
            self._start = time, self._clock.monotonic()
        first, started_s = self._start
        return max(0.0, started_s + (time - first) / 1e6 / self._speed - self._clock.monotonic())
