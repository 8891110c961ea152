"""Serves durable subscriptions: follows the registry, applies changes to connected subscribers, stores cursors."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import orjson
import structlog

from tidegate.delivery.acks import FLUSH_INTERVAL_S, Acknowledgements, onward
from tidegate.delivery.batch import distance, reaches
from tidegate.delivery.conflation import reconflated
from tidegate.delivery.encoding import Encoding, encoding_of
from tidegate.delivery.hub import Hub
from tidegate.delivery.pacing import Pace
from tidegate.delivery.push.context import LEASE_PREFIX, Obstacle, PushContext, PushSettings
from tidegate.delivery.push.placement import Peer
from tidegate.delivery.push.pool import PushPool
from tidegate.delivery.push.transport import Outcome, PendingEvent
from tidegate.delivery.subscriber import Subscriber, SubscriberState
from tidegate.errors import StreamNotFound, TidegateError
from tidegate.federation.link.history import is_past
from tidegate.gateway.telemetry.tracing import Tracing
from tidegate.gateway.transports.push import TransportRequest, push_transports
from tidegate.gateway.transports.topics import OpenConnection
from tidegate.gateway.transports.webhook import WebhookSettings
from tidegate.logs import Cursor, EventLog
from tidegate.model import ServiceName
from tidegate.registry import DeadLetter, Fence, RegisteredSubscription, Registry
from tidegate.services.definitions import NONE
from tidegate.subscriptions import SubscriptionRecord
from tidegate.timing import periodic

_log = structlog.get_logger("tidegate.gateway")

T = TypeVar("T")


class SubscriptionEncoder(Protocol):
    """Returns how events of a subscription are encoded for a caller; None means its owner."""

    def __call__(self, record: SubscriptionRecord, caller: Any) -> Encoding: ...  # noqa: D102 - see the class


@dataclass(frozen=True, slots=True)
class DurableSettings:
    """Settings of durable subscriptions."""

    look_s: float = 0.25
    """Poll interval for changes that other gateways make."""
    ack_s: float = FLUSH_INTERVAL_S
    """How long acknowledgements are collected before they are stored in one transaction."""
    push: PushSettings = field(default_factory=PushSettings)
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)
    connections: Mapping[str, OpenConnection[Any]] = field(default_factory=lambda: NONE)
    """Connections of the profile that subscriptions may deliver to, by name."""


@dataclass(frozen=True, slots=True)
class Redelivered:
    """The result of a redelivery of dead letters."""

    taken: list[int]
    failed: list[tuple[int, str]]
    untried: list[int]
    """Dead letters that were not sent, because the receiver did not answer for an earlier one."""


@dataclass(frozen=True, slots=True)
class Lags:
    """Distances to the end of the stream, in the unit of the log: bytes in files, records in Kafka."""

    connected: Mapping[str, int]
    """The largest lag of a connected subscriber, by service."""
    stored: Mapping[tuple[str, str], int]
    """The lag of each durable subscription, by service and id."""
    failing: Mapping[str, int] = field(default_factory=dict)
    """Durable subscriptions whose receiver refused the last message, by service."""
    disabled: Mapping[str, int] = field(default_factory=dict)
    """Durable subscriptions that get no events until they are enabled, by service."""


class Durable:
    """Follows the subscriptions in the registry, and applies changes to connected subscribers.

    Changes made in this gateway go through `change`, one at a time and never while the
    registry is read, so that an older state never replaces a newer one. Runs on the event loop.
    """

    def __init__(
        self,
        registry: Registry,
        log: EventLog,
        hub: Hub,
        settings: DurableSettings,
        encoding: SubscriptionEncoder = lambda record, caller: encoding_of(record),  # noqa: ARG005 - hides nothing
        sent: Callable[[SubscriptionRecord, Outcome, int], None] = lambda _, __, ___: None,
        tracing: Tracing | None = None,
        pace: Callable[[SubscriptionRecord], Pace | None] = lambda _: None,
        holder: str | None = None,
        peers: Callable[[], Collection[Peer]] = tuple,
    ) -> None:
        """`sent` is called with the outcome of each webhook message and its number of events.

        `pace` returns the delivery rate limit of a webhook; None: there is none. `holder` is the name of this gateway
        in leases, and `peers` returns the gateways that share the webhooks.
        """
        self.encoding = encoding
        self.before: Callable[[], Awaitable[None]] | None = None
        """Awaited before new subscriptions are applied, so that the keys of their owners have been read."""
        self.obstacle: Callable[[SubscriptionRecord], Obstacle | None] = lambda _: None
        """Returns why a webhook must not be delivered; None if it may. Called before delivery starts, and regularly."""
        self.on_change: Callable[[str, RegisteredSubscription | None], None] = lambda _, __: None
        """Called when a subscription is created or changed, and with None when it is removed."""
        self._registry, self._event_log, self._hub, self._settings = registry, log, hub, settings
        self.transports = push_transports(TransportRequest(settings.webhooks, tracing, settings.connections))
        self.acks = Acknowledgements(registry.acknowledge_all, settings.ack_s)
        holder = holder or f"gateway_{secrets.token_hex(8)}"
        fenced = partial(registry.acknowledge_all, fence=Fence(holder, LEASE_PREFIX))
        self._push_acks = Acknowledgements(fenced, settings.ack_s)
        for_maker = partial(encoding, caller=None)
        context = PushContext(
            registry,
            self._push_acks,
            self.transports,
            settings.push,
            holder,
            encoding=for_maker,
            pace=pace,
            on_sent=sent,
            obstacle=lambda record: self.obstacle(record),
            peers=peers,
        )
        self._push_pool = PushPool(hub, context)
        self._known: dict[str, RegisteredSubscription] = {}
        self._connected: dict[str, set[Subscriber]] = {}
        self._revision = -1
        self._changing = asyncio.Lock()
        self._acking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._follower: asyncio.Task[None] | None = None
        self.lags = Lags({}, {})
        self._measured_at = -math.inf

    async def start(self) -> None:
        """Read the subscriptions, then follow the registry in a task until `close`."""
        await self.look()
        self._follower = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop webhooks, and store all acknowledged cursors."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        for close in (self._push_pool.close, self._push_acks.close, self.acks.close, self.transports.close):
            try:
                await close()
            except Exception as problem:  # registry unreachable: events after the stored cursor are sent again
                _log.warning("can't store the cursors of subscriptions", problem=str(problem))

    async def ask(self, call: Callable[[Registry], T]) -> T:
        """Run a registry call, which blocks, in a thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(None, call, self._registry)

    # Following the registry ------------------------------------------------------------

    async def _follow(self) -> None:
        def warn(problem: Exception) -> None:
            _log.warning("can't read the subscriptions", problem=str(problem))

        await periodic(self.look, self._settings.look_s, warn)

    async def look(self) -> None:
        """Apply changes in the registry, and start or stop webhooks accordingly."""
        async with self._changing:
            revision = await self.ask(lambda registry: registry.subscriptions_revision())
            if revision != self._revision:
                registered = await self.ask(lambda registry: registry.subscriptions())
                if self.before is not None:
                    await self.before()
                for id_ in self._known.keys() - registered.keys():
                    await self._forget(id_)
                for subscription in registered.values():
                    await self._apply(subscription)
                self._revision = revision
            await self._push_pool.reconcile()

    async def change(self, call: Callable[[Registry], RegisteredSubscription]) -> RegisteredSubscription:
        """Change a subscription in the registry. Connected subscribers use the new state when this returns."""
        async with self._changing:
            changed = await self.ask(call)
            await self._apply(changed)
            await self._push_pool.reconcile()
            return changed

    async def remove(self, id_: str) -> None:
        """Remove a subscription, and end its connected subscribers with a notice."""
        async with self._changing:
            await self.ask(lambda registry: registry.unsubscribe(id_))
            await self._forget(id_)

    async def _apply(self, registered: RegisteredSubscription) -> None:
        id_ = registered.subscription.id
        before = self._known.get(id_)
        self._known[id_] = registered
        if before is not None and before.version == registered.version:
            return
        self.on_change(id_, registered)
        await self._push_pool.want(registered)
        pushed = self._push_pool.subscriber(id_)
        if pushed is not None:
            await self._update(pushed, registered.subscription)
        for subscriber in self.connected(id_):
            if registered.state != "active":
                self._hub.dismiss(subscriber, f"the subscription is {registered.state}: {registered.reason}")
            elif (target := registered.subscription.push_target) is not None:
                self._hub.dismiss(subscriber, f"the subscription is delivered by {target.kind} from now on")
            else:
                await self._update(subscriber, registered.subscription)

    async def _update(self, subscriber: Subscriber, record: SubscriptionRecord) -> None:
        """Continue a subscriber with a changed record, between two events."""
        encoding = self.encoding(record, subscriber.sink.caller)
        before = subscriber.encoding
        sees_differently = (before.hidden, before.ids) != (encoding.hidden, encoding.ids)
        try:
            self._hub.rewrite(subscriber, encoding, reconflated(subscriber.sink, (record.every_s, record.key)))
        except TidegateError as problem:  # its service was removed
            self._hub.dismiss(subscriber, str(problem))
            return
        old = subscriber.filter
        has_changed = (record.filter.strip(), record.params) != (
            ("", ()) if old is None else (old.text.strip(), old.params)
        )
        if has_changed or (sees_differently and old is not None and old.tree.is_semantic):
            try:
                await self._hub.change(subscriber, self._hub.filter_of(record, encoding))
            except TidegateError as problem:
                self._hub.dismiss(subscriber, str(problem))

    async def _forget(self, id_: str) -> None:
        self._known.pop(id_, None)
        self.acks.forget(id_)
        self._push_acks.forget(id_)
        for subscriber in self.connected(id_):
            self._hub.dismiss(subscriber, "the subscription was removed")
        self._connected.pop(id_, None)
        await self._push_pool.drop(id_)
        self.on_change(id_, None)

    async def recheck_webhooks(self) -> None:
        """Disable webhooks of this gateway whose owners lost their rights; apply new policies to the others."""
        for id_ in list(self._known):
            pushed, record = self._push_pool.subscriber(id_), self._known[id_].subscription
            if pushed is None or record.push_target is None or self._known[id_].state != "active":
                continue
            obstacle = self.obstacle(record)
            if obstacle is not None:
                await self.change(partial(_disabled, id_, obstacle))
            elif pushed.encoding != self.encoding(record, None):
                async with self._changing:
                    await self._update(pushed, record)

    def notify_all(self) -> None:
        """Call `on_change` for all subscriptions, because the definitions of their services may have changed."""
        for id_, registered in self._known.items():
            self.on_change(id_, registered)

    @property
    def pushed(self) -> int:
        """The number of push subscriptions that this gateway delivers."""
        return self._push_pool.count

    def count(self, owner: str | None) -> int:
        """Return the number of subscriptions of an owner."""
        return sum(registered.subscription.owner == owner for registered in self._known.values())

    # Connected subscribers ---------------------------------------------------------------

    def connect(self, registered: RegisteredSubscription, subscriber: Subscriber) -> Subscriber:
        """Apply later changes of a subscription to a new subscriber, which the hub does not serve yet.

        `found` is the state that the subscriber was created from. Changes since then are applied at once.
        """
        id_ = registered.subscription.id
        newest = self._known.get(id_)
        if newest is not None and newest.version > registered.version:
            record = newest.subscription
            subscriber.encoding = self.encoding(record, subscriber.sink.caller)
            subscriber.sink.subscribers.discard(subscriber)
            subscriber.sink = reconflated(subscriber.sink, (record.every_s, record.key))
            subscriber.sink.subscribers.add(subscriber)
            subscriber.filter = self._hub.filter_of(record, subscriber.encoding)
        connected = self._connected.setdefault(id_, set())
        connected -= {other for other in connected if other.state is SubscriberState.GONE}
        connected.add(subscriber)
        return subscriber

    def connected(self, id_: str) -> list[Subscriber]:
        """Return the subscribers in this gateway that consume a subscription now."""
        subscribers = [
            subscriber for subscriber in self._connected.get(id_, ()) if subscriber.state is not SubscriberState.GONE
        ]
        if not subscribers:
            self._connected.pop(id_, None)
        return subscribers

    # Cursors -----------------------------------------------------------------------------

    def cursor(self, registered: RegisteredSubscription) -> str | None:
        """Return the acknowledged cursor of a subscription, even if it is not stored yet."""
        id_ = registered.subscription.id
        return self.acks.newest(id_) or self._push_acks.newest(id_) or registered.cursor

    async def check(self, service: str, cursor: Cursor) -> None:
        """Raise a `CursorError` if a cursor is not a position in a service's output."""
        if ServiceName.parse(service).is_remote and is_past(cursor):  # only the broker of the service can tell
            return
        await asyncio.get_running_loop().run_in_executor(None, partial(self._event_log.read, service, cursor, 1))

    async def acknowledge(self, id_: str, cursor: Cursor) -> tuple[str, bool]:
        """Advance the cursor of a subscription. Returns the cursor once it is stored, and whether it has moved."""
        lock = self._acking.setdefault(id_, asyncio.Lock())
        async with lock:
            registered = await self.ask(lambda registry: registry.subscription(id_))
            await self.check(registered.subscription.service, cursor)
            stored = self.cursor(registered)
            before = None if stored is None else Cursor.from_text(stored)
            moved = onward(cursor, before)
            if before is not None and before.generation == moved.generation and reaches(before, moved):
                return before.text, False
            self.acks.note(id_, moved.text)
        await self.acks.stored()
        return moved.text, True

    async def measure(self, fresh_s: float = 0.0) -> None:
        """Measure the lags of all subscribers and store them in `lags`.

        Returns at once if the last measurement is younger than `fresh_s`. Failures are logged.
        """
        now = asyncio.get_running_loop().time()
        if now - self._measured_at < fresh_s:
            return
        self._measured_at = now
        places = self._hub.positions_behind()
        try:
            subscriptions = await self.ask(lambda registry: registry.subscriptions())
            stored = {
                id_: (registered.subscription.service, self.cursor(registered))
                for id_, registered in subscriptions.items()
            }
            services = {service for service, _ in stored.values()} | places.keys()
            measure = partial(_lags, self._event_log, services, stored, places)
            measured = await asyncio.get_running_loop().run_in_executor(None, measure)
            is_off = {id_: registered.state != "active" for id_, registered in subscriptions.items()}
            failing = Counter(
                stored[id_][0] for id_, registered in subscriptions.items() if registered.attempts and not is_off[id_]
            )
            disabled = Counter(stored[id_][0] for id_ in subscriptions if is_off[id_])
            self.lags = replace(measured, failing=failing, disabled=disabled)
        except Exception as problem:  # the registry or the log is unreachable: other metrics are still reported
            _log.warning("can't measure the lags of subscriptions", problem=str(problem))

    # Dead letters --------------------------------------------------------------------------

    async def redeliver(self, record: SubscriptionRecord, letters: Sequence[DeadLetter]) -> Redelivered:
        """Send dead letters again, in order, and remove those that the receiver accepts. Stops if it is silent."""
        encoding, done = self.encoding(record, None), Redelivered([], [], [])
        for n, letter in enumerate(letters):
            data = encoding.encode(record.service, letter.record, orjson.loads(letter.record))
            outcome = await self.transports.send(record, [PendingEvent(letter.cursor, data, letter.record, encoding)])
            if outcome.kind == "taken":
                await self.ask(partial(_unbury, record.id, letter.id))
                done.taken.append(letter.id)
                continue
            done.failed.append((letter.id, outcome.detail))
            if outcome.kind != "refused":
                done.untried.extend(letter.id for letter in letters[n + 1 :])
                break
        return done


def _disabled(id_: str, obstacle: Obstacle, registry: Registry) -> RegisteredSubscription:
    return registry.disable(id_, obstacle.reason, obstacle.state)


def _lags(
    log: EventLog,
    services: Iterable[str],
    stored: Mapping[str, tuple[str, str | None]],
    places: Mapping[str, Sequence[Cursor]],
) -> Lags:
    ends: dict[str, Cursor] = {}
    for service in services:
        with suppress(StreamNotFound):  # the service has no output yet
            ends[service] = log.end(service)
    connected = {
        service: max((distance(place, ends[service]) for place in some), default=0)
        for service, some in places.items()
        if service in ends
    }
    begin = Cursor("", {})
    durable = {
        (service, id_): distance(begin if cursor is None else Cursor.from_text(cursor), ends[service])
        for id_, (service, cursor) in stored.items()
        if service in ends
    }
    return Lags(connected, durable)


def _unbury(id_: str, letter: int, registry: Registry) -> None:
    registry.remove_dead_letters(id_, [letter])
