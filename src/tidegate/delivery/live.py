"""One service's events to all who have caught up: one thread reads and matches, one pass for everyone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import structlog

from tidegate.delivery.batch import Batch, ahead, reaches
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber
from tidegate.errors import TidegateError
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog
from tidegate.matching import Matcher
from tidegate.model import Schema

MOST = 2_000
"""Events of one pass. A pass takes what there is: the busier the stream, the larger."""
LOOK_S = 0.02
"""How long a join, a leave or a change waits where no event comes."""
LINGER_S = 1.0
"""How long the thread stays when the last subscriber has left."""

_log = structlog.get_logger("tidegate.delivery")

Output = tuple[Sink, int, Any]
"""Where to, in which epoch of it, and what was rendered."""


class Live:
    """Tails one service's output while anybody is live.

    The thread owns position, matcher and who is live; the event loop owns the
    subscribers' states. They meet in two queues: commands one way, what is to be
    handed over the other, in order.
    """

    def __init__(
        self,
        log: EventLog,
        service: str,
        schema: Schema,
        loop: asyncio.AbstractEventLoop,
        overflowed: Callable[[Sink], None],
        fell_behind: Callable[[Subscriber], None],
    ) -> None:
        """Both are called in the loop: with a sink that is full, and with a subscriber that must catch up again."""
        self.service = service
        self._log, self._loop = log, loop
        self._overflowed, self._fell_behind = overflowed, fell_behind
        self._matcher = Matcher(schema)
        self._members: dict[str, Subscriber] = {}
        self._everything: dict[str, Subscriber] = {}
        self._floors: dict[str, Mapping[str, int]] = {}
        self._position: Cursor | None = None
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.delivered: Cursor | None = None
        """Where all that was handed over ends; the loop's."""
        self.events = 0
        """How many were read."""
        self.matched = 0
        """How many pairs of event and subscriber there were."""

    # For the event loop ------------------------------------------------------------

    async def join(self, subscriber: Subscriber) -> bool:
        """Take in a subscriber that has reached the end; false: it has more to catch up, from its position on."""
        done: asyncio.Future[bool] = self._loop.create_future()
        epoch = subscriber.sink.epoch
        self._tell(lambda: self._join(subscriber, epoch, done))
        return await done

    def leave(self, subscriber: Subscriber) -> None:
        """Let go of a subscriber: soon nothing more is made for it."""
        self._tell(lambda: self._leave(subscriber))

    def position(self, subscriber: Subscriber) -> Cursor:
        """How far a live subscriber was served."""
        assert self.delivered is not None
        return ahead(self.delivered, subscriber.floor or {})

    async def change(self, subscriber: Subscriber, filter_: Filter | None) -> Cursor | None:
        """Give a live subscriber another filter, between two events; give the place. None: it is not live."""
        done: asyncio.Future[Cursor | None] = self._loop.create_future()
        self._tell(lambda: self._change(subscriber, filter_, done))
        return await done

    def cancel(self) -> None:
        """Hand nothing over any more, also of what is on its way."""
        self._closed = True

    def close(self) -> None:
        """End the thread, and wait until it has."""
        self._closed = True
        if self._thread is not None:
            self._thread.join()
        self._matcher.close()

    def _tell(self, command: Callable[[], None]) -> None:
        self._commands.put(command)
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name=f"live-{self.service}", daemon=True)
            self._thread.start()

    def _hand(self, end: Cursor, outputs: list[Output]) -> None:
        if self._closed:
            return
        self.delivered = end
        for sink, epoch, rendered in outputs:
            if sink.epoch == epoch and not sink.write(rendered):
                self._overflowed(sink)

    # The thread ---------------------------------------------------------------------

    def _run(self) -> None:
        idle = 0.0
        while not self._closed:
            try:
                self._obey()
                if self._members:
                    idle = 0.0
                    self._pass_on()
                    continue
            except TidegateError:  # the stream is gone, or another one
                self._send_all_back()
                continue
            except Exception:  # a fault of ours: they go on at their own pace
                _log.exception("a live pass has failed", service=self.service)
                self._send_all_back()
                time.sleep(LINGER_S)
                continue
            self._position = None
            idle += LOOK_S
            if idle >= LINGER_S and self._loop_agrees_to_end():
                return
            self._wait_for_command()

    def _loop_agrees_to_end(self) -> bool:
        """End only where no command can come unseen: the loop itself looks."""
        agreed = threading.Event()
        ends = False

        def look() -> None:
            nonlocal ends
            ends = self._commands.empty()
            if ends:
                self._thread = None
            agreed.set()

        self._post(look)
        agreed.wait(LINGER_S)
        return ends

    def _wait_for_command(self) -> None:
        with suppress(Empty):
            self._commands.get(timeout=LOOK_S)()

    def _obey(self) -> None:
        while not self._commands.empty():
            self._commands.get()()

    def _pass_on(self) -> None:
        """Read what there is, match it once for all, and hand it over."""
        assert self._position is not None
        if not self._log.wait(self.service, self._position, LOOK_S):
            return
        batch = self._read(self._position)
        picks = self._picks(batch)
        outputs = [(sink, epoch, sink.render(batch, found)) for (sink, epoch), found in picks.items()]
        self._position = batch.end
        self.events += len(batch)
        if batch.gaps:
            self._tell_gap(batch)
        self._post(lambda: self._hand(batch.end, outputs))
        if self._floors:
            self._lower_floors()

    def _read(self, position: Cursor) -> Batch:
        return Batch(self.service, position, self._log.read(self.service, position, MOST))

    def _picks(self, batch: Batch) -> Mapping[tuple[Sink, int], list[Pick]]:
        """Who gets what, by where it goes and in which epoch, in the order of the events."""
        found: dict[tuple[Sink, int], list[Pick]] = {}
        if len(self._matcher):
            events, ids = self._matcher.match(batch.events).pairs()
            for event, id_ in zip(events.tolist(), ids.tolist(), strict=True):
                member = self._members[id_]
                found.setdefault((member.sink, member.epoch), []).append((event, member))
        for member in self._everything.values():
            found.setdefault((member.sink, member.epoch), []).extend((event, member) for event in range(len(batch)))
        for place, picks in found.items():
            if len(place[0].subscribers) > 1:
                picks.sort(key=lambda pick: pick[0])
            if self._floors:
                found[place] = [
                    (event, member)
                    for event, member in picks
                    if not (member.floor and batch.is_below(event, member.floor))
                ]
            self.matched += len(picks)
        return {place: picks for place, picks in found.items() if picks}

    def _lower_floors(self) -> None:
        """Forget what subscribers had seen beyond all others, where the others have seen it too."""
        assert self._position is not None
        reached = self._position.offsets
        for id_, floor in list(self._floors.items()):
            if all(reached.get(partition, -1) >= offset for partition, offset in floor.items()):
                del self._floors[id_]
                self._post(partial(_forget, self._members[id_], floor))

    def _join(self, subscriber: Subscriber, epoch: int, done: asyncio.Future[bool]) -> None:
        position = subscriber.position
        assert position is not None
        try:
            if not self._members:
                self._begin_at(position)
            assert self._position is not None
            if not reaches(position, self._position):
                position = self._fetch_up(subscriber, position)
            if not reaches(position, self._position):
                self._answer(done, False)
                return
            subscriber.epoch = epoch
            self._admit(subscriber, position)
        except TidegateError as problem:
            self._fail(done, problem)
            return
        self._post(lambda: self._came_live(subscriber, epoch, done))

    def _begin_at(self, position: Cursor) -> None:
        self._position = position
        self._post(lambda: self._hand(position, []))

    def _came_live(self, subscriber: Subscriber, epoch: int, done: asyncio.Future[bool]) -> None:
        joined = subscriber.state == "joining" and subscriber.sink.epoch == epoch
        if joined:
            subscriber.state = "live"
        else:  # it has gone meanwhile, or its sink is full
            self.leave(subscriber)
        if not done.done():
            done.set_result(joined)

    def _fetch_up(self, subscriber: Subscriber, position: Cursor) -> Cursor:
        """Read for one subscriber alone what came since it had reached the end."""
        batch = self._read(position)
        picks: list[Pick] = [(n, subscriber) for n, event in enumerate(batch.events) if subscriber.wants(event)]
        rendered = subscriber.sink.render(batch, picks) if picks else None
        self._post(lambda: self._catch_up(subscriber, batch, rendered))
        return batch.end

    def _catch_up(self, subscriber: Subscriber, batch: Batch, rendered: Any) -> None:
        """In the loop: what a subscriber is given before it is live."""
        if subscriber.state != "joining" or self._closed:
            return
        subscriber.position = batch.end
        if rendered is not None:
            subscriber.sink.write(rendered)  # all of it, though it be full: the next write will say so

    def _admit(self, subscriber: Subscriber, position: Cursor) -> None:
        assert self._position is not None
        beyond = {p: at for p, at in position.offsets.items() if at > self._position.offsets.get(p, -1)}
        if subscriber.filter is None:
            self._everything[subscriber.id] = subscriber
        else:
            self._matcher.add(subscriber.id, subscriber.filter)
        self._members[subscriber.id] = subscriber
        subscriber.floor = beyond or None
        if beyond:
            self._floors[subscriber.id] = beyond

    def _leave(self, subscriber: Subscriber) -> None:
        if self._members.get(subscriber.id) is not subscriber:
            return
        del self._members[subscriber.id]
        if self._everything.pop(subscriber.id, None) is None:
            self._matcher.remove(subscriber.id)
        self._floors.pop(subscriber.id, None)

    def _change(self, subscriber: Subscriber, filter_: Filter | None, done: asyncio.Future[Cursor | None]) -> None:
        if self._members.get(subscriber.id) is not subscriber:
            self._answer(done, None)
            return
        floor = subscriber.floor
        self._leave(subscriber)
        subscriber.filter = filter_
        assert self._position is not None
        place = ahead(self._position, floor or {})
        self._admit(subscriber, place)
        self._answer(done, place)

    def _send_all_back(self) -> None:
        """Let everybody find out for himself: catching up, each is told what is wrong with his place."""
        members, position = list(self._members.values()), self._position
        for member in members:
            self._leave(member)
        self._position = None

        def send() -> None:
            for member in members:
                if member.state == "live":
                    member.position = position
                    member.state = "behind"
                    self._fell_behind(member)

        self._post(send)

    def _tell_gap(self, batch: Batch) -> None:
        members = list(self._members.values())
        notice = gap(batch)

        def tell() -> None:
            for member in members:
                if member.state == "live":
                    member.sink.tell(member, notice)

        self._post(tell)

    def _fail(self, done: asyncio.Future[Any], problem: Exception) -> None:
        self._post(lambda: None if done.done() else done.set_exception(problem))

    def _answer(self, done: asyncio.Future[Any], value: Any) -> None:
        self._post(lambda: None if done.done() else done.set_result(value))

    def _post(self, call: Callable[[], Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            self._closed = True


def _forget(subscriber: Subscriber, floor: Mapping[str, int]) -> None:
    """In the loop, where all that was read up to a floor has been handed over."""
    if subscriber.floor is floor:
        subscriber.floor = None


def gap(batch: Batch) -> Notice:
    """What was missed before a batch."""
    missed = [
        {"partition": each.partition, "missed_from": each.missed_from, "resumed_at": each.resumed_at}
        for each in batch.gaps
    ]
    resumed = ahead(batch.start, {each.partition: each.resumed_at for each in batch.gaps})
    return Notice("gap", resumed.text, {"reason": "older than what the stream keeps", "missed": missed})
