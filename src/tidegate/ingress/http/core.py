"""Ingest without a network or a process: takes requests, appends their events, returns receipts."""

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
from tidegate.ingress.http.formats import parse
from tidegate.ingress.http.receipt import MODES, IngestReceipt, Mode
from tidegate.ingress.http.settings import IngestSettings
from tidegate.ingress.http.stream_ingestor import StreamIngestor
from tidegate.logs import EventLog
from tidegate.logs.clock import Clock, SystemClock
from tidegate.logs.writer_lock import WriterLock
from tidegate.services.definitions import Http, Stream

_log = logging.getLogger(__name__)


class IngestRequest(NamedTuple):
    """The body of one request, unparsed."""

    stream: str
    content_type: str | None
    headers: Mapping[str, str]
    body: bytes
    mode: Mode = "all"


IngestOutcome = IngestReceipt | TidegateError


class Ingest:
    """Appends to the raw streams of the current definitions. The only writer of their partitions. Not thread-safe."""

    def __init__(self, log: EventLog, settings: IngestSettings | None = None, clock: Clock | None = None) -> None:
        self._log, self._settings, self._clock = log, settings or IngestSettings(), clock or SystemClock()
        lock_path, owner = self._settings.writer_lock, self._settings.lock_owner
        self._writer_lock = None if lock_path is None else WriterLock(lock_path, owner)
        self._streams: Mapping[str, Stream] = {}
        self._ingestors: dict[str, StreamIngestor] = {}

    def define(self, streams: Mapping[str, Stream]) -> None:
        """Replace the definitions. Creates streams with source `http` in the log."""
        self._streams = dict(streams)
        self._ingestors = {
            name: ingestor for name, ingestor in self._ingestors.items() if self._streams.get(name) == ingestor.stream
        }
        for name, stream in self._streams.items():
            if isinstance(stream.source, Http):
                try:
                    self._ingestor(name)
                except Exception as exc:  # requests to this stream fail with it; other streams continue
                    _log.warning("stream %s: %s", name, error_text(exc))

    def process(self, requests: Sequence[IngestRequest]) -> list[IngestOutcome]:
        """Append the events of several requests, with one append per partition. Returns one outcome per request.

        Accepted events are in the log when this returns. A request fails alone, unless the append to its stream fails:
        then all requests of this stream fail.
        """
        ingestors: dict[str, StreamIngestor] = {}
        outcomes: list[IngestOutcome] = []
        for request in requests:
            try:
                ingestor = self._ingestor(request.stream)
                if self._writer_lock is not None:
                    self._writer_lock.acquire()  # first: ids are read from the log, so no one else may append any more
                outcomes.append(self._add(ingestor, request))
                ingestors[request.stream] = ingestor
            except Exception as exc:  # the request of one producer must not fail those of others
                outcomes.append(_failure(exc))
        ends = {name: _commit(ingestor) for name, ingestor in ingestors.items()}
        return [
            _with_end(outcome, ends.get(request.stream)) for outcome, request in zip(outcomes, requests, strict=True)
        ]

    def _add(self, ingestor: StreamIngestor, request: IngestRequest) -> IngestReceipt:
        if request.mode not in MODES:
            raise IngestError(f"unknown mode {request.mode!r}; expected one of {', '.join(MODES)}")
        parsed = parse(request.content_type, request.headers, request.body, ingestor.stream.schema, self._settings)
        return ingestor.add(parsed, request.mode)

    def _ingestor(self, name: str) -> StreamIngestor:
        ingestor = self._ingestors.get(name)
        if ingestor is None:
            stream = self._streams.get(name)
            if stream is None:
                raise UnknownStream(f"no stream {name!r:.80}")
            if not isinstance(stream.source, Http):
                source = type(stream.source).__name__.lower()
                raise StreamConflict(
                    f"stream {name!r} is fed by its source, {source}, which is its one writer; "
                    "expected a stream with source: {http: {}}"
                )
            ingestor = self._ingestors[name] = StreamIngestor(self._log, stream, self._settings, self._clock)
        return ingestor

    def close(self) -> None:
        """Release the writer lock."""
        if self._writer_lock is not None:
            self._writer_lock.close()


def _commit(ingestor: StreamIngestor) -> str | TidegateError | None:
    try:
        return ingestor.commit()
    except Exception as exc:
        return _failure(exc)


def _with_end(outcome: IngestOutcome, end: str | TidegateError | None) -> IngestOutcome:
    """Return the final outcome of a request after the commit of its stream, which gave a cursor or failed."""
    if isinstance(outcome, TidegateError) or not (outcome.accepted or outcome.duplicates):
        return outcome
    if isinstance(end, TidegateError):
        return end
    return outcome.with_cursor(end) if outcome.accepted else outcome


def _failure(exc: Exception) -> TidegateError:
    if isinstance(exc, TidegateError):
        return exc
    _log.error("ingest failed", exc_info=exc)
    return NotAcknowledged(f"ingest failed: {type(exc).__name__}: {exc}")
