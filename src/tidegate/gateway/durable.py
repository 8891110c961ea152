"""Durable subscriptions as this gateway serves them: who is connected, what is sent, how far each has come."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import orjson
import structlog

from tidegate.delivery.acks import DELAY_S, Acknowledgements, onward
from tidegate.delivery.batch import distance, reaches
from tidegate.delivery.conflation import reconflated
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.hub import Hub
from tidegate.delivery.pacing import Pace
from tidegate.delivery.subscriber import Notice, Subscriber
from tidegate.delivery.webhook import Couriers, CourierSettings, Obstacle, Outcome, Parcel, Post, encoding_of
from tidegate.errors import LogError, TidegateError
from tidegate.federation.link.history import is_past
from tidegate.gateway.tracing import Tracing
from tidegate.gateway.webhook import WebhookSender, WebhookSettings
from tidegate.logs import Cursor, EventLog
from tidegate.registry import DeadLetter, RegisteredSubscription, Registry
from tidegate.subscriptions import Subscription, Webhook
from tidegate.timing import periodic

_log = structlog.get_logger("tidegate.gateway")

T = TypeVar("T")


class Write(Protocol):
    """How a subscription's events are written for a caller; for None, whoever made it."""

    def __call__(self, record: Subscription, caller: Any) -> Encoding: ...  # noqa: D102 - said above


@dataclass(frozen=True, slots=True)
class DurableSettings:
    """How durable subscriptions are served."""

    look_s: float = 0.25
    """Between two looks at what other gateways have changed."""
    ack_s: float = DELAY_S
    """How long an acknowledgement waits for others, so that all are one transaction."""
    couriers: CourierSettings = field(default_factory=CourierSettings)
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)


@dataclass(frozen=True, slots=True)
class Redelivered:
    """What became of dead letters that were sent again."""

    taken: list[int]
    failed: list[tuple[int, str]]
    untried: list[int]
    """The receiver did not answer: those behind were left alone."""


@dataclass(frozen=True, slots=True)
class Lags:
    """How far behind the end of its stream, in the log's own measure: bytes in files, records in Kafka."""

    connected: Mapping[str, int]
    """Of each service, whoever is connected and farthest behind."""
    stored: Mapping[tuple[str, str], int]
    """Of each service's durable subscriptions."""
    failing: Mapping[str, int] = field(default_factory=dict)
    """Of each service, durable subscriptions whose receiver did not take what was sent last."""
    disabled: Mapping[str, int] = field(default_factory=dict)
    """Of each service, durable subscriptions that get nothing until they are enabled."""


class Durable:
    """Follows the registry's subscriptions, and brings changes to whoever is connected.

    What changes them here goes through `change`, one at a time and never while
    the registry is looked at, so that an older state never follows a newer one.
    """

    def __init__(
        self,
        registry: Registry,
        log: EventLog,
        hub: Hub,
        settings: DurableSettings,
        encoding: Write = lambda record, caller: encoding_of(record),  # noqa: ARG005 - to all alike
        sent: Callable[[Subscription, Outcome, int], None] = lambda _, __, ___: None,
        tracing: Tracing | None = None,
        pace: Callable[[Subscription], Pace | None] = lambda _: None,
    ) -> None:
        """`sent` is told what became of each message to a webhook, and of how many events it was.

        `pace` is what a webhook's events keep to; None: nothing.
        """
        self.encoding = encoding
        self.before: Callable[[], Awaitable[None]] | None = None
        """Awaited before subscriptions that are new are taken in: whoever has made them must be known by then."""
        self.obstacle: Callable[[Subscription], Obstacle | None] = lambda _: None
        """Why a subscription must not be sent to its webhook; None: it may. Asked before delivery begins, and often."""
        self.heed: Callable[[str, RegisteredSubscription | None], None] = lambda _, __: None
        """Told of every subscription, when it is made or changed, and, with None, when it is gone."""
        self._registry, self._event_log, self._hub, self._settings = registry, log, hub, settings
        self.sender = WebhookSender(settings.webhooks, tracing=tracing)
        self.acks = Acknowledgements(registry.acknowledge_all, settings.ack_s)
        for_maker = partial(encoding, caller=None)
        post = Post(
            registry,
            self.acks,
            self.sender.send,
            settings.couriers,
            encoding=for_maker,
            pace=pace,
            sent=sent,
            obstacle=lambda record: self.obstacle(record),
        )
        self._couriers = Couriers(hub, post, f"gateway_{secrets.token_hex(8)}")
        self._known: dict[str, RegisteredSubscription] = {}
        self._connected: dict[str, set[Subscriber]] = {}
        self._revision = -1
        self._changing = asyncio.Lock()
        self._acking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._follower: asyncio.Task[None] | None = None
        self.lags = Lags({}, {})
        self._measured_at = -math.inf

    async def start(self) -> None:
        """Look once, then go on looking."""
        await self.look()
        self._follower = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Send nothing more, and store how far everybody has come."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        for close in (self._couriers.close, self.acks.close, self.sender.close):
            try:
                await close()
            except Exception as problem:  # the registry is away: what is not stored is delivered again
                _log.warning("can't store how far subscriptions have come", problem=str(problem))

    async def ask(self, call: Callable[[Registry], T]) -> T:
        """Ask the registry, which blocks, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(None, call, self._registry)

    # Following the registry ------------------------------------------------------------

    async def _follow(self) -> None:
        def warn(problem: Exception) -> None:
            _log.warning("can't look at the subscriptions", problem=str(problem))

        await periodic(self.look, self._settings.look_s, warn)

    async def look(self) -> None:
        """Take in what has changed, and see to it that webhooks are served."""
        async with self._changing:
            revision = await self.ask(lambda registry: registry.subscriptions_revision())
            if revision != self._revision:
                found = await self.ask(lambda registry: registry.subscriptions())
                if self.before is not None:
                    await self.before()
                for id_ in self._known.keys() - found.keys():
                    await self._let_go(id_)
                for each in found.values():
                    await self._take_in(each)
                self._revision = revision
            await self._couriers.look()

    async def change(self, call: Callable[[Registry], RegisteredSubscription]) -> RegisteredSubscription:
        """Change a subscription in the registry; all who are connected have it when this returns."""
        async with self._changing:
            found = await self.ask(call)
            await self._take_in(found)
            await self._couriers.look()
            return found

    async def remove(self, id_: str) -> None:
        """Remove a subscription; whoever is connected is told."""
        async with self._changing:
            await self.ask(lambda registry: registry.unsubscribe(id_))
            await self._let_go(id_)

    async def _take_in(self, found: RegisteredSubscription) -> None:
        id_ = found.subscription.id
        before = self._known.get(id_)
        self._known[id_] = found
        if before is not None and before.version == found.version:
            return
        self.heed(id_, found)
        await self._couriers.want(found)
        courier = self._couriers.subscriber(id_)
        if courier is not None:
            await self._bring(courier, found.subscription)
        for each in self.connected(id_):
            if found.state != "active":
                self._dismiss(each, f"the subscription is {found.state}: {found.reason}")
            elif isinstance(found.subscription.deliver, Webhook):
                self._dismiss(each, "the subscription is delivered by webhook from now on")
            else:
                await self._bring(each, found.subscription)

    async def _bring(self, subscriber: Subscriber, record: Subscription) -> None:
        """Let a subscriber go on with a new record, between two events."""
        encoding = self.encoding(record, subscriber.sink.caller)
        before = subscriber.encoding
        sees_other = (before.hidden, before.ids) != (encoding.hidden, encoding.ids)
        try:
            self._hub.rewrite(subscriber, encoding, reconflated(subscriber.sink, (record.every_s, record.key)))
        except TidegateError as problem:  # its service is no more
            self._dismiss(subscriber, str(problem))
            return
        old = subscriber.filter
        is_other = (record.filter.strip(), record.params) != (
            ("", ()) if old is None else (old.text.strip(), old.params)
        )
        if is_other or (sees_other and old is not None and old.tree.is_semantic):
            try:
                await self._hub.change(subscriber, self._hub.filter_of(record, encoding))
            except TidegateError as problem:
                self._dismiss(subscriber, str(problem))

    async def _let_go(self, id_: str) -> None:
        self._known.pop(id_, None)
        self.acks.forget(id_)
        for each in self.connected(id_):
            self._dismiss(each, "the subscription was removed")
        self._connected.pop(id_, None)
        await self._couriers.drop(id_)
        self.heed(id_, None)

    async def hold(self) -> None:
        """Disable webhooks that are sent from here and may be no more; others go on as their owners now see them."""
        for id_ in list(self._known):
            courier, record = self._couriers.subscriber(id_), self._known[id_].subscription
            if courier is None or not isinstance(record.deliver, Webhook) or self._known[id_].state != "active":
                continue
            obstacle = self.obstacle(record)
            if obstacle is not None:
                await self.change(partial(_disabled, id_, obstacle))
            elif courier.encoding != self.encoding(record, None):
                async with self._changing:
                    await self._bring(courier, record)

    def heed_all(self) -> None:
        """Tell of all subscriptions again: what their services are may be otherwise."""
        for id_, found in self._known.items():
            self.heed(id_, found)

    def _dismiss(self, subscriber: Subscriber, detail: str) -> None:
        place = subscriber.position
        self._hub.unsubscribe(subscriber)
        subscriber.sink.tell(subscriber, Notice("error", place.text if place else "", {"detail": detail}))

    def count(self, owner: str | None) -> int:
        """How many subscriptions are an owner's."""
        return sum(each.subscription.owner == owner for each in self._known.values())

    # Whoever is connected ----------------------------------------------------------------

    def connect(self, found: RegisteredSubscription, subscriber: Subscriber) -> Subscriber:
        """Let changes of a subscription reach a subscriber that is not served yet, until it is gone.

        `found` is what the subscriber was made of: what has changed since reaches it here.
        """
        id_ = found.subscription.id
        newest = self._known.get(id_)
        if newest is not None and newest.version > found.version:
            record = newest.subscription
            subscriber.encoding = self.encoding(record, subscriber.sink.caller)
            subscriber.sink.subscribers.discard(subscriber)
            subscriber.sink = reconflated(subscriber.sink, (record.every_s, record.key))
            subscriber.sink.subscribers.add(subscriber)
            subscriber.filter = self._hub.filter_of(record, subscriber.encoding)
        here = self._connected.setdefault(id_, set())
        here -= {each for each in here if each.state == "gone"}
        here.add(subscriber)
        return subscriber

    def connected(self, id_: str) -> list[Subscriber]:
        """Who consumes a subscription here at the moment."""
        here = [each for each in self._connected.get(id_, ()) if each.state != "gone"]
        if not here:
            self._connected.pop(id_, None)
        return here

    # Cursors -----------------------------------------------------------------------------

    def cursor(self, found: RegisteredSubscription) -> str | None:
        """How far a subscription has come, also where that is not stored yet."""
        return self.acks.newest(found.subscription.id) or found.cursor

    async def check(self, service: str, cursor: Cursor) -> None:
        """Raise a `CursorError` where a cursor is no place in a service's output."""
        if "@" in service and is_past(cursor):  # the service's own broker knows whether it is
            return
        await asyncio.get_running_loop().run_in_executor(None, partial(self._event_log.read, service, cursor, 1))

    async def acknowledge(self, id_: str, cursor: Cursor) -> tuple[str, bool]:
        """Move a subscription's cursor onward, and give where it is, stored, and whether it has moved."""
        lock = self._acking.setdefault(id_, asyncio.Lock())
        async with lock:
            found = await self.ask(lambda registry: registry.subscription(id_))
            await self.check(found.subscription.service, cursor)
            stored = self.cursor(found)
            before = None if stored is None else Cursor.from_text(stored)
            moved = onward(cursor, before)
            if before is not None and before.generation == moved.generation and reaches(before, moved):
                return before.text, False
            self.acks.note(id_, moved.text)
        await self.acks.stored()
        return moved.text, True

    async def measure(self, fresh_s: float = 0.0) -> None:
        """See how far everybody is behind the end of its stream, and keep it in `lags`.

        Nothing is done where they were measured so many seconds ago, or less.
        """
        now = asyncio.get_running_loop().time()
        if now - self._measured_at < fresh_s:
            return
        self._measured_at = now
        places = self._hub.places()
        try:
            found = await self.ask(lambda registry: registry.subscriptions())
            stored = {id_: (each.subscription.service, self.cursor(each)) for id_, each in found.items()}
            services = {service for service, _ in stored.values()} | places.keys()
            measure = partial(_lags, self._event_log, services, stored, places)
            measured = await asyncio.get_running_loop().run_in_executor(None, measure)
            is_off = {id_: each.state != "active" for id_, each in found.items()}
            failing = Counter(stored[id_][0] for id_, each in found.items() if each.attempts and not is_off[id_])
            disabled = Counter(stored[id_][0] for id_ in found if is_off[id_])
            self.lags = replace(measured, failing=failing, disabled=disabled)
        except Exception as problem:  # the registry or the log is away: all else is told
            _log.warning("can't see how far subscriptions are behind", problem=str(problem))

    # Dead letters --------------------------------------------------------------------------

    async def redeliver(self, record: Subscription, letters: Sequence[DeadLetter]) -> Redelivered:
        """Send dead letters once more, in order; what is taken is a dead letter no more."""
        encoding, done = self.encoding(record, None), Redelivered([], [], [])
        for n, letter in enumerate(letters):
            data = encoding.encode(record.service, letter.record, orjson.loads(letter.record))
            outcome = await self.sender.send(record, [Parcel(letter.cursor, data, letter.record, encoding)])
            if outcome.kind == "taken":
                await self.ask(partial(_unbury, record.id, letter.id))
                done.taken.append(letter.id)
                continue
            done.failed.append((letter.id, outcome.detail))
            if outcome.kind != "refused":
                done.untried.extend(each.id for each in letters[n + 1 :])
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
        with suppress(LogError):  # it has put out nothing yet
            ends[service] = log.end(service)
    connected = {
        service: max((distance(each, ends[service]) for each in some), default=0)
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
    registry.unbury(id_, [letter])
