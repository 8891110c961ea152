"""One service's events to all who have caught up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tidegate.delivery.batch import Batch, ahead, reaches
from tidegate.delivery.lane import Lane, Step
from tidegate.delivery.subscriber import Member, Notice, Subscriber
from tidegate.delivery.worker import LOOK_S, Handing, Worker
from tidegate.errors import TidegateError
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog

MOST = 2_000
"""Events of one pass. A pass takes what there is: the busier the stream, the larger."""


PAUSE_S = 0.003
"""After a pass: others run meanwhile, and the next one finds more, which costs little more than finding one."""


Dispatched = Callable[[str, float, Sequence[Mapping[str, Any]]], None]
"""Told of every pass: its service, the seconds until all was written, and its events."""


class Live(Worker):
    """Tails one service's output while anybody is live.

    One pass is made while the one before is written, and no other: the longer the sockets take, the more events the
    next finds, and the fewer writes there are for as many deliveries.
    """

    under_way = 1

    def __init__(
        self,
        log: EventLog,
        service: str,
        begin: Callable[[Cursor], Lane],
        handing: Handing,
        sent_back: Callable[[Subscriber], None],
        dispatched: Dispatched,
    ) -> None:
        """`begin` makes a lane.

        Called in the loop: `sent_back` with everybody whose place can't be read from any more, `dispatched` with how
        long a pass took until all was written.
        """
        super().__init__(service, handing, "live")
        self._log, self._begin, self._sent_back, self._dispatched = log, begin, sent_back, dispatched
        self._lane: Lane | None = None
        self.events = 0
        """How many were read."""

    @property
    def matched(self) -> int:
        """Pairs of event and subscriber so far."""
        return 0 if self._lane is None else self._lane.matched

    # For the event loop ---------------------------------------------------------------

    async def join(self, members: Sequence[Member], position: Cursor | None) -> bool:
        """Take in those who have reached the end at a position, or who begin now.

        False: they have more to catch up, each from its own place on.
        """
        done: asyncio.Future[bool] = self._loop.create_future()
        self._tell(lambda: self._join(members, position, done))
        return await done

    def leave(self, members: Sequence[Member]) -> None:
        """Let go of members: soon nothing more is made for them."""
        self._tell(lambda: self._leave(members))

    async def change(self, subscriber: Subscriber, filter_: Filter | None) -> Cursor | None:
        """Give a live subscriber another filter, between two events; tell and give the place. None: it is not live."""
        done: asyncio.Future[Cursor | None] = self._loop.create_future()
        member = subscriber.member
        assert member is not None
        self._tell(lambda: self._change(member, filter_, done))
        return await done

    def _hand(self, lane: Lane, step: Step) -> None:
        super()._hand(lane, step)
        if step.outputs:
            self._dispatched(self.service, time.perf_counter() - step.begun, step.batch.events)

    # The thread -------------------------------------------------------------------------

    def _work(self) -> bool:
        lane = self._lane
        if lane is None or not lane.members:
            return False
        look_s = LOOK_S if self._commands.empty() else 0.0  # many come at once: they need not wait for events
        if self._log.wait(self.service, lane.position, look_s):
            step = lane.step(MOST)
            self.events += len(step.batch)
            self._pass_on(lane, step)
            time.sleep(PAUSE_S)
        return True

    def _join(self, members: Sequence[Member], position: Cursor | None, done: asyncio.Future[bool]) -> None:
        try:
            if self.is_cancelled:
                self._answer(done, False)
                return
            lane = self._begun(position)
            began = lane.position if position is None else None
            position = position or lane.position
            if not reaches(position, lane.position):
                position = self._fetch_up(lane, members, position)
            if reaches(position, lane.position):
                for member in members:
                    lane.admit(member, position)
                self._post(partial(self._came_live, lane, members, began, done))
                return
        except TidegateError as problem:
            self._refuse(done, problem)
            return
        self._answer(done, False)

    def _begun(self, position: Cursor | None) -> Lane:
        """The lane that goes on, or one that begins where the first begins."""
        if self._lane is None or not self._lane.members:
            if self._lane is not None:
                self._lane.close()
            self._lane = self._begin(position or self._log.end(self.service))
        return self._lane

    def _fetch_up(self, lane: Lane, members: Sequence[Member], position: Cursor) -> Cursor:
        """Read for those who join alone what came since they had reached the end."""
        batch = lane.read(position, MOST)
        for member in members:
            self._post(partial(self._fetched, member, batch, member.render(batch)))
        return batch.end

    def _fetched(self, member: Member, batch: Batch, rendered: Any) -> None:
        if not member.is_current or self.is_cancelled:
            return
        sink = member.sink
        if rendered is not None and not sink.write(rendered) and sink.cut is not None:
            member.subscriber.place = batch.before(sink.cut)
            self._overflowed(sink)
        else:  # though it be full: the next write will say so
            member.subscriber.place = batch.end

    def _came_live(
        self, lane: Lane, members: Sequence[Member], began: Cursor | None, done: asyncio.Future[bool]
    ) -> None:
        for member in members:
            if member.is_current and not self.is_cancelled:
                member.subscriber.state, member.lane = "live", lane
                member.subscriber.begins_now = False
                if began is not None:
                    member.subscriber.sink.tell(member.subscriber, Notice("began", began.text))
            else:  # it has gone meanwhile
                self.leave([member])
        if not done.done():
            done.set_result(True)

    def _leave(self, members: Sequence[Member]) -> None:
        for member in members:
            if self._lane is not None:
                self._lane.remove(member)

    def _change(self, member: Member, filter_: Filter | None, done: asyncio.Future[Cursor | None]) -> None:
        lane = self._lane
        if lane is None or self.is_cancelled or not lane.remove(member):
            self._answer(done, None)
            return
        place = ahead(lane.position, member.floor or {})
        member.subscriber.filter = filter_
        lane.admit(member, place)
        self._post(partial(_tell_changed, member, filter_, place))  # in its place among the passes
        self._answer(done, place)

    def _fail(self, problem: Exception) -> None:
        """Send everybody back: catching up, each is told what is wrong with its place."""
        self._complain(problem)
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()
            self._post(partial(self._send_back, list(lane.members.values())))

    def _send_back(self, members: Sequence[Member]) -> None:
        for member in members:
            if member.is_current and not self.is_cancelled:
                self._sent_back(member.subscriber)


def _tell_changed(member: Member, filter_: Filter | None, place: Cursor) -> None:
    if member.is_current:
        member.subscriber.sink.tell(member.subscriber, changed(filter_, place))


def changed(filter_: Filter | None, place: Cursor | None) -> Notice:
    """What a subscriber is told that has another filter."""
    text = str(filter_) if filter_ is not None else ""
    return Notice("changed", place.text if place else "", {"filter": text})
