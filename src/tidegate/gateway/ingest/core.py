"""Ingest without a network or a process: requests in, receipts out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidegate.errors import (
    IngestError,
    NotAcknowledged,
    StreamConflict,
    TidegateError,
    UnknownStream,
    error_text,
)
from tidegate.gateway.ingest.door import Door
from tidegate.gateway.ingest.formats import parse
from tidegate.gateway.ingest.receipt import MODES, Mode, Receipt
from tidegate.gateway.ingest.settings import IngestSettings
from tidegate.logs import EventLog
from tidegate.logs.clock import Clock, SystemClock
from tidegate.logs.writer_lock import WriterLock
from tidegate.services.definitions import Http, Stream

_log = logging.getLogger(__name__)


class Request(NamedTuple):
    """Events as they were sent."""

    stream: str
    content_type: str | None
    headers: Mapping[str, str]
    body: bytes
    mode: Mode = "all"


Outcome = Receipt | TidegateError


class Ingest:
    """Appends to the raw streams that are defined; the one writer of their partitions."""

    def __init__(self, log: EventLog, settings: IngestSettings | None = None, clock: Clock | None = None) -> None:
        self._log, self._settings, self._clock = log, settings or IngestSettings(), clock or SystemClock()
        sole, name = self._settings.sole, self._settings.name
        self._sole = None if sole is None else WriterLock(sole, name)
        self._streams: Mapping[str, Stream] = {}
        self._doors: dict[str, Door] = {}

    def define(self, streams: Mapping[str, Stream]) -> None:
        """Take events for just these streams; those that are fed by HTTP are made in the log."""
        self._streams = dict(streams)
        self._doors = {name: door for name, door in self._doors.items() if self._streams.get(name) == door.stream}
        for name, stream in self._streams.items():
            if isinstance(stream.source, Http):
                try:
                    self._door(name)
                except Exception as exc:  # whoever sends to it is told; other streams go on
                    _log.warning("stream %s: %s", name, error_text(exc))

    def take(self, requests: Sequence[Request]) -> list[Outcome]:
        """Append the events of requests that came together, each partition's at once.

        What is acknowledged is in the log. A request fails alone, but for one whose
        stream can't be appended to: then all of this stream do.
        """
        doors: dict[str, Door] = {}
        outcomes: list[Outcome] = []
        for request in requests:
            try:
                door = self._door(request.stream)
                if self._sole is not None:
                    self._sole.acquire()  # first: which ids came is what the log holds, once nobody else appends
                outcomes.append(self._taken(door, request))
                doors[request.stream] = door
            except Exception as exc:  # one producer's request is nobody else's failure
                outcomes.append(_failure(exc))
        ends = {name: _committed(door) for name, door in doors.items()}
        return [_settled(outcome, ends.get(each.stream)) for outcome, each in zip(outcomes, requests, strict=True)]

    def _taken(self, door: Door, request: Request) -> Receipt:
        if request.mode not in MODES:
            raise IngestError(f"unknown mode {request.mode!r}; expected one of {', '.join(MODES)}")
        parsed = parse(request.content_type, request.headers, request.body, door.stream.schema, self._settings)
        return door.take(parsed, request.mode)

    def _door(self, name: str) -> Door:
        door = self._doors.get(name)
        if door is None:
            stream = self._streams.get(name)
            if stream is None:
                raise UnknownStream(f"no stream {name!r:.80}")
            if not isinstance(stream.source, Http):
                source = type(stream.source).__name__.lower()
                raise StreamConflict(
                    f"stream {name!r} is fed by its source, {source}, which is its one writer; "
                    "expected a stream with source: {http: {}}"
                )
            door = self._doors[name] = Door(self._log, stream, self._settings, self._clock)
        return door

    def close(self) -> None:
        """Let another append."""
        if self._sole is not None:
            self._sole.close()


def _committed(door: Door) -> str | TidegateError | None:
    try:
        return door.commit()
    except Exception as exc:
        return _failure(exc)


def _settled(outcome: Outcome, end: str | TidegateError | None) -> Outcome:
    """What a request is told, now that the log has answered."""
    if isinstance(outcome, TidegateError) or not (outcome.accepted or outcome.duplicates):
        return outcome
    if isinstance(end, TidegateError):
        return end
    return outcome.behind(end) if outcome.accepted else outcome


def _failure(exc: Exception) -> TidegateError:
    if isinstance(exc, TidegateError):
        return exc
    _log.error("ingest failed", exc_info=exc)
    return NotAcknowledged(f"ingest failed: {type(exc).__name__}: {exc}")
