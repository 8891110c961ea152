"""At most the latest event of each key in a while: for those who want to know how things are, not all that happened."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tidegate.delivery.batch import Events
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber

MOST_KEYS = 100_000
"""Keys that wait to be sent; with more it is full."""

Held = dict[bytes, Any]
"""The latest event of each key, as the other sink has rendered it, in the order of the log."""


Conflation = tuple[float | None, str | None]
"""How long events wait, and by which attribute they are told apart; not at all, where the time is None."""


class Conflating(Sink):
    """Stands before another sink: holds the latest event of each key, and passes all on every so often.

    What it holds is bounded by the keys there are, not by what comes, and a slow
    reader gets fewer events, not older ones. They leave in their order in the
    log, so whoever comes back with the last cursor misses none. It is one
    subscriber's own, though the other sink may have several.
    """

    def __init__(self, inner: Sink, every_s: float, key: str | None) -> None:
        """`key` is the attribute whose values are told apart; None: all events are of one key."""
        super().__init__()
        self.kind, self.caller = inner.kind, inner.caller
        self._inner, self._every_s, self._key = inner, every_s, key
        self._loop = asyncio.get_running_loop()
        self._latest: Held = {}
        self._older: deque[tuple[Held, Subscriber, Notice]] = deque()
        """Notices that wait for what was before them, which the other sink has not taken yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._free = asyncio.Event()
        self._free.set()

    @property
    def said(self) -> Conflation:
        """As it was asked for."""
        return self._every_s, self._key

    @property
    def final(self) -> Sink:
        """The other one."""
        return self._inner.final

    @property
    def is_settled(self) -> bool:
        """Whether all that was taken has been passed on."""
        return not self._latest and not self._older and self._inner.is_settled

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[tuple[bytes, Any]]:
        """The latest of each key, in the order of the events."""
        latest: dict[bytes, Pick] = {}
        for pick in picks:
            key = key_of(batch.events[pick[0]], self._key)
            latest.pop(key, None)
            latest[key] = pick
        return [(key, self._inner.render(batch, [pick])) for key, pick in latest.items()]

    def write(self, rendered: Any) -> bool:
        """Hold them, in place of older ones."""
        for key, event in rendered:
            self._latest.pop(key, None)
            self._latest[key] = event
        if self._timer is None and self._waiting is None and self._latest:
            self._timer = self._loop.call_later(self._every_s, self._strike)
        if len(self._latest) > MOST_KEYS:
            self._free.clear()
        return self._free.is_set()

    async def room(self) -> None:
        """Return when there are not too many keys."""
        await self._free.wait()

    def tell(self, subscriber: Subscriber, notice: Notice) -> None:
        """Pass on what came before a notice, and the notice."""
        if self._push(though_full=True) or notice.kind == "error":  # then nobody takes what is left
            self._inner.tell(subscriber, notice)
        else:
            self._older.append((self._latest, subscriber, notice))
            self._latest = {}
            if self._waiting is None:
                self._strike()

    def release(self) -> Sink | None:
        """Pass on what there is, hold nothing any more, and give the other sink; None: it does not take all now."""
        if not self._push(though_full=True):
            return None
        self.close()
        return self._inner

    def end(self) -> None:
        """Pass on what there is, and end."""
        self._push(though_full=True)
        self._inner.end()

    def close(self) -> None:
        """Pass nothing on any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting is not None:
            self._waiting.cancel()

    def _strike(self) -> None:
        """When the time has come, and whenever the reader has room."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._waiting = None, self._loop.create_task(self._pass_on())

    async def _pass_on(self) -> None:
        while True:
            await self._inner.room()
            if self._push(though_full=False):
                break
            await asyncio.sleep(0)  # a socket that was closed has room for ever
        self._waiting = None

    def _push(self, *, though_full: bool) -> bool:
        """Pass on as much as the other sink takes; say whether that was all."""
        while self._older:
            events, subscriber, notice = self._older[0]
            if not self._write_out(events, though_full):
                return False
            self._older.popleft()
            self._inner.tell(subscriber, notice)
        return self._write_out(self._latest, though_full)

    def _write_out(self, events: Held, though_full: bool) -> bool:
        for key in list(events):
            has_room = self._inner.write(events[key])
            if self._inner.cut is not None:
                break
            del events[key]
            if not has_room and not though_full:
                break
        if len(self._latest) <= MOST_KEYS:
            self._free.set()
        return not events


def key_of(event: Mapping[str, Any], key: str | None) -> bytes:
    """What tells an event apart by an attribute; without one nothing does.

    >>> key_of({"vid": "B17"}, "vid"), key_of({"vid": "B17"}, None)
    (b'"B17"', b'')
    """
    return b"" if key is None else orjson.dumps(event.get(key))


def conflated(sink: Sink, said: Conflation) -> Sink:
    """A sink, or what stands before it."""
    every_s, key = said
    return sink if every_s is None else Conflating(sink, every_s, key)


def reconflated(sink: Sink, said: Conflation) -> Sink:
    """A subscriber's sink with another conflation; the same where it can't be changed now, or need not be."""
    had = sink.said if isinstance(sink, Conflating) else (None, None)
    if not sink.final.may_conflate or had == said:
        return sink
    plain = sink.release() if isinstance(sink, Conflating) else sink
    if plain is None:
        return sink
    plain.caller = sink.caller
    return conflated(plain, said)
