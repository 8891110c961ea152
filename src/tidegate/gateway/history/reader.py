"""Reads a span of a service's output from the log, slice by slice."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from tidegate.delivery.batch import Batch, reaches
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.start import Start, start_cursor
from tidegate.errors import LogError, StreamNotFound
from tidegate.filters import Filter
from tidegate.gateway.history.columns import HistoryColumns
from tidegate.gateway.history.writers import HistoryWriter
from tidegate.logs import Cursor, EventLog
from tidegate.logs.log import Gap
from tidegate.model import timestamps

if TYPE_CHECKING:
    import pyarrow as pa

READ = 200
"""Records per read of the log."""
MAX_AHEAD_MICROS = 24 * 3600 * 10**6
"""How long before its own time an event may have arrived. The log has an index of arrival times only."""
SLICE_S = 0.1
"""A slice ends after this time, so that others get their turn."""
SLICE_BYTES = 1 << 20
SLICE_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class HistorySpan:
    """Which events of a service are read."""

    service: str
    start: Start
    """With a time: events of this time or later."""
    to_micros: int | None
    """Events before this time; None: all up to the end of the log at the first read."""
    filter: Filter | None
    encoding: Encoding
    """In the format `plain`."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the response."""

    data: bytes
    events: int
    is_last: bool


class SpanReader:
    """Reads one span. Its methods block; they are called one after the other, in any thread."""

    def __init__(self, log: EventLog, span: HistorySpan, columns: HistoryColumns, writer: HistoryWriter) -> None:
        self._log, self._span, self._columns, self._writer = log, span, columns, writer
        self._position: Cursor | None = None
        self._end: Cursor | None = None

    def next_slice(self) -> Slice:
        """Read, match and encode the next events.

        Raises LogError if events of the span have expired since the reader has begun: the response would lack them.
        """
        if self._end is None:
            self._find_ends()
        if self._position is None or self._end is None:
            return self._last([])
        deadline_s = time.monotonic() + SLICE_S
        rows: list[dict[str, Any]] = []
        size = 0
        while not reaches(self._position, self._end):
            batch = Batch(self._span.service, self._position, self._log.read(self._span.service, self._position, READ))
            if self._has_expired(batch.gaps):
                raise LogError(f"events of {self._span.service!r} expired while they were read; ask again")
            if not batch.records:
                break
            size += self._add_rows(batch, self._end, rows)
            self._position = batch.end
            if time.monotonic() > deadline_s or size >= SLICE_BYTES or len(rows) >= SLICE_ROWS:
                return Slice(self._writer.write(self._batch(rows)), len(rows), False)
        return self._last(rows)

    def _find_ends(self) -> None:
        log, span = self._log, self._span
        since, start = span.start.since_micros, span.start
        if since is not None:
            start = Start(since_micros=max(0, since - MAX_AHEAD_MICROS))
        try:
            self._position = start_cursor(log, span.service, start)
            self._end = log.end(span.service)
        except StreamNotFound:  # the service has no output yet
            self._position = None

    def _has_expired(self, gaps: Sequence[Gap]) -> bool:
        """True if retention has removed events after the reader has begun. Records that a power failure lost do not
        count: they would be missing in every answer.
        """
        oldest = self._log.begin(self._span.service).offsets if gaps else {}
        return any(oldest.get(gap.partition, 0) >= gap.resumed_at for gap in gaps)

    def _add_rows(self, batch: Batch, end: Cursor, rows: list[dict[str, Any]]) -> int:
        """Add the events of a batch that match and are before the end, and return the size of their records."""
        span, size = self._span, 0
        for n, (record, event) in enumerate(zip(batch.records, batch.events, strict=True)):
            is_in_span = batch.is_below(n, end.offsets) and self._is_in_time(event)
            if is_in_span and (span.filter is None or span.filter.matches(event)):
                rows.append(orjson.loads(span.encoding.encode(span.service, record, event)))
                size += len(record)
        return size

    def _is_in_time(self, event: Mapping[str, Any]) -> bool:
        begin, end = self._span.start.since_micros, self._span.to_micros
        if begin is None and end is None:
            return True
        moment = timestamps.from_text(str(event.get("_time") or ""))
        return moment is not None and (begin is None or begin <= moment) and (end is None or moment < end)

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        return self._columns.batch(rows)

    def _last(self, rows: list[dict[str, Any]]) -> Slice:
        data = self._writer.write(self._batch(rows)) if rows else b""
        return Slice(data + self._writer.close(), len(rows), True)
