"""The worker that serves all subscribers of one service that have caught up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tidegate.delivery import notices
from tidegate.delivery.batch import Batch, ahead, reaches
from tidegate.delivery.lane import Lane, Step
from tidegate.delivery.subscriber import LaneMembership, Subscriber, SubscriberState
from tidegate.delivery.worker import POLL_INTERVAL_S, DeliveryContext, Worker
from tidegate.errors import TidegateError
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog

MAX_PASS_EVENTS = 2_000
"""Events of one pass. A pass takes all that have arrived, so that passes grow with the rate of the stream."""
PAUSE_S = 0.003
"""After each pass: other threads run, and the next pass finds more events for little more cost."""

OnDispatch = Callable[[str, float, Sequence[Mapping[str, Any]]], None]
"""Called on the event loop after each pass with output: service, seconds from read to written, events."""


class Live(Worker):
    """Tails one service's output while it has live subscribers.

    One pass is prepared while the one before is written, and no more: the longer the sockets take, the more events the
    next pass has, and the fewer writes there are for the same number of deliveries.
    """

    max_pending_passes = 1

    def __init__(
        self,
        log: EventLog,
        service: str,
        new_lane: Callable[[Cursor], Lane],
        context: DeliveryContext,
        on_return: Callable[[Subscriber], None],
        on_dispatch: OnDispatch,
    ) -> None:
        """`on_return` is called on the event loop with each subscriber of a lane that has failed."""
        super().__init__(service, context, "live")
        self._log, self._new_lane, self._on_return, self._on_dispatch = log, new_lane, on_return, on_dispatch
        self._lane: Lane | None = None
        self.events = 0
        """Number of events read so far."""

    @property
    def matched(self) -> int:
        """Number of pairs of an event and a subscriber that matched so far."""
        return 0 if self._lane is None else self._lane.matched

    # On the event loop -----------------------------------------------------------------

    async def join(self, members: Sequence[LaneMembership], position: Cursor | None) -> bool:
        """Admit members that have read up to a position; None: that start with the next event.

        Returns False if they have more to read first, each from its own cursor. Raises `TidegateError` if the stream
        can't be read.
        """
        done: asyncio.Future[bool] = self._loop.create_future()
        self._command(lambda: self._join(members, position, done))
        return await done

    def leave(self, members: Sequence[LaneMembership]) -> None:
        """Remove members from the lane before the next pass."""
        self._command(lambda: self._leave(members))

    async def change(self, subscriber: Subscriber, filter_: Filter | None) -> Cursor | None:
        """Replace the filter of a live subscriber between two passes, and send a notice `changed`.

        Returns the cursor from which the filter applies; None if the subscriber is not live any more.
        """
        done: asyncio.Future[Cursor | None] = self._loop.create_future()
        member = subscriber.membership
        assert member is not None
        self._command(lambda: self._change(member, filter_, done))
        return await done

    def _write(self, lane: Lane, step: Step) -> None:
        super()._write(lane, step)
        if step.outputs:
            self._on_dispatch(self.service, time.perf_counter() - step.started_at, step.batch.events)

    # On the thread -----------------------------------------------------------------------

    def _work(self) -> bool:
        lane = self._lane
        if lane is None or not lane.members:
            return False
        timeout_s = POLL_INTERVAL_S if self._commands.empty() else 0.0  # commands do not wait for events
        if self._log.wait(self.service, lane.position, timeout_s):
            step = lane.step(MAX_PASS_EVENTS)
            self.events += len(step.batch)
            self._deliver(lane, step)
            time.sleep(PAUSE_S)
        return True

    def _join(self, members: Sequence[LaneMembership], position: Cursor | None, done: asyncio.Future[bool]) -> None:
        try:
            if self.is_cancelled:
                self._answer(done, False)
                return
            lane = self._open_lane(position)
            began = lane.position if position is None else None
            position = position or lane.position
            if not reaches(position, lane.position):
                position = self._catch_up(lane, members, position)
            if reaches(position, lane.position):
                for member in members:
                    lane.admit(member, position)
                self._call(partial(self._enter_live, lane, members, began, done))
                return
        except TidegateError as problem:
            self._answer_error(done, problem)
            return
        self._answer(done, False)

    def _open_lane(self, position: Cursor | None) -> Lane:
        """Return the lane; if it has no members, a new one at the position, or at the end of the log."""
        if self._lane is None or not self._lane.members:
            if self._lane is not None:
                self._lane.close()
            self._lane = self._new_lane(position or self._log.end(self.service))
        return self._lane

    def _catch_up(self, lane: Lane, members: Sequence[LaneMembership], position: Cursor) -> Cursor:
        """Deliver the events that were appended since the members reached the end, and return their new position."""
        batch = lane.read(position, MAX_PASS_EVENTS)
        for member in members:
            self._call(partial(self._write_to, member, batch, member.render(batch)))
        return batch.end

    def _write_to(self, member: LaneMembership, batch: Batch, rendered: Any) -> None:
        """Write a batch to the sink of one member. Runs on the event loop."""
        if not member.is_current or self.is_cancelled:
            return
        sink = member.sink
        if rendered is not None and not sink.write(rendered) and sink.first_unsent is not None:
            member.subscriber.cursor = batch.before(sink.first_unsent)
            self._on_overflow(sink)
        else:  # a sink that took all and is full says so at the next write
            member.subscriber.cursor = batch.end

    def _enter_live(
        self, lane: Lane, members: Sequence[LaneMembership], began: Cursor | None, done: asyncio.Future[bool]
    ) -> None:
        """Let admitted members enter LIVE. Runs on the event loop."""
        for member in members:
            if member.is_current and not self.is_cancelled:
                member.subscriber.enter(SubscriberState.LIVE, member)
                member.lane = lane
                member.subscriber.starts_now = False
                if began is not None:
                    member.subscriber.sink.send_notice(member.subscriber, notices.began(began))
            else:  # it has left in the meantime
                self.leave([member])
        if not done.done():
            done.set_result(True)

    def _leave(self, members: Sequence[LaneMembership]) -> None:
        for member in members:
            if self._lane is not None:
                self._lane.remove(member)

    def _change(self, member: LaneMembership, filter_: Filter | None, done: asyncio.Future[Cursor | None]) -> None:
        lane = self._lane
        if lane is None or self.is_cancelled or not lane.remove(member):
            self._answer(done, None)
            return
        cursor = ahead(lane.position, member.skip_below or {})
        member.subscriber.filter = filter_
        lane.admit(member, cursor)
        # The notice is a call like the output of passes, so that it arrives between the right two.
        self._call(partial(_send_changed, member, filter_, cursor))
        self._answer(done, cursor)

    def _fail(self, problem: Exception) -> None:
        """Close the lane, and route its subscribers again. A cursor that is not valid shows up when it is read."""
        self._log_failure(problem)
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()
            self._call(partial(self._return_members, list(lane.members.values())))

    def _return_members(self, members: Sequence[LaneMembership]) -> None:
        for member in members:
            if member.is_current and not self.is_cancelled:
                self._on_return(member.subscriber)


def _send_changed(member: LaneMembership, filter_: Filter | None, cursor: Cursor) -> None:
    if member.is_current:
        member.subscriber.sink.send_notice(member.subscriber, notices.filter_changed(filter_, cursor))
