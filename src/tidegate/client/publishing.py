"""Events on their way into a raw stream, in batches, without I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from tidegate.client.errors import ConnectionLost, PublishError, Unavailable, Unreachable
from tidegate.client.http import NDJSON, Asked, stream_path
from tidegate.client.values import Receipt, Refusal
from tidegate.errors import ClientError
from tidegate.timing import NO_JITTER, Backoff

Mode = Literal["all", "partial"]

Sent = Mapping[str, Any] | bytes | str
"""An event: a dict, or an object in JSON as it is."""

MOST_BYTES = 4 * 1024 * 1024
"""Of a batch: a gateway refuses bodies of more than 16 MiB."""
MOST_ERRORS = 100
"""That a receipt shows."""
BACKOFF = Backoff(first_s=0.25, max_s=5.0, jitter=NO_JITTER)
"""Delays before a batch is sent again, unless the gateway names one."""
PATIENCE_S = 30.0
"""How long a batch that can't be taken is sent again."""


@dataclass(frozen=True)
class Batch:
    """Events that are sent together."""

    lines: list[bytes]
    first: int
    """The index of its first event among all."""
    has_ids: bool
    """Whether all have ids: sent twice, they are there once."""


class Publishing:
    """What was sent, what became of it, and whether to send it again."""

    def __init__(self, stream: str, events: Iterable[Sent] | Sent, mode: Mode, size: int) -> None:
        """`events` may be one alone."""
        self._events: Iterable[Any] = [events] if isinstance(events, Mapping | bytes | str) else events
        self._stream, self._mode, self._size = stream, mode, size
        self.receipt = Receipt()
        self._waited_s, self._attempts = 0.0, 0
        if size < 1:
            raise self._failed(f"batch: expected at least 1 event, not {size}")

    def batches(self) -> Iterator[Batch]:
        """All events, as they come."""
        lines: list[bytes] = []
        first, size_bytes, has_ids = 0, 0, True
        for index, each in enumerate(self._events):
            line = self._line(index, each)
            if lines and (len(lines) == self._size or size_bytes + len(line) > MOST_BYTES):
                yield Batch(lines, first, has_ids)
                lines, first, size_bytes, has_ids = [], index, 0, True
            lines.append(line)
            size_bytes += len(line) + 1
            has_ids = has_ids and _has_id(each)
        if lines:
            yield Batch(lines, first, has_ids)

    def _line(self, index: int, event: Any) -> bytes:
        if isinstance(event, str):
            event = event.encode()
        if not isinstance(event, Mapping | bytes):
            raise self._failed(f"event {index}: expected a dict, or an object in JSON, not {event!r:.60}")
        if isinstance(event, bytes):
            return event.replace(b"\n", b" ").replace(b"\r", b" ")  # white space between tokens, nowhere else
        try:
            return json.dumps(dict(event), ensure_ascii=False, allow_nan=False, default=_jsonable).encode()
        except (TypeError, ValueError) as error:
            raise self._failed(f"event {index} can't be written as JSON: {error}") from error

    def request(self, batch: Batch) -> Asked:
        """What to send for a batch."""
        body = b"\n".join([*batch.lines, b""])
        return Asked("POST", stream_path(self._stream), [("mode", self._mode)], {"content-type": NDJSON}, body)

    def took(self, batch: Batch, said: Mapping[str, Any]) -> None:
        """The gateway has answered."""
        if "accepted" not in said:
            raise self._failed(f"expected what became of the events, not {json.dumps(said):.200}: is it a gateway?")
        self._waited_s, self._attempts = 0.0, 0
        self.receipt = _added(self.receipt, said, batch.first)

    def wait_s(self, batch: Batch, error: ClientError) -> float:
        """How long to wait before a batch is sent again; an error where it must not be, or not any more."""
        if self._waited_s >= PATIENCE_S or not self._may_repeat(batch, error):
            if error.status == 422 and "refused" in error.document:
                self.receipt = _added(self.receipt, error.document, batch.first)
            raise self._failed(self._told(batch, error), error) from error
        self._attempts += 1
        found = BACKOFF.delay_s(self._attempts)
        if isinstance(error, Unavailable) and error.retry_after_s is not None:
            found = error.retry_after_s
        self._waited_s += max(found, 0.05)
        return found

    def _may_repeat(self, batch: Batch, error: ClientError) -> bool:
        match error:
            case Unreachable():
                return batch.first > 0  # it was there a moment ago
            case Unavailable():
                return error.status == 429 or batch.has_ids  # 429: nothing was taken
            case ConnectionLost():
                return batch.has_ids
        return False

    def _told(self, batch: Batch, error: ClientError) -> str:
        so_far = self.receipt.accepted + self.receipt.duplicates
        before = f"{so_far:,} events are in {self._stream}; then: " if so_far else ""
        unsure = isinstance(error, Unavailable | ConnectionLost) and not batch.has_ids
        hint = "; sent again, these would be there twice, as not all have an _id" if unsure else ""
        return f"{before}{error}{hint}"

    def _failed(self, message: str, error: ClientError | None = None) -> PublishError:
        found = PublishError(message, error.status if error else None, error.document if error else None)
        found.receipt = self.receipt
        return found


def _has_id(event: Sent) -> bool:
    if not isinstance(event, bytes | str):
        return event.get("_id") is not None
    try:
        said = json.loads(event)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("_id") is not None


def _added(receipt: Receipt, said: Mapping[str, Any], first: int) -> Receipt:
    errors = [Refusal(first + each["index"], each["pointer"], each["detail"]) for each in said.get("errors", ())]
    return replace(
        receipt,
        accepted=receipt.accepted + said["accepted"],
        duplicates=receipt.duplicates + said["duplicates"],
        refused=receipt.refused + said["refused"],
        errors=(*receipt.errors, *errors)[:MOST_ERRORS],
        cursor=said.get("cursor") or receipt.cursor,
    )


def _jsonable(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise TypeError(f"expected a moment with a time zone, not {value.isoformat()}")
        return value.isoformat()
    if hasattr(value, "item"):  # a number of numpy's
        return value.item()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
