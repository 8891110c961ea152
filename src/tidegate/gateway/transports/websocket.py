"""WebSocket: many subscriptions on one socket, which a client opens, changes and ends as it likes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

import orjson
from starlette.types import Receive

from tidegate.delivery.acks import onward
from tidegate.delivery.batch import Events
from tidegate.delivery.conflation import conflated
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.hub import Hub
from tidegate.delivery.latest import Latest
from tidegate.delivery.subscriber import LaneMembership, Notice, Pick, Sink, Subscriber, SubscriberState
from tidegate.errors import TidegateError
from tidegate.filters import Filter
from tidegate.gateway.auth.view import View
from tidegate.gateway.http import parameters, problems
from tidegate.gateway.http.compiling import compiled_of, filter_of
from tidegate.gateway.http.executors import Executors
from tidegate.gateway.http.problems import Problem
from tidegate.gateway.subscriptions import consuming
from tidegate.gateway.subscriptions.durable import Durable
from tidegate.gateway.telemetry.metrics import Metrics, Tally
from tidegate.gateway.transports import messages
from tidegate.gateway.transports.messages import Ack, Change, Credit, Message, Ping, Subscribe, Unsubscribe
from tidegate.gateway.transports.protocol import FrameSocket
from tidegate.gateway.transports.timers import Idle
from tidegate.logs import Cursor
from tidegate.registry import RegisteredSubscription
from tidegate.subscriptions.rules import MAX_INTERVAL_S, MIN_INTERVAL_S

SUBPROTOCOL = "tidegate.v1"
MOST_SUBSCRIPTIONS = 10_000
"""On one socket: when it is full, all of them have to catch up together."""

_numbers = itertools.count()


def frame(payload: bytes) -> bytes:
    """A text message of a server: one frame, not masked.

    >>> frame(b"{}")
    b'\\x81\\x02{}'
    """
    return _head(len(payload)) + payload


def _head(size: int) -> bytes:
    if size < 126:
        return bytes((0x81, size))
    if size < 65_536:
        return b"\x81\x7e" + size.to_bytes(2)
    return b"\x81\x7f" + size.to_bytes(8)


class SocketSubscriber(Subscriber):
    """One of a socket's subscriptions."""

    __slots__ = ("durable", "heard", "idle", "label", "name", "tally")

    def __init__(
        self,
        name: str,
        service: str,
        filter_: Filter | None,
        sink: Sink,
        encoding: Encoding,
        position: Cursor | None,
    ) -> None:
        super().__init__(f"ws-{next(_numbers)}", service, filter_, sink, encoding, position)
        self.name = name
        """What the client calls it."""
        self.label = orjson.dumps(name)
        self.durable: str | None = None
        """The durable subscription that it consumes."""
        self.idle: Idle | None = None
        self.heard = 0
        """Events that were written for it, counted where it is told of idleness."""
        self.tally: Tally | None = None
        """Where events of the durable subscription are counted."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """Frames, and what they were made of: who is gone, and credit that is used up, show when they are written."""

    batch: Events
    picks: Sequence[Pick]
    frames: bytes
    events: int
    cut: int | None
    """The first event that is not among the frames."""


@dataclass(frozen=True, slots=True)
class Held:
    """The frame of one event that waits, conflated, for its time: its batch is not kept for it."""

    member: LaneMembership
    frame: bytes


class SocketSink(Sink):
    """Writes events as frames, one for all subscriptions that get the same."""

    kind = "websocket"

    def __init__(self, socket: FrameSocket, ended: Callable[[Subscriber], None], tally: Callable[[str], Tally]) -> None:
        """`ended` is told of a subscriber that can't go on; `tally` is where events of a service are counted."""
        super().__init__()
        self._socket, self._ended, self._tally = socket, ended, tally
        self._credit: int | None = None
        """Events that may still be written; None: any number."""
        self._has_credit = asyncio.Event()
        self._has_credit.set()
        self.hears = False
        """Whether any subscription is told when nothing comes, or is durable: what is written for each is counted."""

    def render(self, batch: Events, picks: Sequence[Pick]) -> Rendered | Held:
        """All frames at once, as far as there is credit."""
        event, member = picks[0]
        if member.sink is not self:
            cursor = batch.cursor(event, member.skip_below)
            return Held(member, frame(_event(batch, event, _label(member), cursor, member.encoding)))
        return self._rendered(batch, picks)

    def _rendered(self, batch: Events, picks: Sequence[Pick]) -> Rendered:
        parts: list[bytes] = []
        credit, events, cut = self._credit, 0, None
        first, count = 0, len(picks)
        while first < count:
            event = picks[first][0]
            if credit is not None and events >= credit:
                cut = event
                break
            behind = first + 1
            while behind < count and picks[behind][0] == event:
                behind += 1
            for labels, cursor, encoding in _groups(batch, picks, first, behind):
                body = _event(batch, event, labels, cursor, encoding)
                parts += (_head(len(body)), body)
            events += 1
            first = behind
        return Rendered(batch, picks, b"".join(parts), events, cut)

    def write(self, rendered: Any) -> bool:
        """Write frames, but for those who are gone meanwhile, nor beyond the credit."""
        if isinstance(rendered, Held):
            return self._write_held(rendered)
        credit = self._credit
        lost = any(not member.is_current for _, member in rendered.picks)
        if lost or (credit is not None and rendered.events > credit):
            rendered = self._rendered(rendered.batch, [pick for pick in rendered.picks if pick[1].is_current])
        self.first_unsent = rendered.cut
        self._spend(rendered.events)
        self._tally(rendered.batch.service).add(rendered.events)
        if self.hears:
            for event, member in rendered.picks:
                if self.first_unsent is None or event < self.first_unsent:
                    _hear(member)
        room = self._socket.write(rendered.frames) if rendered.frames else True
        return room and self.first_unsent is None and self._has_credit.is_set()

    def _write_held(self, held: Held) -> bool:
        """Write one event that waited; with no credit it waits on."""
        self.first_unsent = None
        if held.member.subscriber.state is SubscriberState.GONE:
            return True
        if self._credit is not None and self._credit <= 0:
            self.first_unsent = 0
            return False
        self._spend(1)
        self._tally(held.member.subscriber.service).add(1)
        _hear(held.member)
        return self._socket.write(held.frame) and self._has_credit.is_set()

    def _spend(self, events: int) -> None:
        if self._credit is not None:
            self._credit -= events
            if self._credit <= 0:
                self._has_credit.clear()

    async def drain(self) -> None:
        """Return when the socket's buffer is nearly empty, and there is credit."""
        while self._socket.is_open:
            await self._has_credit.wait()
            await self._socket.room()
            if self._has_credit.is_set():
                return

    def send_notice(self, subscriber: Subscriber, notice: Notice) -> None:
        """Write a notice as a message of its own."""
        assert isinstance(subscriber, SocketSubscriber)
        about: dict[str, Any] = {"id": subscriber.name}
        match notice.kind:
            case "began":
                self.say("subscribed", **about, cursor=notice.cursor or None)
            case "error":
                self._ended(subscriber)
                self.say("error", **about, problem=_ended(notice).document)
            case _:
                self.say(notice.kind, **about, cursor=notice.cursor or None, **notice.details)

    def say(self, op: str, **members: Any) -> None:
        """Write one message."""
        self._socket.write(frame(orjson.dumps({"op": op, **members})))

    def grant(self, events: int) -> None:
        """Let so many more events be written."""
        self._credit = (self._credit or 0) + events
        if self._credit > 0:
            self._has_credit.set()
        else:
            self._has_credit.clear()

    def close(self) -> None:
        """Let go of whoever waits for room."""
        self._has_credit.set()


def _groups(batch: Events, picks: Sequence[Pick], first: int, behind: int) -> list[tuple[bytes, str, Encoding]]:
    """Labels, cursor and encoding of each frame of one event."""
    event, member = picks[first]
    if behind == first + 1:
        return [(_label(member), batch.cursor(event, member.skip_below), member.encoding)]
    found: dict[tuple[str, Encoding], list[bytes]] = {}
    for _, each in picks[first:behind]:
        found.setdefault((batch.cursor(event, each.skip_below), each.encoding), []).append(_label(each))
    return [(b",".join(labels), cursor, encoding) for (cursor, encoding), labels in found.items()]


def _event(batch: Events, event: int, labels: bytes, cursor: str, encoding: Encoding) -> bytes:
    data = batch.encoded(event, encoding)
    return b'{"op":"event","subscriptions":[%s],"cursor":"%s","event":%s}' % (labels, cursor.encode(), data)


def _hear(member: LaneMembership) -> None:
    subscriber: SocketSubscriber = member.subscriber  # type: ignore[assignment]  # all of a socket's are
    subscriber.heard += 1
    if subscriber.tally is not None:
        subscriber.tally.count += 1


def _label(member: LaneMembership) -> bytes:
    found: bytes = member.subscriber.label  # type: ignore[attr-defined]  # all of a socket's are SocketSubscribers
    return found


def _ended(notice: Notice) -> Problem:
    return Problem(410, "subscription-ended", "The subscription can't go on", str(notice.details["detail"]))


Find = Callable[[str], Awaitable[RegisteredSubscription]]
"""Gives the durable subscription with an id, if whoever asks may have it."""


class Session:
    """Obeys one client."""

    def __init__(
        self,
        hub: Hub,
        socket: FrameSocket,
        view: View,
        durable: Durable,
        find: Find,
        metrics: Metrics,
        executors: Executors,
    ) -> None:
        """`view` is what the client sees; `find` gives a durable subscription that it may consume."""
        self._executors = executors
        self._hub, self._socket, self._view, self._durable, self._find = hub, socket, view, durable, find
        self._metrics = metrics
        self._sink = SocketSink(socket, self._forget, partial(metrics.delivered, way="websocket"))
        self._sink.caller = view.caller
        self._subscriptions: dict[str, SocketSubscriber] = {}
        self._acks: dict[SocketSubscriber, Cursor] = {}
        """What is to be acknowledged when what is under way is stored."""
        self._storing: dict[SocketSubscriber, asyncio.Task[None]] = {}

    async def serve(self, receive: Receive) -> None:
        """Obey until the client is gone."""
        while (received := await receive())["type"] != "websocket.disconnect":
            text = received.get("text")
            await self._take(text if text is not None else received["bytes"])
            await self._socket.room()  # who does not read answers is not asked for more

    def close(self) -> None:
        """End all subscriptions."""
        for each in list(self._subscriptions.values()):
            self._end(each)
        self._sink.close()

    def has(self, sink: Sink) -> bool:
        """Whether a sink is this client's."""
        return sink.final is self._sink

    @property
    def is_idle(self) -> bool:
        """Whether there is no subscription."""
        return not self._subscriptions

    async def _take(self, data: str | bytes) -> None:
        about = None
        try:
            said = messages.decode(data)
            about = said.get("id")
            await self._obey(messages.understand(said))
        except Problem as problem:
            self.complain(problem, about)
        except TidegateError as error:
            self.complain(problems.of(error), about)

    def complain(self, problem: Problem, about: Any = None) -> None:
        """Say what is wrong."""
        named = {"id": about} if isinstance(about, str) and len(about) <= messages.LONGEST_ID else {}
        self._sink.say("error", **named, problem=problem.document)

    async def _obey(self, message: Message) -> None:
        match message:
            case Subscribe():
                await self.subscribe(message)
            case Unsubscribe():
                self._end(self._known(message.id))
                self._sink.say("unsubscribed", id=message.id)
            case Change():
                found = self._known(message.id)
                filter_ = await self._changed(found, message)
                await self._hub.change(self._known(message.id), filter_)  # it may have ended meanwhile
            case Ack():
                self._acknowledge(self._known(message.id), Cursor.from_text(message.cursor))
            case Credit():
                self._sink.grant(message.events)
            case Ping():
                self._sink.say("pong")
            case _:
                assert_never(message)

    async def subscribe(self, message: Subscribe) -> None:
        """Open a subscription; it is confirmed when nothing that comes from then on is missed."""
        if message.id in self._subscriptions:
            raise messages.bad_message(f"id: expected a new one, {message.id!r} is open", member="id")
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            detail = f"expected at most {MOST_SUBSCRIPTIONS} subscriptions on one socket"
            raise Problem(429, "too-many", "There are too many subscriptions", detail)
        made = await (self._ad_hoc(message) if message.subscription is None else self._of_durable(message))
        self._hub.subscribe(made, now=made.starts_now)

    async def _ad_hoc(self, message: Subscribe) -> SocketSubscriber:
        assert message.service is not None
        schema = self._view.schema(message.service)
        filter_ = await filter_of(self._executors, self._view, message.filter, message.params, message.service)
        encoding = parameters.encoding(message.format, ",".join(message.select or ()), schema)
        encoding = self._view.encoding(encoding, message.service)
        key = self._view.key(message.service)
        latest = parameters.latest(message.latest, schema, key)
        start = parameters.start(message.cursor, message.begin, latest)
        every_s = parameters.seconds("every", message.every, MAX_INTERVAL_S, MIN_INTERVAL_S)
        idle_s = parameters.seconds("idle", message.idle, MAX_INTERVAL_S, MIN_INTERVAL_S)
        conflation = parameters.conflation(every_s, message.key, schema, key)
        place = None if start.is_now else await self._hub.begin(message.service, start, filter_)
        self._view.meter.take("subscriptions", self._view.caller)
        sink = conflated(self._view.paced(self._sink), conflation)
        made = SocketSubscriber(message.id, message.service, filter_, sink, encoding, place)
        made.starts_now = start.is_now
        self._begin(made, latest, idle_s)
        return made

    async def _of_durable(self, message: Subscribe) -> SocketSubscriber:
        assert message.subscription is not None
        found = await self._find(message.subscription)
        record = found.subscription
        consuming.need_pull(found)
        schema = self._view.schema(record.service)
        latest = parameters.latest(message.latest, schema, self._view.key(record.service))
        meaning = self._view.meaning(record.service)
        filter_ = await compiled_of(self._executors, self._view.caller, record, schema, meaning)
        place = await consuming.begin(self._durable, found, None, message.cursor)
        encoding = self._durable.encoding(record, self._view.caller)
        self._view.meter.take("subscriptions", self._view.caller)
        sink = conflated(self._view.paced(self._sink), parameters.conflation(record.every_s, record.key, schema))
        made = SocketSubscriber(message.id, record.service, filter_, sink, encoding, place)
        made.durable, made.tally = record.id, self._metrics.of_subscription(record.id)
        self._sink.hears = True
        try:
            self._durable.connect(found, made)
        except TidegateError:  # it was changed meanwhile, to what its service can't give
            made.sink.subscribers.discard(made)
            self._view.meter.give_back("subscriptions", self._view.caller)
            raise
        self._begin(made, latest, record.idle_s)
        return made

    def _begin(self, made: SocketSubscriber, latest: str | None, idle_s: float | None) -> None:
        """Confirm a subscription, but for one that begins now: the hub says where."""
        self._subscriptions[made.name] = made
        if idle_s:
            self._sink.hears = True
            made.idle = Idle(idle_s, lambda: made.heard, partial(self._tell_idle, made.name))
        if made.starts_now:
            return
        made.latest = Latest(latest) if latest else None
        about = {} if made.durable is None else {"subscription": made.durable, "filter": str(made.filter or "")}
        cursor = made.cursor.text if made.cursor is not None else None
        self._sink.say("subscribed", id=made.name, **about, cursor=cursor)

    def _tell_idle(self, name: str, seconds: float) -> None:
        self._sink.say("idle", id=name, seconds=seconds)

    def _end(self, subscriber: SocketSubscriber) -> None:
        self._hub.unsubscribe(subscriber)
        self._forget(subscriber)

    def _let_go(self, subscriber: SocketSubscriber) -> None:
        if subscriber.idle is not None:
            subscriber.idle.stop()
        if subscriber.sink is not self._sink:
            subscriber.sink.close()

    # Acknowledging ---------------------------------------------------------------------

    def _acknowledge(self, subscriber: SocketSubscriber, cursor: Cursor) -> None:
        """Store a cursor; those that come meanwhile are stored together behind it, so that nothing else waits."""
        if subscriber.durable is None:  # it ends with its socket: there is nothing to remember
            self._sink.say("acked", id=subscriber.name, cursor=cursor.text)
            return
        waiting = self._acks.get(subscriber)
        self._acks[subscriber] = onward(cursor, waiting)
        if subscriber not in self._storing:
            self._storing[subscriber] = asyncio.get_running_loop().create_task(self._store(subscriber))

    async def _store(self, subscriber: SocketSubscriber) -> None:
        try:
            while (cursor := self._acks.pop(subscriber, None)) is not None:
                try:
                    at, _ = await self._durable.acknowledge(subscriber.durable or "", cursor)
                    self._sink.say("acked", id=subscriber.name, cursor=at)
                except TidegateError as error:
                    self.complain(problems.of(error), subscriber.name)
        finally:
            del self._storing[subscriber]

    def _known(self, id_: str) -> SocketSubscriber:
        found = self._subscriptions.get(id_)
        if found is None:
            detail = f"no subscription {id_!r} on this socket"
            raise Problem(404, "not-found", "There is no such thing", detail)
        return found

    async def _changed(self, subscriber: SocketSubscriber, message: Change) -> Filter | None:
        if subscriber.durable is not None:
            raise consuming.conflict(
                f"change it by PATCH /v1/subscriptions/{subscriber.durable}: all who consume it see it"
            )
        if message.filter is not None:
            return await filter_of(self._executors, self._view, message.filter, message.params, subscriber.service)
        if message.params is None:
            raise messages.bad_message("change: expected filter, params or both", member="filter")
        if subscriber.filter is None:
            raise messages.bad_message("params: expected a filter with them, as there is none", member="params")
        return subscriber.filter.with_params(message.params)

    def _forget(self, subscriber: Subscriber) -> None:
        """A subscription has ended."""
        assert isinstance(subscriber, SocketSubscriber)
        if self._subscriptions.get(subscriber.name) is subscriber:
            del self._subscriptions[subscriber.name]
            self._view.meter.give_back("subscriptions", self._view.caller)
        self._let_go(subscriber)
