"""All who subscribe, on all services: live together, or catching up, each at its own pace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import structlog

from tidegate.delivery.batch import Batch
from tidegate.delivery.live import Live, gap
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber
from tidegate.errors import CursorError, LogError, RegistryError, TidegateError, did_you_mean
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog
from tidegate.model import Schema

MOST = 500
"""Events that a subscriber who is behind is given at once."""
ABSENT_S = 0.2
"""Between two looks for a stream that is not there yet."""


Given = Literal["more", "all", "absent"]
"""There may be more; there is no more; the output is not there yet."""

_log = structlog.get_logger("tidegate.delivery")


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscriber begins: at a cursor, at a moment, at the beginning, or now."""

    cursor: Cursor | None = None
    since_micros: int | None = None
    beginning: bool = False


NOW = Start()


class Hub:
    """Serves subscribers of one log, in one event loop."""

    def __init__(self, log: EventLog, *, threads: int = 2) -> None:
        """`threads`: how many subscribers who are behind read at once."""
        self._log, self._loop = log, asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="catch-up")
        self._schemas: dict[str, Schema] = {}
        self._live: dict[str, Live] = {}
        self._tasks: dict[Subscriber, asyncio.Task[None]] = {}

    # Services ------------------------------------------------------------------------

    def serve(self, schemas: Mapping[str, Schema]) -> None:
        """Serve these services, by the schemas of their outputs.

        Where a schema is another, subscribers go on with it; one whose filter does
        not fit it any more, or whose service is gone, is told so.
        """
        changed = [name for name, schema in self._schemas.items() if schemas.get(name) != schema]
        self._schemas = dict(schemas)
        for name in changed:
            live = self._live.pop(name, None)
            if live is not None:
                self._end(live)
            for each in [each for each in self._tasks if each.service == name]:
                self._retype(each)

    def schema(self, service: str) -> Schema:
        """The schema of a service's output; an error with a hint where there is no such service."""
        found = self._schemas.get(service)
        if found is None:
            raise RegistryError(f"no service {service!r}{did_you_mean(service, self._schemas)}")
        return found

    def _retype(self, subscriber: Subscriber) -> None:
        """Bring a subscriber to the new schema of its service."""
        try:
            schema = self.schema(subscriber.service)
            old = subscriber.filter
            if old is not None:
                subscriber.filter = Filter(old.text, schema, old.params, like_star=old.like_star)
        except TidegateError as problem:
            self._refuse(subscriber, problem)
            return
        if subscriber.state in ("live", "joining"):
            self._tasks[subscriber].cancel()
            subscriber.state = "behind"
            self._follow(subscriber)

    # Subscribers ---------------------------------------------------------------------

    async def begin(self, service: str, start: Start = NOW) -> Cursor | None:
        """The position of a start; None: the output is not there yet, and all of it will be new."""
        self.schema(service)
        return await self._loop.run_in_executor(self._pool, self._begin, service, start)

    def _begin(self, service: str, start: Start) -> Cursor | None:
        if start.cursor is not None:
            return start.cursor
        try:
            if start.beginning:
                return self._log.begin(service)
            if start.since_micros is not None:
                return self._log.since(service, start.since_micros)
            return self._log.end(service)
        except CursorError:
            raise
        except LogError:
            return None

    def subscribe(self, subscriber: Subscriber) -> None:
        """Begin to serve a subscriber from its position on."""
        self.schema(subscriber.service)
        self._follow(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Serve a subscriber no more. Once all of a sink's are gone, nothing is written to it."""
        was_live = subscriber.state in ("live", "joining")
        subscriber.position = self.position(subscriber)
        subscriber.state = "gone"
        subscriber.sink.subscribers.discard(subscriber)
        if not subscriber.sink.subscribers:
            subscriber.sink.epoch += 1
        task = self._tasks.pop(subscriber, None)
        if task is not None:
            task.cancel()
        live = self._live.get(subscriber.service)
        if was_live and live is not None:
            live.leave(subscriber)

    def position(self, subscriber: Subscriber) -> Cursor | None:
        """How far a subscriber was served: whatever matched before has been written to its sink."""
        live = self._live.get(subscriber.service)
        if subscriber.state == "live" and live is not None:
            return live.position(subscriber)
        return subscriber.position

    async def change(self, subscriber: Subscriber, filter_: Filter | None) -> Cursor | None:
        """Give a subscriber another filter, between two events; its sink is told from where."""
        place = None
        if subscriber.state in ("live", "joining"):
            place = await self._of(subscriber.service).change(subscriber, filter_)
        if place is None:
            subscriber.filter = filter_
            place = subscriber.position
        text = str(filter_) if filter_ is not None else ""
        subscriber.sink.tell(subscriber, Notice("changed", place.text if place else "", {"filter": text}))
        return place

    def counts(self) -> dict[str, dict[str, int]]:
        """For each service with subscribers how many are live and behind, and what was read and matched."""
        found: dict[str, dict[str, int]] = {}
        for each in self._tasks:
            of = found.setdefault(each.service, {"live": 0, "behind": 0, "events": 0, "matched": 0})
            of["live" if each.state == "live" else "behind"] += 1
        for name, live in self._live.items():
            if name in found:
                found[name] |= {"events": live.events, "matched": live.matched}
        return found

    async def close(self) -> None:
        """Serve nobody any more."""
        for subscriber in list(self._tasks):
            self.unsubscribe(subscriber)
        for live in self._live.values():
            await self._loop.run_in_executor(None, live.close)
        self._live.clear()
        await self._loop.run_in_executor(None, self._pool.shutdown)

    # Catching up ---------------------------------------------------------------------

    def _follow(self, subscriber: Subscriber) -> None:
        """Catch up; a task that has just brought it live goes on with it."""
        task = self._tasks.get(subscriber)
        if task is None or task.done() or task.cancelling():
            self._tasks[subscriber] = self._loop.create_task(self._catch_up(subscriber))

    async def _catch_up(self, subscriber: Subscriber) -> None:
        """Read on at the subscriber's own pace, until it has reached the end and is live."""
        try:
            while subscriber.state == "behind":
                await subscriber.sink.room()
                given = await self.give(subscriber) if subscriber.state == "behind" else "more"
                if given == "absent":
                    await asyncio.sleep(ABSENT_S)
                elif given == "all":
                    await self._come_live(subscriber)
        except TidegateError as problem:
            self._refuse(subscriber, problem)
        except Exception as problem:  # a fault of ours: this subscriber's alone
            _log.exception("a subscriber can't go on", service=subscriber.service, subscriber=subscriber.id)
            self._refuse(subscriber, TidegateError(f"internal error: {type(problem).__name__}"))

    async def give(self, subscriber: Subscriber) -> Given:
        """Give a subscriber who is behind some events from its position on."""
        position = subscriber.position
        try:
            if position is None:
                position = await self._loop.run_in_executor(self._pool, self._log.begin, subscriber.service)
            batch, rendered = await self._loop.run_in_executor(self._pool, self._read, subscriber, position)
        except CursorError:
            await self._begin_anew(subscriber)
            return "more"
        except LogError:
            self.schema(subscriber.service)
            return "absent"
        if subscriber.state != "behind":
            return "more"
        if batch.gaps:
            subscriber.sink.tell(subscriber, gap(batch))
        subscriber.position = batch.end
        if rendered is not None:
            subscriber.sink.write(rendered)
        return "more" if batch.records or batch.gaps else "all"

    def _read(self, subscriber: Subscriber, position: Cursor) -> tuple[Batch, Any]:
        batch = Batch(subscriber.service, position, self._log.read(subscriber.service, position, MOST))
        picks: list[Pick] = [(n, subscriber) for n, event in enumerate(batch.events) if subscriber.wants(event)]
        return batch, subscriber.sink.render(batch, picks) if picks else None

    async def _begin_anew(self, subscriber: Subscriber) -> None:
        """Its cursor is of no place in this stream: it goes on at the beginning, and is told."""
        begin = await self._loop.run_in_executor(self._pool, self._log.begin, subscriber.service)
        said = {"reason": "the cursor is no place in this stream, which may have been made anew"}
        subscriber.position = begin
        subscriber.sink.tell(subscriber, Notice("gap", begin.text, said))

    async def _come_live(self, subscriber: Subscriber) -> None:
        subscriber.state = "joining"
        joined = await self._of(subscriber.service).join(subscriber)
        if not joined and subscriber.state == "joining":
            subscriber.state = "behind"

    def _of(self, service: str) -> Live:
        found = self._live.get(service)
        if found is None:
            found = self._live[service] = Live(
                self._log, service, self.schema(service), self._loop, self._overflow, self._follow
            )
        return found

    def _overflow(self, sink: Sink) -> None:
        """All subscribers of a sink that is full read from the log, when there is room again."""
        sink.epoch += 1
        for each in list(sink.subscribers):
            if each.state == "live":
                live = self._of(each.service)
                each.position = live.position(each)
                each.state = "behind"
                live.leave(each)
                self._follow(each)

    def _refuse(self, subscriber: Subscriber, problem: TidegateError) -> None:
        place = self.position(subscriber)
        self.unsubscribe(subscriber)
        subscriber.sink.tell(subscriber, Notice("error", place.text if place else "", {"detail": str(problem)}))

    def _end(self, live: Live) -> None:
        """End a tail whose schema is another now; its subscribers catch up from where it had handed over."""
        for each in list(self._tasks):
            if each.state == "live" and each.service == live.service:
                each.position = live.position(each)
        live.cancel()
        self._loop.run_in_executor(None, live.close)
