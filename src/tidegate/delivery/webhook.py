"""Durable subscriptions whose events are sent: one courier each, from its cursor on, in order, until taken.

Knows nothing of HTTP: how a message is sent is an argument. A courier that
waits for a dead receiver holds up nobody but itself.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import orjson
import structlog

from tidegate.delivery.acks import Acknowledgements
from tidegate.delivery.batch import Events
from tidegate.delivery.conflation import conflated
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.hub import Hub
from tidegate.delivery.pacing import Pace, paced
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber
from tidegate.errors import FilterError, NotRegistered, SemanticsUnavailable, TidegateError
from tidegate.logs import Cursor
from tidegate.registry import RegisteredSubscription, Registry, State
from tidegate.subscriptions import Subscription, Webhook
from tidegate.timing import Backoff

_log = structlog.get_logger("tidegate.delivery")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CourierSettings:
    """How patient couriers are."""

    held: int = 1_000
    """Events that wait for one receiver; beyond that it reads from the log."""
    first_s: float = 2.0
    """Between the first failure and the second attempt; doubled by each that follows."""
    most_s: float = 3_600.0
    """Between two attempts: a receiver that is back is noticed within the hour."""
    attempts: int = 18
    """After so many failures in a row, about eight hours, a message is put aside as a dead letter."""
    lease_s: float = 15.0
    """How long the subscriptions of a gateway that died wait for another."""
    settle_s: float = 5.0
    """How often the cursor of a subscription moves that nothing matches."""

    def delay_s(self, failures: int, chance: random.Random, at_least_s: float = 0.0) -> float:
        """How long to wait after so many failures: half of it by chance, so that not all come back at once."""
        delay_s = Backoff(self.first_s, self.most_s).delay_s(failures, chance.random)
        return max(delay_s, min(at_least_s, self.most_s))


class Parcel(NamedTuple):
    """An event on its way."""

    cursor: str
    """The place right behind it."""
    data: bytes
    """As it is sent."""
    record: bytes
    """As it is in the log."""
    encoding: Encoding
    """How `data` was written."""

    def written(self, service: str, encoding: Encoding) -> Parcel:
        """As it is to be sent now, though it was written otherwise when it came."""
        if encoding == self.encoding:
            return self
        data = encoding.encode(service, self.record, orjson.loads(self.record))
        return self._replace(data=data, encoding=encoding)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a message."""

    kind: Literal["taken", "failed", "refused", "gone"]
    """It was taken; try again; this message is never taken; nothing is ever taken there any more."""
    detail: str = ""
    after_s: float = 0.0
    """The receiver asks to wait so long."""


class Obstacle(NamedTuple):
    """Why a subscription is not delivered, and the state that it gets."""

    state: State
    reason: str


Send = Callable[[Subscription, Sequence[Parcel]], Awaitable[Outcome]]
"""Sends events as one message. Does not raise: what goes wrong is an outcome."""


class QueueSink(Sink):
    """Holds events until they are taken."""

    kind = "webhook"

    def __init__(self, held: int) -> None:
        super().__init__()
        self._held = held
        self._parcels: deque[Parcel] = deque()
        self._some, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self.error: str | None = None
        """Why nothing more comes."""

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[Parcel]:
        """Each event with the cursor behind it."""
        return [
            Parcel(batch.cursor(n, to.floor), batch.encoded(n, to.encoding), bytes(batch.records[n]), to.encoding)
            for n, to in picks
        ]

    def write(self, rendered: Any) -> bool:
        """Hold events."""
        self._parcels += rendered
        self._some.set()
        if len(self._parcels) >= self._held:
            self._room.clear()
        return self._room.is_set()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left."""
        return not self._parcels

    async def room(self) -> None:
        """Return when half of the room is free."""
        await self._room.wait()

    def tell(self, subscriber: Subscriber, notice: Notice) -> None:
        """A receiver sees just events: that some were missed is told to whoever runs this."""
        if notice.kind == "gap":
            _log.warning("a webhook has missed events", subscription=subscriber.id, **notice.said)
        if notice.kind == "error":
            self.error = str(notice.said.get("detail"))
            self._some.set()

    async def take(self, most: int) -> list[Parcel]:
        """The next events, at least one; none: nothing more will come."""
        await self._some.wait()
        found = [self._parcels.popleft() for _ in range(min(most, len(self._parcels)))]
        if not self._parcels and self.error is None:
            self._some.clear()
        if len(self._parcels) <= self._held // 2:
            self._room.set()
        return found


class Courier:
    """Brings the events of one subscription to its receiver, one message at a time."""

    def __init__(self, found: RegisteredSubscription, hub: Hub, post: Post) -> None:
        """`found` is how it is in the registry, with nothing on its way there."""
        self.subscription = found.subscription
        self._hub, self._post = hub, post
        self._attempts, self._retry_at = found.attempts, found.retry_at
        self._changed = asyncio.Event()
        self._sink = QueueSink(post.settings.held)
        self._under_way = False
        position = None if found.cursor is None else Cursor.from_text(found.cursor)
        encoding = post.encoding(self.subscription)
        filter_ = hub.filter_of(self.subscription, encoding)
        self.subscriber = Subscriber(
            self.subscription.id,
            self.subscription.service,
            filter_,
            conflated(
                paced(self._sink, post.pace(self.subscription)), (self.subscription.every_s, self.subscription.key)
            ),
            encoding,
            position,
        )

    def change(self, subscription: Subscription) -> None:
        """Go on with a new record; where a receiver is waited for, try the new one at once."""
        self.subscription = subscription
        self._changed.set()

    def settle(self) -> None:
        """Move the cursor past what did not match, if all that did has been taken."""
        place = self.subscriber.position
        is_settled = not self._under_way and self.subscriber.sink.is_settled
        if place is not None and is_settled and self.subscriber.state != "gone":
            self._post.acks.note(self.subscription.id, place.text)

    async def run(self) -> None:
        """Deliver until cancelled, or until nothing is to be delivered any more."""
        try:
            self._under_way = True  # the cursor stays while the first attempt of before is waited for
            if self._retry_at is not None:
                await self._pause((self._retry_at - self._post.clock()).total_seconds())
            self._hub.subscribe(self.subscriber)
            while True:
                self._under_way = False
                parcels = await self._sink.take(self._batch)
                self._under_way = True
                if not parcels:
                    await self._stop(self._sink.error or "nothing more comes")
                    return
                if not await self._bring(parcels):
                    return
        finally:
            self._hub.unsubscribe(self.subscriber)
            self.subscriber.sink.close()

    @property
    def _batch(self) -> int:
        deliver = self.subscription.deliver
        return deliver.batch if isinstance(deliver, Webhook) else 1

    async def _bring(self, parcels: Sequence[Parcel]) -> bool:
        """Send until taken, or put aside; false: deliver no more."""
        while True:
            self._changed.clear()  # what changes from here on, also while it is sent, is tried at once
            service, encoding = self.subscription.service, self.subscriber.encoding
            parcels = [each.written(service, encoding) for each in parcels]
            outcome = await self._post.send(self.subscription, parcels)
            self._post.sent(self.subscription, outcome, len(parcels))
            match outcome.kind:
                case "taken":
                    await self._done(parcels)
                    return True
                case "gone":
                    await self._stop(outcome.detail)
                    return False
                case "refused" if len(parcels) > 1:  # one of them may be the cause: the others are not to suffer
                    for each in parcels:
                        if not await self._bring([each]):
                            return False
                    return True
                case "refused":
                    await self._bury(parcels, outcome.detail, self._attempts + 1)
                    return True
                case "failed":
                    self._attempts += 1
                    if self._attempts >= self._post.settings.attempts:
                        await self._bury(parcels, outcome.detail, self._attempts)
                        return True
                    await self._wait(outcome)

    async def _done(self, parcels: Sequence[Parcel]) -> None:
        self._post.acks.note(self.subscription.id, parcels[-1].cursor)
        if self._attempts:
            self._attempts = 0
            await self._post.acks.flush()
            await self._post.ask(lambda registry: registry.note_attempt(self.subscription.id, 0, None))

    async def _wait(self, outcome: Outcome) -> None:
        """Note the failure where a restart finds it, then wait."""
        delay_s = self._post.settings.delay_s(self._attempts, self._post.chance, outcome.after_s)
        at = self._post.clock() + timedelta(seconds=delay_s)
        id_, attempts = self.subscription.id, self._attempts
        _log.warning(
            "a webhook has failed", subscription=id_, attempts=attempts, problem=outcome.detail, retry_s=delay_s
        )
        await self._post.acks.flush()
        await self._post.ask(lambda registry: registry.note_attempt(id_, attempts, at))
        await self._pause(delay_s)

    async def _pause(self, delay_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(0.0, delay_s))

    async def _bury(self, parcels: Sequence[Parcel], error: str, attempts: int) -> None:
        id_ = self.subscription.id
        for each in parcels:
            bury = partial(_bury, id_, each, error, attempts)
            await self._post.ask(bury)
        _log.error("a message was put aside", subscription=id_, events=len(parcels), problem=error)
        self._attempts = self._attempts or 1  # so that the note is taken back
        await self._done(parcels)

    async def _stop(self, reason: str) -> None:
        await self._post.acks.flush()
        await self._post.ask(partial(_disable, self.subscription.id, reason))


def _bury(id_: str, parcel: Parcel, error: str, attempts: int, registry: Registry) -> None:
    registry.bury(id_, parcel.cursor, parcel.record, error, attempts)


def _disable(id_: str, reason: str, registry: Registry, state: State = "disabled") -> None:
    if registry.subscription(id_).state == "active":  # else whoever disabled it knows the reason better
        registry.disable(id_, reason, state)


def encoding_of(subscription: Subscription) -> Encoding:
    """How a subscription's events are written."""
    return Encoding(subscription.format, subscription.select)


@dataclass(frozen=True)
class Post:
    """What all couriers share."""

    registry: Registry
    acks: Acknowledgements
    send: Send
    settings: CourierSettings
    clock: Callable[[], datetime] = partial(datetime.now, UTC)
    chance: random.Random = field(default_factory=random.Random)
    encoding: Callable[[Subscription], Encoding] = encoding_of
    """How a subscription's events are written for whoever made it."""
    pace: Callable[[Subscription], Pace | None] = lambda _: None
    """What a subscription's events keep to; None: nothing."""
    sent: Callable[[Subscription, Outcome, int], None] = lambda _, __, ___: None
    """Told what became of a message of so many events."""
    obstacle: Callable[[Subscription], Obstacle | None] = lambda _: None
    """Why a subscription must not be delivered; None: it may."""

    async def ask(self, call: Callable[[Registry], T]) -> T:
        """Ask the registry, which blocks, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(None, call, self.registry)


class Couriers:
    """The couriers of all subscriptions that this process has a lease on."""

    def __init__(self, hub: Hub, post: Post, holder: str, seconds: Callable[[], float] | None = None) -> None:
        """`holder` is this process, to others who would deliver the same; `seconds` a clock, the loop's unless told."""
        self._hub, self._post, self._holder = hub, post, holder
        self._wanted: dict[str, RegisteredSubscription] = {}
        self._running: dict[str, tuple[Courier, asyncio.Task[None]]] = {}
        self._held: dict[str, float] = {}
        """Until when, by our clock, each lease lasts at least."""
        self._asking: asyncio.Future[list[str]] | None = None
        """Leases that are being taken: they are, also where nobody waits for it any more."""
        self._asked_at = self._settled_at = float("-inf")
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds or self._loop.time

    def subscriber(self, subscription: str) -> Subscriber | None:
        """Who gets the events of a subscription here."""
        found = self._running.get(subscription)
        return None if found is None else found[0].subscriber

    async def want(self, found: RegisteredSubscription) -> None:
        """Deliver a subscription as it is now, or no more."""
        id_ = found.subscription.id
        if found.state == "active" and isinstance(found.subscription.deliver, Webhook):
            if id_ not in self._wanted:
                self._asked_at = float("-inf")
            self._wanted[id_] = found
            if id_ in self._running:
                self._running[id_][0].change(found.subscription)
        else:
            await self.drop(id_)

    async def drop(self, subscription: str) -> None:
        """Deliver a subscription no more."""
        self._wanted.pop(subscription, None)
        await self._end(subscription)
        if self._held.pop(subscription, None) is not None:
            await self._post.ask(partial(_release, [subscription], self._holder))

    async def look(self) -> None:
        """Take and renew leases, start what is to run, move the cursors of the quiet."""
        now, lease_s = self._seconds(), self._post.settings.lease_s
        if now >= self._asked_at + lease_s / 3:
            self._asked_at = now
            try:
                asked = self._post.ask(partial(_lease, list(self._wanted), self._holder, lease_s))
                self._asking = asyncio.ensure_future(asked)
                self._held = dict.fromkeys(await asyncio.shield(self._asking), now + lease_s)
            except Exception as problem:
                _log.warning("can't renew leases", problem=str(problem))
        # A little before it ends a lease is ours no more: what was under way must not move a cursor that is another's.
        ends = self._seconds() + lease_s / 10
        self._held = {id_: until for id_, until in self._held.items() if until >= ends}
        for id_ in self._running.keys() - self._held.keys():
            await self._end(id_)
        for id_ in self._held:
            if id_ in self._wanted and (id_ not in self._running or self._running[id_][1].done()):
                await self._begin(id_)
        if now >= self._settled_at + self._post.settings.settle_s:
            self._settled_at = now
            for courier, _ in self._running.values():
                courier.settle()

    async def close(self) -> None:
        """Let all couriers end, and others take over."""
        for id_ in list(self._running):
            await self._end(id_)
        await self._post.acks.flush()
        held, self._held = set(self._held), {}
        if self._asking is not None:
            with suppress(Exception):  # then they are not held
                held |= set(await self._asking)
        if held:
            await self._post.ask(partial(_release, sorted(held), self._holder))

    async def _begin(self, id_: str) -> None:
        await self._end(id_)
        await self._post.acks.flush()
        try:
            # Its cursor and attempts are the registry's, whoever delivered it before.
            found = await self._post.ask(partial(_found, id_))
            if found.state != "active":
                return
            obstacle = self._post.obstacle(found.subscription)
            if obstacle is not None:
                await self._post.ask(partial(_disable, id_, obstacle.reason, state=obstacle.state))
                return
            courier = Courier(found, self._hub, self._post)
        except NotRegistered:
            return  # its service is not served yet, or it is gone: the next look tells
        except Exception as problem:
            # What has no space here may have one when this is started again, or at another gateway.
            if isinstance(problem, FilterError) and not isinstance(problem, SemanticsUnavailable):
                await self._post.ask(partial(_disable, id_, str(problem)))
                return
            _log.warning("a courier can't begin, and tries again", subscription=id_, problem=str(problem))
            return
        self._running[id_] = courier, self._loop.create_task(self._run(courier))

    async def _run(self, courier: Courier) -> None:
        try:
            await courier.run()
        except NotRegistered:
            pass  # it was removed meanwhile
        except TidegateError as problem:
            _log.warning("a courier begins anew", subscription=courier.subscription.id, problem=str(problem))
        except Exception:
            _log.exception("a courier has failed, and begins anew", subscription=courier.subscription.id)

    async def _end(self, id_: str) -> None:
        found = self._running.pop(id_, None)
        if found is not None:
            found[1].cancel()
            await asyncio.wait([found[1]])


def _lease(wanted: Sequence[str], holder: str, seconds: float, registry: Registry) -> list[str]:
    """Take or renew what no other has."""
    others = {name for name, lease in registry.leases().items() if lease.holder != holder} if wanted else set()
    return [id_ for id_ in wanted if _name(id_) not in others and registry.lease(_name(id_), holder, seconds)]


def _release(ids: Sequence[str], holder: str, registry: Registry) -> None:
    for id_ in ids:
        registry.release(_name(id_), holder)


def _found(id_: str, registry: Registry) -> RegisteredSubscription:
    return registry.subscription(id_)


def _name(id_: str) -> str:
    return f"webhook/{id_}"
