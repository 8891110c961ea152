"""At most the latest event of each key in a while: for those who want to know how things are, not all that happened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson

from tidegate.delivery.batch import Events
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber

MOST_KEYS = 100_000
"""Keys that wait to be sent; more are sent before their time."""


class Conflating(Sink):
    """Stands before another sink: holds the latest event of each key, and passes all on every so often.

    What it holds is bounded by the keys there are, not by what comes: it is never
    full, and a slow reader gets fewer events, not older ones. They leave in their
    order in the log, so whoever comes back with the last cursor misses none.
    """

    def __init__(self, inner: Sink, every_s: float, key: str | None) -> None:
        """`key` is the attribute whose values are told apart; None: all events are of one key."""
        super().__init__()
        self._inner, self._every_s, self._key = inner, every_s, key
        self._loop = asyncio.get_running_loop()
        self._latest: dict[bytes, Any] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[None] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether all that was taken has been passed on."""
        return not self._latest and self._inner.is_settled

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[tuple[bytes, Any]]:
        """The latest of each key, in the order of the events."""
        latest: dict[bytes, Pick] = {}
        for pick in picks:
            key = self._key_of(batch.events[pick[0]])
            latest.pop(key, None)
            latest[key] = pick
        return [(key, self._inner.render(batch, [pick])) for key, pick in latest.items()]

    def write(self, rendered: Any) -> bool:
        """Hold them, in place of older ones."""
        for key, event in rendered:
            self._latest.pop(key, None)
            self._latest[key] = event
        if len(self._latest) > MOST_KEYS:
            self._pass_on()
        elif self._timer is None and self._latest:
            self._timer = self._loop.call_later(self._every_s, self._strike)
        return True

    async def room(self) -> None:
        """There always is."""

    def tell(self, subscriber: Subscriber, notice: Notice) -> None:
        """Pass on what came before a notice, and the notice."""
        self._pass_on()
        self._inner.tell(subscriber, notice)

    def end(self) -> None:
        """Pass on what there is, and end."""
        self._pass_on()
        self._inner.end()

    def close(self) -> None:
        """Pass nothing on any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting is not None:
            self._waiting.cancel()

    def _key_of(self, event: dict[str, Any]) -> bytes:
        return b"" if self._key is None else orjson.dumps(event.get(self._key))

    def _strike(self) -> None:
        """When the time has come, and the reader has room."""
        self._waiting = self._loop.create_task(self._when_there_is_room())

    async def _when_there_is_room(self) -> None:
        await self._inner.room()
        self._timer = None
        self._pass_on()

    def _pass_on(self) -> None:
        latest, self._latest = self._latest, {}
        for event in latest.values():
            self._inner.write(event)
