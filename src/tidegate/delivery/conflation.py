"""Conflation: a sink that passes on only the latest event of each key in each interval."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tidegate.delivery.batch import Events
from tidegate.delivery.subscriber import DeliveryNotice, Pick, Sink, Subscriber

MAX_KEYS = 100_000
"""Keys with an event that waits; with more the sink is full."""

Held = dict[bytes, Any]
"""The latest event of each key, as the inner sink has rendered it, in the order of the log."""


Conflation = tuple[float | None, str | None]
"""The interval in seconds, and the attribute whose values are the keys; without an interval nothing is conflated."""


class Conflating(Sink):
    """Wraps the sink of one subscriber: holds the latest event of each key, and writes all of them every interval.

    Its memory is bounded by the number of keys, not of events, and a slow reader gets fewer events, not older ones.
    Events are written in the order of the log, so that a reader that resumes from its last cursor misses none. The
    inner sink may have other subscribers.
    """

    def __init__(self, inner: Sink, every_s: float, key: str | None) -> None:
        """`key` is the attribute whose values are the keys; None: all events have the same key."""
        super().__init__()
        self.kind, self.caller = inner.kind, inner.caller
        self._inner, self._every_s, self._key = inner, every_s, key
        self._loop = asyncio.get_running_loop()
        self._latest: Held = {}
        self._older: deque[tuple[Held, Subscriber, DeliveryNotice]] = deque()
        """Notices that the inner sink gets after the events before them, which it has not taken yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def conflation(self) -> Conflation:
        """The interval and the key."""
        return self._every_s, self._key

    @property
    def final(self) -> Sink:
        """The innermost sink."""
        return self._inner.final

    @property
    def is_flushed(self) -> bool:
        """True if no event waits, here and in the inner sink."""
        return not self._latest and not self._older and self._inner.is_flushed

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[tuple[bytes, Any]]:
        """Render the latest event of each key, in the order of the events."""
        latest: dict[bytes, Pick] = {}
        for pick in picks:
            key = key_of(batch.events[pick[0]], self._key)
            latest.pop(key, None)
            latest[key] = pick
        return [(key, self._inner.render(batch, [pick])) for key, pick in latest.items()]

    def write(self, rendered: Any) -> bool:
        """Hold events, in place of older ones of their keys."""
        for key, event in rendered:
            self._latest.pop(key, None)
            self._latest[key] = event
        if self._timer is None and self._flushing is None and self._latest:
            self._timer = self._loop.call_later(self._every_s, self._start_flush)
        if len(self._latest) > MAX_KEYS:
            self._has_room.clear()
        return self._has_room.is_set()

    async def drain(self) -> None:
        """Return when there are not too many keys."""
        await self._has_room.wait()

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:
        """Write the events before a notice, then the notice; later, if the inner sink does not take them now."""
        if self._flush(though_full=True) or notice.kind == "error":  # after an error no event is taken
            self._inner.send_notice(subscriber, notice)
        else:
            self._older.append((self._latest, subscriber, notice))
            self._latest = {}
            if self._flushing is None:
                self._start_flush()

    def release(self) -> Sink | None:
        """Write all events, stop conflating, and return the inner sink; None if that does not take all now."""
        if not self._flush(though_full=True):
            return None
        self.close()
        return self._inner

    def end(self) -> None:
        """Write all events, and end the inner sink."""
        self._flush(though_full=True)
        self._inner.end()

    def close(self) -> None:
        """Stop the timer and the flush."""
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            self._flushing.cancel()

    def _start_flush(self) -> None:
        """Start the task that writes all events as soon as the inner sink has room."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._flushing = None, self._loop.create_task(self._flush_all())

    async def _flush_all(self) -> None:
        while True:
            await self._inner.drain()
            if self._flush(though_full=False):
                break
            await asyncio.sleep(0)  # a socket that was closed always has room, and takes nothing
        self._flushing = None

    def _flush(self, *, though_full: bool) -> bool:
        """Write events and notices until the inner sink takes no more; `though_full`: or until it refuses one.

        Returns True if nothing is left.
        """
        while self._older:
            events, subscriber, notice = self._older[0]
            if not self._write_out(events, though_full):
                return False
            self._older.popleft()
            self._inner.send_notice(subscriber, notice)
        return self._write_out(self._latest, though_full)

    def _write_out(self, events: Held, though_full: bool) -> bool:
        for key in list(events):
            has_room = self._inner.write(events[key])
            if self._inner.first_unsent is not None:
                break
            del events[key]
            if not has_room and not though_full:
                break
        if len(self._latest) <= MAX_KEYS:
            self._has_room.set()
        return not events


def key_of(event: Mapping[str, Any], key: str | None) -> bytes:
    """Return the key of an event: the value of an attribute as JSON; empty if there is no attribute.

    >>> key_of({"vid": "B17"}, "vid"), key_of({"vid": "B17"}, None)
    (b'"B17"', b'')
    """
    return b"" if key is None else orjson.dumps(event.get(key))


def conflated(sink: Sink, conflation: Conflation) -> Sink:
    """Return a sink that conflates; the sink itself if there is no interval."""
    every_s, key = conflation
    return sink if every_s is None else Conflating(sink, every_s, key)


def reconflated(sink: Sink, conflation: Conflation) -> Sink:
    """Return a subscriber's sink with another conflation; the same sink if it need not or can't be changed now."""
    before = sink.conflation if isinstance(sink, Conflating) else (None, None)
    if not sink.final.may_conflate or before == conflation:
        return sink
    plain = sink.release() if isinstance(sink, Conflating) else sink
    if plain is None:
        return sink
    plain.caller = sink.caller
    return conflated(plain, conflation)
