"""All who subscribe, on all services: live together, or catching up together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

from tidegate.delivery.batch import Batch, ahead
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.lane import Lane
from tidegate.delivery.latest import Latest, Snapshot, newest
from tidegate.delivery.live import Dispatched, Live, changed
from tidegate.delivery.past import NoPasts, Pasts
from tidegate.delivery.replay import Replay
from tidegate.delivery.subscriber import Member, Notice, Sink, Subscriber
from tidegate.delivery.worker import Handing, gap
from tidegate.errors import CursorError, LogError, NotRegistered, TidegateError
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.logs import Cursor, EventLog
from tidegate.model import Schema
from tidegate.subscriptions import Subscription, compiled

MOST = 1_000
"""Events that one `give` reads."""
ABSENT_S = 0.2
"""Between two looks for a stream that is not there yet."""

READING = 2
"""Threads that look for the newest of each key: others wait, so that those who are live do not."""
SNAPSHOTS = 8
"""That are held at a time, for those who read them: others wait for their turn."""
SNAPSHOT_S = 10.0
"""How long a snapshot is held for one who has no room: then others have their turn."""

Given = Literal["more", "all", "absent"]
"""There may be more; there is no more; the output is not there yet."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscriber begins: at a cursor, at a moment, at the beginning, or now."""

    cursor: Cursor | None = None
    since_micros: int | None = None
    beginning: bool = False

    @property
    def is_now(self) -> bool:
        """Whether it begins with what comes next."""
        return self.cursor is None and self.since_micros is None and not self.beginning


NOW = Start()


class Hub:
    """Serves subscribers of one log, in one event loop."""

    def __init__(
        self,
        log: EventLog,
        dispatched: Dispatched = lambda _, __, ___: None,
        heed: Callable[[Subscriber, bool], None] = lambda _, __: None,
        pasts: Pasts | None = None,
        together: AbstractContextManager[None] | None = None,
    ) -> None:
        """`dispatched` is told of every pass, and within a block of `together` all of one is written.

        `heed` is told of everybody who listens, again when what they want is another, and when they do no more.
        `pasts` knows of events that are not in the log.
        """
        self._heed, self._pasts = heed, pasts or NoPasts()
        self._log, self._loop, self._dispatched = log, asyncio.get_running_loop(), dispatched
        self._handing = Handing(self._loop, self._overflow, together or nullcontext())
        self._schemas: dict[str, Schema] = {}
        self._meanings: dict[str, Meaning] = {}
        self._live: dict[str, Live] = {}
        self._replay: dict[str, Replay] = {}
        self._subscribers: set[Subscriber] = set()
        self._is_draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._readers = ThreadPoolExecutor(READING, "latest")
        self._snapshots = asyncio.Semaphore(SNAPSHOTS)

    # Services ------------------------------------------------------------------------

    def serve(self, schemas: Mapping[str, Schema], meanings: Mapping[str, Meaning] | None = None) -> None:
        """Serve these services, by the schemas of their outputs, and what filters with ~ over them are evaluated by.

        Where a schema is another, subscribers go on with it; one whose filter does
        not fit it any more, or whose service is gone, is told so.
        """
        meanings = meanings or {}
        changed = [
            name
            for name, schema in self._schemas.items()
            if schemas.get(name) != schema or meanings.get(name) != self._meanings.get(name)
        ]
        self._schemas, self._meanings = dict(schemas), dict(meanings)
        for name in changed:
            of_it = [each for each in self._subscribers if each.service == name]
            self._stop(of_it)
            self._end(name)
            for each in of_it:
                self._retype(each)

    def schema(self, service: str) -> Schema:
        """The schema of a service's output; an error with a hint where there is no such service."""
        found = self._schemas.get(service)
        if found is None:
            raise NotRegistered(f"no service {service!r}")  # no hint: who asks may not see what is near
        return found

    def filter_of(self, record: Subscription, encoding: Encoding) -> Filter | None:
        """The filter of a durable subscription, for one who sees what is so written; None: everything."""
        return compiled(record, self.schema(record.service), self.meaning(record.service), encoding.hidden)

    def meaning(self, service: str) -> Meaning | None:
        """What filters with ~ over a service are evaluated by; None: nothing is there."""
        return self._meanings.get(service)

    def _retype(self, subscriber: Subscriber) -> None:
        """Bring a subscriber to the new schema of its service."""
        try:
            schema = self.schema(subscriber.service)
            old = subscriber.filter
            if old is not None:
                seen = schema.without(subscriber.encoding.hidden) if old.tree.is_semantic else schema
                meaning = self.meaning(subscriber.service)
                subscriber.filter = Filter(old.text, seen, old.params, like_star=old.like_star, semantics=meaning)
                self._heed(subscriber, True)
        except TidegateError as problem:
            self._refuse(subscriber, problem)
        else:
            self._follow([subscriber])

    def _end(self, service: str) -> None:
        for worker in (self._live.pop(service, None), self._replay.pop(service, None)):
            if worker is not None:
                worker.cancel()

    # Subscribers ---------------------------------------------------------------------

    async def begin(self, service: str, start: Start = NOW, filter_: Filter | None = None) -> Cursor | None:
        """The position of a start; None: the output is not there yet, and all of it will be new.

        `filter_` is what will be wanted from there on; None: everything.
        """
        self.schema(service)
        place = await self._pasts.place(service, start, filter_)
        return place or await self._in_thread(partial(self._begin, service, start))

    def _begin(self, service: str, start: Start) -> Cursor | None:
        if start.cursor is not None:
            return start.cursor
        try:
            if start.beginning:
                return self._log.begin(service)
            if start.since_micros is not None:
                return self._log.since(service, start.since_micros)
            return self._log.end(service)
        except LogError:
            return None

    def subscribe(self, subscriber: Subscriber, *, now: bool = False) -> None:
        """Begin to serve a subscriber from its position on; `now`: with what comes next, and its sink is told where."""
        self.schema(subscriber.service)
        self._subscribers.add(subscriber)
        subscriber.begins_now = now
        self._heed(subscriber, True)
        self._follow([subscriber])
        if self._is_draining:  # it was on its way
            subscriber.sink.end()

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Serve a subscriber no more. Once all of a sink's are gone, nothing is written to it."""
        self._stop([subscriber])
        self._heed(subscriber, False)
        subscriber.state = "gone"
        self._subscribers.discard(subscriber)
        subscriber.sink.subscribers.discard(subscriber)
        if not subscriber.sink.subscribers:
            subscriber.sink.epoch += 1

    def rewrite(self, subscriber: Subscriber, encoding: Encoding, sink: Sink) -> None:
        """Let a subscriber's events be written otherwise from its place on: what is on its way is read again."""
        if subscriber.encoding == encoding and subscriber.sink is sink:
            return
        self.schema(subscriber.service)  # before anything is changed
        is_served = subscriber in self._subscribers  # a page is not: whoever makes it reads on by itself
        if is_served:
            self.unsubscribe(subscriber)
        subscriber.sink.subscribers.discard(subscriber)
        subscriber.encoding, subscriber.sink = encoding, sink
        sink.subscribers.add(subscriber)
        if is_served:
            self.subscribe(subscriber)

    def _stop(self, subscribers: Sequence[Subscriber]) -> None:
        """Take subscribers out of whatever lane they are in, or are on their way to; each knows its place."""
        leaving: dict[str, list[Member]] = {}
        for each in subscribers:
            if each.member is not None:
                leaving.setdefault(each.service, []).append(each.member)
            each.place = each.position
            each.state, each.member = "behind", None
        for service, members in leaving.items():
            for worker in (self._live.get(service), self._replay.get(service)):
                if worker is not None:
                    worker.leave(members)

    async def change(self, subscriber: Subscriber, filter_: Filter | None) -> Cursor | None:
        """Give a subscriber another filter, between two events; its sink is told from where."""
        place = None
        live = self._live.get(subscriber.service)
        # Of what is here in part it may want what is not: it goes on as one who comes at its place would.
        if subscriber.state == "live" and live is not None and not self._pasts.is_part(subscriber.service):
            place = await live.change(subscriber, filter_)
            if subscriber not in self._subscribers:  # it has left meanwhile
                return place
            self._heed(subscriber, True)
        if place is None:
            subscriber.filter = filter_
            self._heed(subscriber, True)
            if subscriber.latest is not None:  # what is left of the snapshot was matched with the old one, too
                subscriber.latest.forget()
                self._sent_back(subscriber)
            self._overflow(subscriber.sink)  # what was on its way was matched with the old one
            place = subscriber.place
            subscriber.sink.tell(subscriber, changed(filter_, place))
        return place

    def listening(self) -> list[Subscriber]:
        """All who are served."""
        return list(self._subscribers)

    def counts(self) -> dict[str, dict[str, int]]:
        """For each service with subscribers how many are live and behind, and what was read and matched."""
        found: dict[str, dict[str, int]] = {}
        for each in self._subscribers:
            of = found.setdefault(each.service, {"live": 0, "behind": 0, "events": 0, "matched": 0})
            of["live" if each.state == "live" else "behind"] += 1
        for name, live in self._live.items():
            if name in found:
                found[name] |= {"events": live.events, "matched": live.matched}
        return found

    def kinds(self) -> Counter[tuple[str, str]]:
        """How many subscribers each service has of each kind of sink."""
        return Counter((each.service, each.sink.kind) for each in self._subscribers)

    def places(self) -> dict[str, list[Cursor]]:
        """For each service with subscribers where those are who are behind."""
        found: dict[str, list[Cursor]] = {each.service: [] for each in self._subscribers}
        for each in self._subscribers:
            if each.state == "behind" and each.position is not None:
                found[each.service].append(each.position)
        return found

    def drain(self) -> None:
        """Let every sink end what it has begun, and those that come yet."""
        self._is_draining = True
        for sink in {each.sink for each in self._subscribers}:
            sink.end()

    async def close(self) -> None:
        """Serve nobody any more."""
        for subscriber in list(self._subscribers):
            self.unsubscribe(subscriber)
        for task in list(self._tasks):
            task.cancel()
        workers = [*self._live.values(), *self._replay.values()]
        for worker in workers:
            worker.cancel()
        for worker in workers:
            await self._in_thread(worker.close)
        await self._in_thread(partial(self._readers.shutdown, cancel_futures=True))

    # Pages -----------------------------------------------------------------------------

    async def give(self, subscriber: Subscriber) -> Given:
        """Give some events to a subscriber that is not served, from its place on."""
        self._heed(subscriber, True)
        try:
            if subscriber.latest is None and self._pasts.lacks(subscriber):
                return await self._give_past(subscriber)
            position = subscriber.place
            if position is None:
                position = await self._in_thread(partial(self._log.begin, subscriber.service))
            if subscriber.latest is not None:
                return await self._give_latest(subscriber, subscriber.latest, position)
            batch, rendered = await self._in_thread(partial(self._read, subscriber, position))
        except CursorError:
            await self._begin_anew(subscriber)
            return "more"
        except LogError:
            return "absent"
        if batch.gaps:
            subscriber.sink.tell(subscriber, gap(batch))
        subscriber.place = batch.end
        if rendered is not None:
            subscriber.sink.write(rendered)
        return "more" if batch.records or batch.gaps else "all"

    async def _give_latest(self, subscriber: Subscriber, latest: Latest, position: Cursor) -> Given:
        """Give some of the newest of each key."""
        if latest.snapshot is None:
            latest.begin(await self._newest(subscriber, latest, position, lambda: True))
        piece = latest.piece(subscriber.service, MOST)
        if piece.events:
            subscriber.sink.write(await self._in_thread(partial(Member(subscriber).render, piece)))
            subscriber.place = latest.gave(len(piece.events))
        if latest.is_given:
            self._has_latest(subscriber, latest)
        return "more"

    def _read(self, subscriber: Subscriber, position: Cursor) -> tuple[Batch, Any]:
        batch = Batch(subscriber.service, position, self._log.read(subscriber.service, position, MOST))
        return batch, Member(subscriber).render(batch)

    # Catching up, and coming live ----------------------------------------------------------

    def _follow(self, subscribers: Sequence[Subscriber]) -> None:
        """Serve subscribers of one sink from their places on, those at one place together."""
        places: dict[tuple[str, int], list[Member]] = {}
        for each in subscribers:
            moment = self._pasts.now(each) if each.begins_now else None
            if moment is not None:
                each.place, each.begins_now = moment, False
                each.sink.tell(each, Notice("began", moment.text))
            if each.begins_now:
                self._come_live([each], None)
            elif each.latest is None and self._pasts.lacks(each):
                each.state, each.member, each.past = "behind", Member(each), None
                self._spawn(self._begin_with_past(each.member))
            elif each.latest is not None:
                each.state, each.member = "behind", Member(each)
                self._spawn(self._begin_with_latest(each.member, each.latest))
            else:
                each.state, each.member = "behind", Member(each)
                places.setdefault((each.service, id(each.place)), []).append(each.member)
        for members in places.values():
            self._spawn(self._catch_up(members, members[0].subscriber.place))

    async def _catch_up(self, members: Sequence[Member], place: Cursor | None) -> None:
        """Bring subscribers to a lane, as soon as there is room and the stream is there."""
        service = members[0].subscriber.service
        await members[0].subscriber.sink.room()
        while place is None and any(each.is_current for each in members):
            try:
                place = await self._in_thread(partial(self._log.begin, service))
            except LogError:
                await asyncio.sleep(ABSENT_S)
        here = [each for each in members if each.is_current]
        for each in here:
            each.subscriber.place = place
        if here and place is not None:
            self._replay_of(service).add(here, place)

    # What is not in the log ------------------------------------------------------------------

    async def _begin_with_past(self, member: Member) -> None:
        """Give a subscriber what is not in the log, then serve it from where the log goes on."""
        while True:
            await member.subscriber.sink.room()
            try:
                state = await self._pour_past(member)
            except TidegateError:  # whoever has it is away
                await asyncio.sleep(ABSENT_S)
                continue
            if state == "all":
                self._follow([member.subscriber])
            if state != "more":
                return

    async def _pour_past(self, member: Member) -> Given:
        """Give some of it; "absent": the subscriber is."""
        subscriber = member.subscriber
        if not member.is_current:
            return "absent"
        past = subscriber.past = subscriber.past or self._pasts.open(subscriber)
        piece = await past.piece()
        rendered = None if piece is None else await self._in_thread(partial(member.render, piece))
        if subscriber.member is not member:
            return "absent"
        if piece is None:
            subscriber.place, subscriber.past = past.joint, None
            return "all"
        if piece.missed is not None:
            subscriber.sink.tell(subscriber, piece.missed)
        subscriber.sink.cut = None
        if rendered is not None:
            subscriber.sink.write(rendered)
        cut = subscriber.sink.cut
        subscriber.place = past.gave(len(piece) if cut is None else cut)
        return "more"

    async def _give_past(self, subscriber: Subscriber) -> Given:
        past = subscriber.past = subscriber.past or self._pasts.open(subscriber)
        try:
            piece = await past.piece()
        except TidegateError:
            return "absent"
        if piece is None:
            subscriber.place, subscriber.past = past.joint, None
            return "more"
        if piece.missed is not None:
            subscriber.sink.tell(subscriber, piece.missed)
        if len(piece):
            rendered = await self._in_thread(partial(Member(subscriber).render, piece))
            if rendered is not None:
                subscriber.sink.write(rendered)
        subscriber.place = past.gave(len(piece))
        return "more"

    # The newest of each key, first ---------------------------------------------------------

    async def _begin_with_latest(self, member: Member, latest: Latest) -> None:
        """Give a subscriber the newest of each key from its place on, then serve it from where that ends."""
        subscriber = member.subscriber
        await subscriber.sink.room()
        try:
            async with self._snapshots:
                await self._pour(member, latest)
        except TimeoutError:
            pass  # it has no room, and begins again from its place on when it has
        except LogError as problem:
            if not isinstance(problem, CursorError) and member.is_current:  # there is no stream yet: all will be new
                self._has_latest(subscriber, latest)
            elif member.is_current:
                self._failed(subscriber, problem)
                return
        if member.is_current:
            latest.forget()
            self._follow([subscriber])

    async def _pour(self, member: Member, latest: Latest) -> None:
        subscriber = member.subscriber

        def is_wanted() -> bool:
            return member.is_current

        if not is_wanted():
            return
        place = subscriber.place
        if place is None:
            place = await self._in_thread(partial(self._log.begin, subscriber.service))
        snapshot = await self._newest(subscriber, latest, place, is_wanted)
        if not is_wanted():
            return
        latest.begin(snapshot)
        if snapshot.missed is not None:
            subscriber.sink.tell(subscriber, snapshot.missed)
        while not latest.is_given:
            await asyncio.wait_for(subscriber.sink.room(), SNAPSHOT_S)
            piece = latest.piece(subscriber.service, MOST)
            rendered = await self._in_thread(partial(member.render, piece))
            if not is_wanted():
                return
            subscriber.sink.cut = None
            subscriber.sink.write(rendered)
            cut = subscriber.sink.cut
            subscriber.place = latest.gave(len(piece.events) if cut is None else cut) or subscriber.place
        self._has_latest(subscriber, latest)

    async def _newest(
        self, subscriber: Subscriber, latest: Latest, place: Cursor, is_wanted: Callable[[], bool]
    ) -> Snapshot:
        if self._pasts.has(place):  # of what is not here nothing is looked at
            place = await self._in_thread(partial(self._log.begin, subscriber.service))
        await self._pasts.settle(subscriber)  # so that nothing is missed behind what is looked at
        look = partial(newest, self._log, subscriber.service, place, subscriber.wants, latest.key, is_wanted)
        found = await self._loop.run_in_executor(self._readers, look)
        return replace(found, is_complete=False) if self._pasts.is_part(subscriber.service) else found

    def _has_latest(self, subscriber: Subscriber, latest: Latest) -> None:
        """All of a snapshot was given: what comes is what was put out behind it."""
        if latest.snapshot is not None:
            subscriber.place = latest.snapshot.end
        subscriber.latest = None
        subscriber.sink.tell(subscriber, latest.told(subscriber.place))

    def _arrived(self, members: Sequence[Member], position: Cursor) -> None:
        for each in members:
            each.subscriber.place = ahead(position, each.floor or {})
        for each in members:
            if each.floor:  # it had seen more than its lane: rare, and brief
                self._come_live([each.subscriber], each.subscriber.place)
        self._come_live([each.subscriber for each in members if not each.floor], position)

    def _come_live(self, subscribers: Sequence[Subscriber], position: Cursor | None) -> None:
        members = [Member(each) for each in subscribers]
        for each in members:
            each.subscriber.state, each.subscriber.member = "joining", each
        if members:
            self._spawn(self._join(members, position))

    async def _join(self, members: Sequence[Member], position: Cursor | None) -> None:
        try:
            joined = await self._live_of(members[0].subscriber.service).join(members, position)
        except TidegateError:
            joined = False
        for each in members:
            if not joined and each.is_current:
                if each.subscriber.begins_now:  # the output is not there yet: all of it will be new
                    each.subscriber.begins_now = False
                    each.subscriber.sink.tell(each.subscriber, Notice("began", ""))
                self._follow([each.subscriber])

    def _overflow(self, sink: Sink) -> None:
        """All subscribers of a sink that is full read from the log, when there is room again."""
        sink.epoch += 1
        # Whoever is being given the newest of each key looks for room by itself.
        served = [each for each in sink.subscribers if each in self._subscribers and each.latest is None]
        self._stop(served)
        self._follow(served)

    def _sent_back(self, subscriber: Subscriber) -> None:
        if subscriber in self._subscribers:
            self._stop([subscriber])
            self._follow([subscriber])

    def _failed(self, subscriber: Subscriber, problem: Exception) -> None:
        """A lane could not go on: its place is nowhere, or its stream is."""
        self._stop([subscriber])
        if isinstance(problem, CursorError):
            self._spawn(self._begin_again(subscriber))
        elif isinstance(problem, LogError) and subscriber.service in self._schemas:
            subscriber.place = None
            self._follow([subscriber])
        elif isinstance(problem, TidegateError):
            self._refuse(subscriber, problem)
        else:
            self._refuse(subscriber, TidegateError(f"internal error: {type(problem).__name__}"))

    async def _begin_again(self, subscriber: Subscriber) -> None:
        await self._begin_anew(subscriber)
        if subscriber in self._subscribers and subscriber.member is None:
            self._follow([subscriber])

    async def _begin_anew(self, subscriber: Subscriber) -> None:
        """Its cursor is no place in this stream: it goes on at the beginning, and is told."""
        try:
            subscriber.place = await self._in_thread(partial(self._log.begin, subscriber.service))
        except LogError:
            subscriber.place = None
        said = {"reason": "the cursor is no place in this stream, which may have been made anew"}
        cursor = "" if subscriber.place is None else subscriber.place.text
        subscriber.sink.tell(subscriber, Notice("gap", cursor, said))

    def _refuse(self, subscriber: Subscriber, problem: TidegateError) -> None:
        place = subscriber.position
        self.unsubscribe(subscriber)
        subscriber.sink.tell(subscriber, Notice("error", place.text if place else "", {"detail": str(problem)}))

    # Workers ---------------------------------------------------------------------------

    def _live_of(self, service: str) -> Live:
        found = self._live.get(service)
        if found is None:
            begin = partial(Lane, self._log, service, self.schema(service), meaning=self.meaning(service))
            found = Live(self._log, service, begin, self._handing, self._sent_back, self._dispatched)
            self._live[service] = found
        return found

    def _replay_of(self, service: str) -> Replay:
        found = self._replay.get(service)
        if found is None:
            begin = partial(Lane, self._log, service, self.schema(service), meaning=self.meaning(service))
            found = Replay(service, begin, self._handing, self._arrived, self._failed)
            self._replay[service] = found
        return found

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(None, call)
