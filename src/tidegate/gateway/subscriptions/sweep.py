"""Ends connections and subscriptions whose callers have lost their rights, within a second or two."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from tidegate.delivery.hub import Hub
from tidegate.delivery.push.context import Obstacle
from tidegate.delivery.subscriber import Sink, Subscriber, SubscriberState
from tidegate.errors import RegistryError
from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.auth.owner_rights import OwnerRights
from tidegate.gateway.auth.policy import Policies
from tidegate.gateway.auth.sign_ins import SignIns
from tidegate.gateway.subscriptions.durable import Durable
from tidegate.registry import Registry
from tidegate.subscriptions import SubscriptionRecord
from tidegate.timing import periodic

SWEEP_INTERVAL_S = 0.5
"""Between two checks of all connections."""
KEY_USE_INTERVAL_S = 5.0
"""Between two writes of the last use of keys to the registry."""
CHECKS_PER_TURN = 250
"""Subscribers that are checked before the event loop gets a turn, so that events do not wait for all checks."""

CREDENTIAL_INVALID = 4401
"""Close code of a WebSocket whose key, token or certificate is no longer valid."""
NO_SUBSCRIPTION_LEFT = 4403
"""Close code of a WebSocket that has lost its last subscription."""

_log = structlog.get_logger("tidegate.gateway")


class SweptSocket(Protocol):
    """A WebSocket, which may be open without a subscription."""

    caller: Caller

    def is_left_idle(self, sink: Sink) -> bool:
        """True if a sink belongs to this WebSocket, and the WebSocket has no subscription left."""

    async def dismiss(self, code: int, reason: str) -> None:
        """Close the WebSocket with a code and a reason."""


class Sweep:
    """Checks all subscribers and WebSockets regularly. Runs on the event loop."""

    def __init__(
        self,
        registry: Registry,
        hub: Hub,
        durable: Durable,
        policies: Policies,
        owners: OwnerRights,
        sign_ins: SignIns,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._registry, self._hub, self._durable, self._policies, self._now = registry, hub, durable, policies, now
        self._owners, self._sign_ins = owners, sign_ins
        self.connections: set[SweptSocket] = set()
        self._revision = -1
        self._noted_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the keys, then check regularly in a task until `close`."""
        await self.read_keys()
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop checking, and store the last use of keys."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        with suppress(RegistryError):
            await self.note_uses()

    async def _follow(self) -> None:
        def warn(problem: Exception) -> None:  # the registry is unreachable: connections stay open until it is back
            _log.warning("can't check the rights of connections", problem=str(problem))

        await periodic(self._sweep, SWEEP_INTERVAL_S, warn)

    async def _sweep(self) -> None:
        await self.read_keys()
        await self.check()
        if time.monotonic() - self._noted_at >= KEY_USE_INTERVAL_S:
            await self.note_uses()

    async def read_keys(self) -> None:
        """Read all keys again if a key or subscription has changed in the registry."""
        loop = asyncio.get_running_loop()
        revision = await loop.run_in_executor(None, self._registry.subscriptions_revision)
        if revision != self._revision:
            self._owners.keys = await loop.run_in_executor(None, self._registry.keys)
            self._sign_ins.know(self._owners.keys)
            self._revision = revision

    async def note_uses(self) -> None:
        """Store when keys were last used, and from which address."""
        self._noted_at = time.monotonic()
        uses, self._sign_ins.uses = self._sign_ins.uses, {}
        if uses:
            await asyncio.get_running_loop().run_in_executor(None, self._registry.note_key_use, uses)

    async def check(self) -> None:
        """Check all subscribers and WebSockets once, and end those without rights."""
        verdicts: dict[Any, str | None] = {}
        for index, subscriber in enumerate(self._hub.listening()):
            if index % CHECKS_PER_TURN == CHECKS_PER_TURN - 1:
                await asyncio.sleep(0)
            caller: Caller | None = subscriber.sink.caller
            is_gone = subscriber.state is SubscriberState.GONE
            if caller is None or (caller.id is None and caller.may("operate")) or is_gone:
                continue
            problem = self.void(caller) or self._obstacle(subscriber, caller, verdicts)
            if problem is not None:
                self._hub.dismiss(subscriber, problem)
                await self._close_idle(subscriber.sink, problem)
        for socket in list(self.connections):
            problem = self.void(socket.caller)
            if problem is not None:
                self.connections.discard(socket)
                await socket.dismiss(CREDENTIAL_INVALID, problem)
        await self._durable.recheck_webhooks()

    def void(self, caller: Caller) -> str | None:
        """Return why the key, token or certificate of a caller is no longer valid; None if it is."""
        key = self._owners.keys.get(caller.id or "")
        if key is not None:
            now = self._now()
            if caller.prefix is not None and not key.holds(caller.prefix, now):
                return f"the secret of the key {key.name!r} was replaced: connect again with the new one"
            return key.problem(now)
        if caller.expires_at is not None and caller.expires_at <= self._now():
            return f"{caller.told} expired at {caller.expires_at.isoformat()}"
        return self._owners.problem_of_certificate(caller)

    def _obstacle(self, subscriber: Subscriber, caller: Caller, verdicts: dict[Any, str | None]) -> str | None:
        filter_ = subscriber.filter
        text = None if filter_ is None else (filter_.text, filter_.params)
        # One verdict serves all subscribers with the same caller and service. The filter matters only if
        # attributes are hidden from the caller, which is rare.
        hidden = self._policies.withheld(caller, subscriber.service)
        about = caller, subscriber.service, repr(text) if hidden else None
        if about not in verdicts:
            verdicts[about] = self._policies.obstacle(caller, subscriber.service, text)
        encoding = subscriber.encoding
        if verdicts[about] is None and encoding != self._policies.visible_encoding(
            encoding, caller, subscriber.service
        ):
            return f"what you see of {subscriber.service!r} has changed: connect again"
        return verdicts[about]

    async def _close_idle(self, sink: Sink, problem: str) -> None:
        for socket in [connection for connection in self.connections if connection.is_left_idle(sink)]:
            self.connections.discard(socket)
            await socket.dismiss(CREDENTIAL_INVALID if self.void(socket.caller) else NO_SUBSCRIPTION_LEFT, problem)

    def obstacle(self, record: SubscriptionRecord) -> Obstacle | None:
        """Return why a webhook must not be delivered; None if it may, or if its service is not known yet."""
        lapsed = self._owners.lapsed(record, self._now())
        if lapsed is not None:
            return Obstacle("stopped", lapsed)
        owner = self._owners.owner(record)
        problem = self.void(owner)
        if problem is None and self._policies.exists(record.service):
            text = (record.filter, record.params) if record.filter.strip() else None
            problem = self._policies.obstacle(owner, record.service, text)
        return None if problem is None else Obstacle("disabled", problem)
