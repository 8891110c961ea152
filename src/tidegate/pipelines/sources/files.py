"""Files as a raw stream: read once, in order, at the speed of their events or at once."""

from __future__ import annotations

import glob
import logging
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import BinaryIO

import orjson

from tidegate.errors import SourceError
from tidegate.logs.clock import Clock, SystemClock
from tidegate.logs.intake import Input, Intake
from tidegate.model import events
from tidegate.pipelines.sources.formats import ENDINGS, READERS, Place, Row
from tidegate.pipelines.sources.resume import EVERY_S, Resume
from tidegate.services.definitions import Files
from tidegate.services.roots import Opener, open_any

BATCH = 2_000
LOOK_S = 1.0
"""How often a folder is looked at for new files."""
EARLY_S = 0.002
"""Events that are due within this are not waited for one by one."""

_log = logging.getLogger(__name__)


class FilesFeed:
    """Appends the records of one file, or of all in a folder or pattern, those that are added later too.

    A record's id is its file's name (below the folder) and its number from 1, so
    that each is appended once however often the feed starts: `resume.py`. Files
    only grow: what was read is not looked at again. One file ends; a folder never
    does.
    """

    def __init__(
        self,
        source: Files,
        intake: Intake,
        state: Path | None = None,
        clock: Clock | None = None,
        report: Callable[[str], None] = _log.warning,
        open_file: Opener = open_any,
    ) -> None:
        self._open = open_file
        if source.speed is not None and not source.speed > 0:
            raise SourceError(f"speed: expected a number above 0, not {source.speed!r}")
        if source.speed is not None and intake.stream.schema.event_time is None:
            raise SourceError("speed: a stream that is replayed at a speed needs an event_time")
        if source.format is not None and source.format not in READERS:
            raise SourceError(f"format: expected {', '.join(READERS)}, not {source.format!r}")
        self._source, self._intake, self._clock, self._report = source, intake, clock or SystemClock(), report
        self._resume = Resume(intake, source.path, state)
        self._is_one = not glob.has_magic(source.path)

    def run(self, stop: Event) -> None:
        """Read what is there; of a folder or pattern also what comes, until stopped."""
        self._places = {name: Place(*place) for name, place in self._resume.load().items()}
        self._pace = None if self._source.speed is None else Pace(self._source.speed, self._clock)
        self._saved_s = self._clock.monotonic()
        sizes: dict[str, int] = {}
        while not stop.is_set():
            found = self._found()
            is_one = self._is_one and not Path(self._source.path).is_dir()
            for name, path in found.items():
                size = path.stat().st_size
                if not stop.is_set():
                    self._read(name, path, size, is_one or sizes.get(name) == size, stop)
                sizes[name] = size
            if not stop.is_set():
                self._resume.caught_up()
            self._save()
            if is_one:
                return
            self._clock.wait(stop, LOOK_S)

    def _found(self) -> dict[str, Path]:
        """Files by their names below the folder, in order."""
        given = Path(self._source.path)
        if not self._is_one:
            root = given
            while glob.has_magic(str(root)):
                root = root.parent
            paths = [Path(path) for path in glob.glob(self._source.path, recursive=True)]
        elif given.is_dir():
            root, paths = given, list(given.iterdir())
        elif given.is_file():
            self._format(given)
            return {given.name: given}
        else:
            raise SourceError(f"path: no file or folder {self._source.path!r}")
        named = {path.relative_to(root).as_posix(): path for path in paths if self._is_ours(path)}
        return dict(sorted(named.items()))

    def _is_ours(self, path: Path) -> bool:
        known = self._source.format is not None or path.suffix.lower() in ENDINGS
        return known and not path.name.startswith(".") and path.is_file()

    def _format(self, path: Path) -> str:
        found = self._source.format or ENDINGS.get(path.suffix.lower())
        if found is None:
            raise SourceError(f"path: {path.name!r} ends in none of {', '.join(ENDINGS)}; give its format")
        return found

    def _read(self, name: str, path: Path, size: int, final: bool, stop: Event) -> None:
        """Append what a file has behind its place."""
        place = self._places.get(name, Place())
        if size <= place.offset:
            if size < place.offset:
                self._report(f"{name} is shorter than what was read of it: {size} of {place.offset} bytes")
            return
        kind = self._format(path)
        try:
            file = self._open(path)
        except SourceError as exc:
            if path == Path(self._source.path):
                raise
            self._report(str(exc))  # the other files of a folder are read all the same
            return
        with file:
            self._read_open(name, file, kind, size, final, stop)

    def _read_open(self, name: str, file: BinaryIO, kind: str, size: int, final: bool, stop: Event) -> None:
        place = self._places.get(name, Place())
        rows: list[Row] = []
        try:
            for row in READERS[kind](file, place, self._intake.stream.schema, final):
                wait_s = self._pace.wait_s(self._moment(row)) if self._pace else 0.0
                if wait_s > EARLY_S or len(rows) >= BATCH:
                    self._flush(name, rows)
                    if wait_s > EARLY_S:
                        self._clock.wait(stop, wait_s)
                if stop.is_set():
                    break
                rows.append(row)
            self._flush(name, rows)
        except SourceError as exc:
            if final:
                self._refuse_file(name, str(exc))
                self._places[name] = Place(place.records, size)
            return
        if kind == "parquet" and not stop.is_set():
            self._places[name] = Place(self._places.get(name, place).records, size)

    def _flush(self, name: str, rows: list[Row]) -> None:
        if not rows:
            return
        ids = {f"{name}:{row.place.records}": row for row in rows}
        intake, resume = self._intake, self._resume
        inputs = resume.fresh(Input(row.raw, id_) for id_, row in ids.items() if row.reason is None)
        if inputs:
            intake.take(inputs)
        bad = resume.fresh(Input(b"", id_) for id_, row in ids.items() if row.reason is not None)
        intake.refuse([intake.refusal(ids[id_].raw, ids[id_].reason or "", id_) for _, id_ in bad if id_ is not None])
        self._places[name] = rows[-1].place
        rows.clear()
        if self._clock.monotonic() - self._saved_s >= EVERY_S:
            self._save()

    def _refuse_file(self, name: str, reason: str) -> None:
        if self._resume.fresh([Input(b"", name)]):
            self._intake.refuse([self._intake.refusal(b"", reason, name)])

    def _save(self) -> None:
        self._resume.save({name: list(place) for name, place in self._places.items()})
        self._saved_s = self._clock.monotonic()

    def _moment(self, row: Row) -> int | None:
        if row.reason is not None:
            return None
        try:
            event = orjson.loads(row.raw)
        except ValueError:
            return None
        return events.event_time(event, self._intake.stream.schema) if isinstance(event, dict) else None


class Pace:
    """When events are due that are replayed: as far apart as their times, divided by the speed."""

    def __init__(self, speed: float, clock: Clock) -> None:
        self._speed, self._clock = speed, clock
        self._start: tuple[int, float] | None = None

    def wait_s(self, moment: int | None) -> float:
        """How long an event must wait; 0 for one that is late or has no time."""
        if moment is None:
            return 0.0
        if self._start is None:
            self._start = moment, self._clock.monotonic()
        first, began_s = self._start
        return max(0.0, began_s + (moment - first) / 1e6 / self._speed - self._clock.monotonic())
