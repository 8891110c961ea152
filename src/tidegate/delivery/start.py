"""Where a subscriber starts, and the cursor of that position in the log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidegate.delivery.notices import stream_replaced
from tidegate.delivery.subscriber import Subscriber
from tidegate.errors import StreamNotFound
from tidegate.logs import Cursor, EventLog


@dataclass(frozen=True, slots=True)
class Start:
    """The start position of a subscriber: a cursor, a time, the beginning of the stream, or now."""

    cursor: Cursor | None = None
    since_micros: int | None = None
    beginning: bool = False

    @property
    def is_now(self) -> bool:
        """True if the subscriber starts with the next event."""
        return self.cursor is None and self.since_micros is None and not self.beginning


NOW = Start()


def start_cursor(log: EventLog, service: str, start: Start) -> Cursor | None:
    """Return the cursor of a start position; None if the stream does not exist yet. Blocks.

    Raises `LogUnreachable` if the log does not answer.
    """
    if start.cursor is not None:
        return start.cursor
    try:
        if start.beginning:
            return log.begin(service)
        if start.since_micros is not None:
            return log.since(service, start.since_micros)
        return log.end(service)
    except StreamNotFound:
        return None


async def restart_at_beginning(log: EventLog, subscriber: Subscriber) -> None:
    """Move a subscriber whose cursor is not valid in this stream to the beginning, and send it a gap notice.

    Raises `LogUnreachable` if the log does not answer; then the subscriber keeps its cursor, and gets no notice.
    """
    try:
        subscriber.cursor = await asyncio.to_thread(log.begin, subscriber.service)
    except StreamNotFound:
        subscriber.cursor = None
    subscriber.sink.send_notice(subscriber, stream_replaced(subscriber.cursor))
