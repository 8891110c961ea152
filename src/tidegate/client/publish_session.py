"""One call of `publish`: batches, retries and the receipt, without I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from tidegate.client.errors import ConnectionLost, PublishError, Unavailable, Unreachable
from tidegate.client.requests import events as event_requests
from tidegate.client.requests.request import ApiRequest
from tidegate.client.values import Receipt, Refusal
from tidegate.errors import ClientError
from tidegate.timing import NO_JITTER, Backoff

Mode = Literal["all", "partial"]

EventInput = Mapping[str, Any] | bytes | str
"""An event to publish: a mapping of attributes, or a JSON object as text or bytes."""

MAX_BATCH_BYTES = 4 * 1024 * 1024
"""A gateway refuses bodies of more than 16 MiB."""
MAX_ERRORS = 100
"""Number of refusals that a receipt holds."""
RETRY_TIMEOUT_S = 30.0
"""A batch is no longer retried after this total backoff."""
_BACKOFF = Backoff(first_s=0.25, max_s=5.0, jitter=NO_JITTER)
"""Delays before a batch is sent again, unless the gateway names one."""
_MIN_COUNTED_BACKOFF_S = 0.05


@dataclass(frozen=True)
class PublishBatch:
    """Events that are sent in one request."""

    lines: list[bytes]
    """One JSON object per event."""
    first: int
    """Index of the first event among all events of the call."""
    has_ids: bool
    """True if every event has an id, so that the gateway recognises a repeated batch."""


class PublishSession:
    """Splits events into batches, decides about retries and adds up the receipt.

    For each batch of `batches` the caller sends `request`, then calls `batch_accepted` or `retry_backoff_s`.
    """

    def __init__(self, stream: str, events: Iterable[EventInput] | EventInput, mode: Mode, max_events: int) -> None:
        """`events` may be a single event. Raises PublishError if `max_events` is less than 1."""
        self._events: Iterable[Any] = [events] if isinstance(events, Mapping | bytes | str) else events
        self._stream, self._mode, self._max_events = stream, mode, max_events
        self.receipt = Receipt()
        self._waited_s, self._attempts = 0.0, 0
        if max_events < 1:
            raise self._error(f"batch: expected at least 1 event, not {max_events}")

    def batches(self) -> Iterator[PublishBatch]:
        """Yield all events in batches; reads `events` lazily. Raises PublishError at an event that is not JSON."""
        lines: list[bytes] = []
        first, size_bytes, has_ids = 0, 0, True
        for index, event in enumerate(self._events):
            line = self._line(index, event)
            if lines and (len(lines) == self._max_events or size_bytes + len(line) > MAX_BATCH_BYTES):
                yield PublishBatch(lines, first, has_ids)
                lines, first, size_bytes, has_ids = [], index, 0, True
            lines.append(line)
            size_bytes += len(line) + 1
            has_ids = has_ids and _has_id(event)
        if lines:
            yield PublishBatch(lines, first, has_ids)

    def _line(self, index: int, event: Any) -> bytes:
        if isinstance(event, str):
            event = event.encode()
        if not isinstance(event, Mapping | bytes):
            raise self._error(f"event {index}: expected a dict or a JSON object as text, not {event!r:.60}")
        if isinstance(event, bytes):
            # Inside JSON strings line ends are escaped, so these are white space between tokens.
            return event.replace(b"\n", b" ").replace(b"\r", b" ")
        try:
            return json.dumps(dict(event), ensure_ascii=False, allow_nan=False, default=_to_json).encode()
        except (TypeError, ValueError) as error:
            raise self._error(f"event {index} can't be written as JSON: {error}") from error

    def request(self, batch: PublishBatch) -> ApiRequest:
        """Return the request that publishes a batch."""
        return event_requests.publish(self._stream, batch.lines, self._mode)

    def batch_accepted(self, batch: PublishBatch, document: Mapping[str, Any]) -> None:
        """Add the gateway's answer to the receipt. Raises PublishError if it is not the answer of a gateway."""
        if "accepted" not in document:
            text = json.dumps(document)
            raise self._error(f"expected the counts of accepted events, not {text:.200}: is it a gateway?")
        self._waited_s, self._attempts = 0.0, 0
        self.receipt = _with_counts(self.receipt, document, batch.first)

    def retry_backoff_s(self, batch: PublishBatch, error: ClientError) -> float:
        """Return the backoff before the batch is sent again.

        Raises PublishError if a retry would fail, could duplicate events, or has been tried for RETRY_TIMEOUT_S.
        """
        if self._waited_s >= RETRY_TIMEOUT_S or not self._may_retry(batch, error):
            if error.status == 422 and "refused" in error.document:
                self.receipt = _with_counts(self.receipt, error.document, batch.first)
            raise self._error(self._failure_text(batch, error), error) from error
        self._attempts += 1
        backoff_s = _BACKOFF.delay_s(self._attempts)
        if isinstance(error, Unavailable) and error.retry_after_s is not None:
            backoff_s = error.retry_after_s
        self._waited_s += max(backoff_s, _MIN_COUNTED_BACKOFF_S)
        return backoff_s

    def _may_retry(self, batch: PublishBatch, error: ClientError) -> bool:
        match error:
            case Unreachable():
                return batch.first > 0  # the gateway accepted an earlier batch
            case Unavailable():
                return error.status == 429 or batch.has_ids  # 429: the gateway accepted nothing
            case ConnectionLost():
                return batch.has_ids
        return False

    def _failure_text(self, batch: PublishBatch, error: ClientError) -> str:
        published = self.receipt.accepted + self.receipt.duplicates
        before = f"{published:,} events are in {self._stream}; then: " if published else ""
        is_unsure = isinstance(error, Unavailable | ConnectionLost) and not batch.has_ids
        hint = "; not retried, because events without an _id could be appended twice" if is_unsure else ""
        return f"{before}{error}{hint}"

    def _error(self, message: str, cause: ClientError | None = None) -> PublishError:
        error = PublishError(message, cause.status if cause else None, cause.document if cause else None)
        error.receipt = self.receipt
        return error


def _has_id(event: EventInput) -> bool:
    if not isinstance(event, bytes | str):
        return event.get("_id") is not None
    try:
        fields = json.loads(event)
    except ValueError:
        return False
    return isinstance(fields, dict) and fields.get("_id") is not None


def _with_counts(receipt: Receipt, document: Mapping[str, Any], first: int) -> Receipt:
    errors = [
        Refusal(first + error["index"], error["pointer"], error["detail"]) for error in document.get("errors", ())
    ]
    return replace(
        receipt,
        accepted=receipt.accepted + document["accepted"],
        duplicates=receipt.duplicates + document["duplicates"],
        refused=receipt.refused + document["refused"],
        errors=(*receipt.errors, *errors)[:MAX_ERRORS],
        cursor=document.get("cursor") or receipt.cursor,
    )


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise TypeError(f"expected a datetime with a time zone, not {value.isoformat()}")
        return value.isoformat()
    if hasattr(value, "item"):  # a numpy scalar
        return value.item()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
