"""Looks after those who are connected: whoever may listen no more is told, and let go of, within a second or two."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from tidegate.delivery.hub import Hub
from tidegate.delivery.subscriber import Notice, Sink, Subscriber
from tidegate.delivery.webhook import Obstacle
from tidegate.errors import RegistryError
from tidegate.gateway.callers import Caller
from tidegate.gateway.certificates import ID_PREFIX
from tidegate.gateway.durable import Durable
from tidegate.gateway.policy import Policies
from tidegate.gateway.sign_ins import SignIns
from tidegate.registry import Registry
from tidegate.subscriptions import Subscription
from tidegate.timing import periodic

EVERY_S = 0.5
"""Between two looks."""
NOTE_INTERVAL_S = 5.0
"""Between two writes of when keys were last used."""
AT_ONCE = 250
"""Subscribers that are looked at before others have their turn: events must not wait for a look at ten thousand."""

VOID = 4401
"""The close code of a socket whose key or token does not hold any more."""
NOTHING_LEFT = 4403
"""The close code of a socket that has lost the last of its subscriptions."""

_log = structlog.get_logger("tidegate.gateway")


class Connection(Protocol):
    """A socket that may be open without a subscription."""

    caller: Caller

    def is_left_idle(self, sink: Sink) -> bool:
        """Whether a sink is its own, and nothing is subscribed to any more."""

    async def dismiss(self, code: int, reason: str) -> None:
        """Close it."""


class Sweep:
    """One look after another at all who listen."""

    def __init__(
        self,
        registry: Registry,
        hub: Hub,
        durable: Durable,
        policies: Policies,
        sign_ins: SignIns,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._registry, self._hub, self._durable, self._policies, self._now = registry, hub, durable, policies, now
        self._sign_ins = sign_ins
        self.connections: set[Connection] = set()
        self._revision = -1
        self._noted_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the keys, then go on looking."""
        await self.read_keys()
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Look no more; keep what is known of the last use of keys."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        with suppress(RegistryError):
            await self.note_uses()

    async def _follow(self) -> None:
        def warn(problem: Exception) -> None:  # the registry is away: whoever is in stays, until it is back
            _log.warning("can't look after connections", problem=str(problem))

        await periodic(self._sweep, EVERY_S, warn)

    async def _sweep(self) -> None:
        await self.read_keys()
        await self.look()
        if time.monotonic() - self._noted_at >= NOTE_INTERVAL_S:
            await self.note_uses()

    async def read_keys(self) -> None:
        """Take in which keys there are, where any has changed."""
        loop = asyncio.get_running_loop()
        revision = await loop.run_in_executor(None, self._registry.subscriptions_revision)
        if revision != self._revision:
            self._policies.keys = await loop.run_in_executor(None, self._registry.keys)
            self._sign_ins.know(self._policies.keys)
            self._revision = revision

    async def note_uses(self) -> None:
        """Write to the registry when keys were last used, and from where."""
        self._noted_at = time.monotonic()
        uses, self._sign_ins.uses = self._sign_ins.uses, {}
        if uses:
            await asyncio.get_running_loop().run_in_executor(None, self._registry.note_key_use, uses)

    async def look(self) -> None:
        """Let go of all who may listen no more."""
        told: dict[Any, str | None] = {}
        for n, each in enumerate(self._hub.listening()):
            if n % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            caller: Caller | None = each.sink.caller
            if caller is None or (caller.id is None and caller.may("operate")) or each.state == "gone":
                continue
            problem = self.void(caller) or self._obstacle(each, caller, told)
            if problem is not None:
                self._dismiss(each, problem)
                await self._close_idle(each.sink, problem)
        for socket in list(self.connections):
            problem = self.void(socket.caller)
            if problem is not None:
                self.connections.discard(socket)
                await socket.dismiss(VOID, problem)
        await self._durable.hold()

    def void(self, caller: Caller) -> str | None:
        """Why a caller's key or token does not hold any more; None: it does."""
        key = self._policies.keys.get(caller.id or "")
        if key is not None:
            now = self._now()
            if caller.prefix is not None and not key.holds(caller.prefix, now):
                return f"the secret of the key {key.name!r} was replaced: connect again with the new one"
            return key.problem(now)
        if caller.expires_at is not None and caller.expires_at <= self._now():
            return f"{caller.told} expired at {caller.expires_at.isoformat()}"
        return self._policies.certificates.problem(caller) if (caller.id or "").startswith(ID_PREFIX) else None

    def _obstacle(self, subscriber: Subscriber, caller: Caller, told: dict[Any, str | None]) -> str | None:
        filter_ = subscriber.filter
        asked = None if filter_ is None else (filter_.text, filter_.params)
        # What a look has found out once holds for all who ask the same; most have no field kept from them.
        hidden = self._policies.withheld(caller, subscriber.service)
        about = caller, subscriber.service, repr(asked) if hidden else None
        if about not in told:
            told[about] = self._policies.obstacle(caller, subscriber.service, asked)
        encoding = subscriber.encoding
        if told[about] is None and encoding != self._policies.dressed(encoding, caller, subscriber.service):
            return f"what you see of {subscriber.service!r} has changed: connect again"
        return told[about]

    def _dismiss(self, subscriber: Subscriber, detail: str) -> None:
        place = subscriber.position
        self._hub.unsubscribe(subscriber)
        subscriber.sink.tell(subscriber, Notice("error", place.text if place else "", {"detail": detail}))

    async def _close_idle(self, sink: Sink, problem: str) -> None:
        for socket in [each for each in self.connections if each.is_left_idle(sink)]:
            self.connections.discard(socket)
            await socket.dismiss(VOID if self.void(socket.caller) else NOTHING_LEFT, problem)

    def obstacle(self, record: Subscription) -> Obstacle | None:
        """Why a webhook must not be delivered; None: it may. What is not served yet is not judged."""
        lapsed = self._policies.lapsed(record, self._now())
        if lapsed is not None:
            return Obstacle("stopped", lapsed)
        owner = self._policies.owner(record)
        problem = self.void(owner)
        if problem is None and self._policies.is_there(record.service):
            asked = (record.filter, record.params) if record.filter.strip() else None
            problem = self._policies.obstacle(owner, record.service, asked)
        return None if problem is None else Obstacle("disabled", problem)
