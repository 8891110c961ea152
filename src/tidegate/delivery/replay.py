"""The worker that serves all subscribers of one service that are behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tidegate.delivery.batch import reaches
from tidegate.delivery.lane import Lane
from tidegate.delivery.subscriber import LaneMembership, Subscriber
from tidegate.delivery.worker import MAX_COMMANDS, DeliveryContext, Worker
from tidegate.errors import LogError, TidegateError, is_permanent
from tidegate.logs import Cursor

MAX_PASS_EVENTS = 1_000
"""Events of one pass."""
MAX_LEAD = 1_000_000
"""How far a subscriber may be ahead of a lane and still share it, in the units of the log's offsets."""


class Replay(Worker):
    """Reads the log for all subscribers that are behind. Those with near cursors share a lane."""

    def __init__(
        self,
        service: str,
        new_lane: Callable[[Cursor], Lane],
        context: DeliveryContext,
        on_end_of_log: Callable[[Sequence[LaneMembership], Cursor], None],
        on_failure: Callable[[Subscriber, Exception], None],
    ) -> None:
        """Create a worker without lanes.

        Called on the event loop: `on_end_of_log` with members that have read everything up to a cursor, `on_failure`
        with each subscriber whose lane can't be read.
        """
        super().__init__(service, context, "replay")
        self._new_lane, self._on_end_of_log, self._on_failure = new_lane, on_end_of_log, on_failure
        self._lanes: list[Lane] = []

    # On the event loop -----------------------------------------------------------------

    def add(self, members: Sequence[LaneMembership], position: Cursor) -> None:
        """Serve members from a position on, until they reach the end of the log, their sink is full, or they leave."""
        self._command(lambda: self._add(members, position))

    def leave(self, members: Sequence[LaneMembership]) -> None:
        """Remove members from their lanes before the next pass."""
        self._command(lambda: self._leave(members))

    # On the thread -----------------------------------------------------------------------

    def _work(self) -> bool:
        for lane in list(self._lanes):
            if not lane.members:
                self._close(lane)
                continue
            try:
                step = lane.step(MAX_PASS_EVENTS)
            except TidegateError as problem:
                if isinstance(problem, LogError) and not is_permanent(problem):
                    raise
                self._close(lane)
                self._call(partial(self._report_failure, list(lane.members.values()), problem))
                continue
            self._deliver(lane, step)
            if not step.batch.records and not step.batch.gaps:
                self._release_some(lane)
        return bool(self._lanes)

    def _add(self, members: Sequence[LaneMembership], position: Cursor) -> None:
        lane = next((lane for lane in self._lanes if _may_share(lane, position)), None)
        if lane is None:
            lane = self._new_lane(position)
            self._lanes.append(lane)
        for member in members:
            lane.admit(member, position)
        self._call(partial(self._set_lane, members, lane))

    def _set_lane(self, members: Sequence[LaneMembership], lane: Lane) -> None:
        """Note the lane in its members. Runs on the event loop."""
        for member in members:
            if member.is_current and not self.is_cancelled:
                member.lane = lane
            else:
                self.leave([member])

    def _leave(self, members: Sequence[LaneMembership]) -> None:
        for member in members:
            for lane in self._lanes:
                if lane.remove(member):
                    break

    def _release_some(self, lane: Lane) -> None:
        """Let some members of a lane at the end of the log join live; the others read on until their turn."""
        members = list(lane.members.values())[:MAX_COMMANDS]
        for member in members:
            lane.remove(member)
        self._call(partial(self._report_end_of_log, members, lane))

    def _report_end_of_log(self, members: Sequence[LaneMembership], lane: Lane) -> None:
        current = [member for member in members if member.is_current]
        if current and not self.is_cancelled:
            self._on_end_of_log(current, lane.delivered)

    def _report_failure(self, members: Sequence[LaneMembership], problem: Exception) -> None:
        for member in members:
            if member.is_current and not self.is_cancelled:
                self._on_failure(member.subscriber, problem)

    def _close(self, lane: Lane) -> None:
        self._lanes.remove(lane)
        lane.close()

    def _fail(self, problem: Exception) -> None:
        self._log_failure(problem)
        members = [member for lane in self._lanes for member in lane.members.values()]
        for lane in list(self._lanes):
            self._close(lane)
        self._call(partial(self._report_failure, members, problem))


def _may_share(lane: Lane, position: Cursor) -> bool:
    """Return True if a subscriber at a position may join a lane: it is not behind the lane, and not far ahead."""
    if lane.position.generation != position.generation or not reaches(position, lane.position):
        return False
    return sum(position.offsets.values()) - sum(lane.position.offsets.values()) <= MAX_LEAD
