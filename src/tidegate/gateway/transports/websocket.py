"""WebSocket transport: one client has many subscriptions on one socket, and opens, changes and ends them."""

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
from tidegate.delivery.subscriber import DeliveryNotice, LaneMembership, Pick, Sink, Subscriber, SubscriberState
from tidegate.errors import TidegateError
from tidegate.filters import Filter
from tidegate.gateway.auth.view import View
from tidegate.gateway.http import parameters, problems
from tidegate.gateway.http.compiling import compiled_of, filter_of
from tidegate.gateway.http.executors import Executors
from tidegate.gateway.http.problems import HttpProblem
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
MAX_SUBSCRIPTIONS = 10_000
"""Subscriptions on one socket: when its buffer is full, all of them have to catch up together."""

_numbers = itertools.count()


def frame(payload: bytes) -> bytes:
    """Return a text message of a server as one unmasked frame.

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
    """One subscription on a WebSocket."""

    __slots__ = ("durable", "event_count", "idle", "label", "name", "tally")

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
        """The id that the client has chosen."""
        self.label = orjson.dumps(name)
        self.durable: str | None = None
        """The id of the durable subscription that it consumes, if any."""
        self.idle: Idle | None = None
        self.event_count = 0
        """Events that were written for it; counted only if `SocketSink.counts_events`."""
        self.tally: Tally | None = None
        """The delivery counter of the durable subscription."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """Frames and their events. `write` renders them again if a subscriber has left or credit is used up."""

    batch: Events
    picks: Sequence[Pick]
    frames: bytes
    events: int
    cut: int | None
    """The index of the first event that is not in the frames; None if all are."""


@dataclass(frozen=True, slots=True)
class DelayedFrame:
    """The frame of one event that conflation delays. Does not keep its batch in memory."""

    member: LaneMembership
    frame: bytes


class SocketSink(Sink):
    """Writes events as frames. Subscriptions that get the same event share a frame."""

    kind = "websocket"

    def __init__(self, socket: FrameSocket, ended: Callable[[Subscriber], None], tally: Callable[[str], Tally]) -> None:
        """`ended` is called with a subscriber that has ended; `tally` returns the delivery counter of a service."""
        super().__init__()
        self._socket, self._ended, self._tally = socket, ended, tally
        self._credit: int | None = None
        """Events that the client still accepts; None: any number."""
        self._has_credit = asyncio.Event()
        self._has_credit.set()
        self.counts_events = False
        """True if a subscription is durable or has an idle notice, so that events are counted per subscription."""

    def render(self, batch: Events, picks: Sequence[Pick]) -> Rendered | DelayedFrame:
        """Render the frames of all picks, up to the credit. Runs in the worker thread."""
        event, member = picks[0]
        if member.sink is not self:
            cursor = batch.cursor(event, member.skip_below)
            return DelayedFrame(member, frame(_event(batch, event, _label(member), cursor, member.encoding)))
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
            end = first + 1
            while end < count and picks[end][0] == event:
                end += 1
            for labels, cursor, encoding in _groups(batch, picks, first, end):
                body = _event(batch, event, labels, cursor, encoding)
                parts += (_head(len(body)), body)
            events += 1
            first = end
        return Rendered(batch, picks, b"".join(parts), events, cut)

    def write(self, rendered: Any) -> bool:
        """Write frames, without those of subscribers that have left, and up to the credit."""
        if isinstance(rendered, DelayedFrame):
            return self._write_delayed(rendered)
        credit = self._credit
        has_left = any(not member.is_current for _, member in rendered.picks)
        if has_left or (credit is not None and rendered.events > credit):
            rendered = self._rendered(rendered.batch, [pick for pick in rendered.picks if pick[1].is_current])
        self.first_unsent = rendered.cut
        self._spend(rendered.events)
        self._tally(rendered.batch.service).add(rendered.events)
        if self.counts_events:
            for event, member in rendered.picks:
                if self.first_unsent is None or event < self.first_unsent:
                    _count(member)
        room = self._socket.write(rendered.frames) if rendered.frames else True
        return room and self.first_unsent is None and self._has_credit.is_set()

    def _write_delayed(self, delayed: DelayedFrame) -> bool:
        """Write one delayed event; without credit it stays delayed."""
        self.first_unsent = None
        if delayed.member.subscriber.state is SubscriberState.GONE:
            return True
        if self._credit is not None and self._credit <= 0:
            self.first_unsent = 0
            return False
        self._spend(1)
        self._tally(delayed.member.subscriber.service).add(1)
        _count(delayed.member)
        return self._socket.write(delayed.frame) and self._has_credit.is_set()

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

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:
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
        """Write one control message."""
        self._socket.write(frame(orjson.dumps({"op": op, **members})))

    def grant(self, events: int) -> None:
        """Add credit for this number of events."""
        self._credit = (self._credit or 0) + events
        if self._credit > 0:
            self._has_credit.set()
        else:
            self._has_credit.clear()

    def close(self) -> None:
        """Wake a task that waits in `room`."""
        self._has_credit.set()


def _groups(batch: Events, picks: Sequence[Pick], first: int, end: int) -> list[tuple[bytes, str, Encoding]]:
    """Return the labels, cursor and encoding of each frame of one event."""
    event, member = picks[first]
    if end == first + 1:
        return [(_label(member), batch.cursor(event, member.skip_below), member.encoding)]
    groups: dict[tuple[str, Encoding], list[bytes]] = {}
    for _, pick in picks[first:end]:
        groups.setdefault((batch.cursor(event, pick.skip_below), pick.encoding), []).append(_label(pick))
    return [(b",".join(labels), cursor, encoding) for (cursor, encoding), labels in groups.items()]


def _event(batch: Events, event: int, labels: bytes, cursor: str, encoding: Encoding) -> bytes:
    data = batch.encoded(event, encoding)
    return b'{"op":"event","subscriptions":[%s],"cursor":"%s","event":%s}' % (labels, cursor.encode(), data)


def _count(member: LaneMembership) -> None:
    subscriber: SocketSubscriber = member.subscriber  # type: ignore[assignment]  # always, on a SocketSink
    subscriber.event_count += 1
    if subscriber.tally is not None:
        subscriber.tally.count += 1


def _label(member: LaneMembership) -> bytes:
    label: bytes = member.subscriber.label  # type: ignore[attr-defined]  # a SocketSubscriber
    return label


def _ended(notice: DeliveryNotice) -> HttpProblem:
    return HttpProblem(410, "subscription-ended", "The subscription can't go on", str(notice.details["detail"]))


Find = Callable[[str], Awaitable[RegisteredSubscription]]
"""Returns the durable subscription with an id. Raises `NotRegistered` if the caller may not use it."""


class WebSocketSession:
    """Handles the messages of one client. Runs on the event loop."""

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
        """`view` is what the client sees; `find` returns a durable subscription that it may consume."""
        self._executors = executors
        self._hub, self._socket, self._view, self._durable, self._find = hub, socket, view, durable, find
        self._metrics = metrics
        self._sink = SocketSink(socket, self._forget, partial(metrics.delivered, way="websocket"))
        self._sink.caller = view.caller
        self._subscriptions: dict[str, SocketSubscriber] = {}
        self._acks: dict[SocketSubscriber, Cursor] = {}
        """Acknowledged cursors that wait until the current write to the registry is done."""
        self._storing: dict[SocketSubscriber, asyncio.Task[None]] = {}

    async def serve(self, receive: Receive) -> None:
        """Handle messages until the client disconnects."""
        while (received := await receive())["type"] != "websocket.disconnect":
            text = received.get("text")
            await self._handle(text if text is not None else received["bytes"])
            await self._socket.room()  # a client that does not read its answers gets no further message handled

    def close(self) -> None:
        """End all subscriptions."""
        for subscription in list(self._subscriptions.values()):
            self._end(subscription)
        self._sink.close()

    def has(self, sink: Sink) -> bool:
        """True if a sink writes to this socket."""
        return sink.final is self._sink

    @property
    def is_idle(self) -> bool:
        """True if there is no subscription."""
        return not self._subscriptions

    async def _handle(self, data: str | bytes) -> None:
        about = None
        try:
            document = messages.decode(data)
            about = document.get("id")
            await self._execute(messages.parse(document))
        except HttpProblem as problem:
            self.complain(problem, about)
        except TidegateError as error:
            self.complain(problems.of(error), about)

    def complain(self, problem: HttpProblem, about: Any = None) -> None:
        """Send an error message. `about` is the id of the subscription, if known."""
        named = {"id": about} if isinstance(about, str) and len(about) <= messages.MAX_ID_LENGTH else {}
        self._sink.say("error", **named, problem=problem.document)

    async def _execute(self, message: Message) -> None:
        match message:
            case Subscribe():
                await self.subscribe(message)
            case Unsubscribe():
                self._end(self._known(message.id))
                self._sink.say("unsubscribed", id=message.id)
            case Change():
                filter_ = await self._changed(self._known(message.id), message)
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
        """Open a subscription, and confirm it. The client gets every matching event from the confirmed cursor on."""
        if message.id in self._subscriptions:
            raise messages.bad_message(f"id: expected a new one, {message.id!r} is open", member="id")
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            detail = f"expected at most {MAX_SUBSCRIPTIONS} subscriptions on one socket"
            raise HttpProblem(429, "too-many", "There are too many subscriptions", detail)
        subscriber = await (self._ad_hoc(message) if message.subscription is None else self._of_durable(message))
        self._hub.subscribe(subscriber, now=subscriber.starts_now)

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
        subscriber = SocketSubscriber(message.id, message.service, filter_, sink, encoding, place)
        subscriber.starts_now = start.is_now
        self._begin(subscriber, latest, idle_s)
        return subscriber

    async def _of_durable(self, message: Subscribe) -> SocketSubscriber:
        assert message.subscription is not None
        registered = await self._find(message.subscription)
        record = registered.subscription
        consuming.need_pull(registered)
        schema = self._view.schema(record.service)
        latest = parameters.latest(message.latest, schema, self._view.key(record.service))
        meaning = self._view.meaning(record.service)
        filter_ = await compiled_of(self._executors, self._view.caller, record, schema, meaning)
        place = await consuming.begin(self._durable, registered, None, message.cursor)
        encoding = self._durable.encoding(record, self._view.caller)
        self._view.meter.take("subscriptions", self._view.caller)
        sink = conflated(self._view.paced(self._sink), parameters.conflation(record.every_s, record.key, schema))
        subscriber = SocketSubscriber(message.id, record.service, filter_, sink, encoding, place)
        subscriber.durable, subscriber.tally = record.id, self._metrics.of_subscription(record.id)
        self._sink.counts_events = True
        try:
            self._durable.connect(registered, subscriber)
        except TidegateError:  # it was changed meanwhile, and no longer fits its service
            subscriber.sink.subscribers.discard(subscriber)
            self._view.meter.give_back("subscriptions", self._view.caller)
            raise
        self._begin(subscriber, latest, record.idle_s)
        return subscriber

    def _begin(self, subscriber: SocketSubscriber, latest: str | None, idle_s: float | None) -> None:
        """Register a subscription, and confirm it unless it starts now: then the hub reports the position."""
        self._subscriptions[subscriber.name] = subscriber
        if idle_s:
            self._sink.counts_events = True
            subscriber.idle = Idle(idle_s, lambda: subscriber.event_count, partial(self._tell_idle, subscriber.name))
        if subscriber.starts_now:
            return
        subscriber.latest = Latest(latest) if latest else None
        about = (
            {}
            if subscriber.durable is None
            else {"subscription": subscriber.durable, "filter": str(subscriber.filter or "")}
        )
        cursor = subscriber.cursor.text if subscriber.cursor is not None else None
        self._sink.say("subscribed", id=subscriber.name, **about, cursor=cursor)

    def _tell_idle(self, name: str, seconds: float) -> None:
        self._sink.say("idle", id=name, seconds=seconds)

    def _end(self, subscriber: SocketSubscriber) -> None:
        self._hub.unsubscribe(subscriber)
        self._forget(subscriber)

    def _release(self, subscriber: SocketSubscriber) -> None:
        if subscriber.idle is not None:
            subscriber.idle.stop()
        if subscriber.sink is not self._sink:
            subscriber.sink.close()

    # Acknowledging ---------------------------------------------------------------------

    def _acknowledge(self, subscriber: SocketSubscriber, cursor: Cursor) -> None:
        """Store a cursor in a task. Cursors that arrive meanwhile are stored together afterwards."""
        if subscriber.durable is None:  # an ad-hoc subscription has no stored cursor
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
        subscriber = self._subscriptions.get(id_)
        if subscriber is None:
            detail = f"no subscription {id_!r} on this socket"
            raise HttpProblem(404, "not-found", "There is no such thing", detail)
        return subscriber

    async def _changed(self, subscriber: SocketSubscriber, message: Change) -> Filter | None:
        if subscriber.durable is not None:
            raise consuming.conflict(
                f"change it by PATCH /v1/subscriptions/{subscriber.durable}: the change applies to all its consumers"
            )
        if message.filter is not None:
            return await filter_of(self._executors, self._view, message.filter, message.params, subscriber.service)
        if message.params is None:
            raise messages.bad_message("change: expected filter, params or both", member="filter")
        if subscriber.filter is None:
            raise messages.bad_message("params: expected a filter with them, as there is none", member="params")
        return subscriber.filter.with_params(message.params)

    def _forget(self, subscriber: Subscriber) -> None:
        """Remove a subscription that has ended."""
        assert isinstance(subscriber, SocketSubscriber)
        if self._subscriptions.get(subscriber.name) is subscriber:
            del self._subscriptions[subscriber.name]
            self._view.meter.give_back("subscriptions", self._view.caller)
        self._release(subscriber)
