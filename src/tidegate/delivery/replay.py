"""One service's events to all who are behind: those who are near each other read together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tidegate.delivery.batch import reaches
from tidegate.delivery.lane import Lane
from tidegate.delivery.subscriber import Member, Subscriber
from tidegate.delivery.worker import COMMANDS, Handing, Worker
from tidegate.errors import TidegateError
from tidegate.logs import Cursor

MOST = 1_000
"""Events of one pass."""
NEAR = 1_000_000
"""How far ahead of a lane, in the log's own measure, a subscriber may be and wait for it."""


class Replay(Worker):
    """Reads on for everybody who is behind, lane by lane, and says when some have reached the end."""

    def __init__(
        self,
        service: str,
        begin: Callable[[Cursor], Lane],
        handing: Handing,
        arrived: Callable[[Sequence[Member], Cursor], None],
        failed: Callable[[Subscriber, Exception], None],
    ) -> None:
        """`begin` makes a lane.

        In the loop: `arrived` is told who has seen all up to a position, `failed` who can't go on.
        """
        super().__init__(service, handing, "replay")
        self._begin, self._arrived, self._failed = begin, arrived, failed
        self._lanes: list[Lane] = []

    # For the event loop ---------------------------------------------------------------

    def add(self, members: Sequence[Member], position: Cursor) -> None:
        """Serve members from a position on, until they have reached the end or their sink is full."""
        self._tell(lambda: self._add(members, position))

    def leave(self, members: Sequence[Member]) -> None:
        """Let go of members: soon nothing more is made for them."""
        self._tell(lambda: self._leave(members))

    # The thread -------------------------------------------------------------------------

    def _work(self) -> bool:
        for lane in list(self._lanes):
            if not lane.members:
                self._end(lane)
                continue
            try:
                step = lane.step(MOST)
            except TidegateError as problem:
                self._end(lane)
                self._post(partial(self._give_up, list(lane.members.values()), problem))
                continue
            self._pass_on(lane, step)
            if not step.batch.records and not step.batch.gaps:
                self._let_go(lane)
        return bool(self._lanes)

    def _add(self, members: Sequence[Member], position: Cursor) -> None:
        lane = next((each for each in self._lanes if _is_near(each, position)), None)
        if lane is None:
            lane = self._begin(position)
            self._lanes.append(lane)
        for member in members:
            lane.admit(member, position)
        self._post(partial(self._came_in, members, lane))

    def _came_in(self, members: Sequence[Member], lane: Lane) -> None:
        for member in members:
            if member.is_current and not self.is_cancelled:
                member.lane = lane
            else:
                self.leave([member])

    def _leave(self, members: Sequence[Member]) -> None:
        for member in members:
            for lane in self._lanes:
                if lane.remove(member):
                    break

    def _let_go(self, lane: Lane) -> None:
        """Some of a lane that has reached the end may come live; the others read on meanwhile."""
        some = list(lane.members.values())[:COMMANDS]
        for each in some:
            lane.remove(each)
        self._post(partial(self._have_arrived, some, lane))

    def _have_arrived(self, some: Sequence[Member], lane: Lane) -> None:
        here = [each for each in some if each.is_current]
        if here and not self.is_cancelled:
            self._arrived(here, lane.delivered)

    def _give_up(self, members: Sequence[Member], problem: Exception) -> None:
        for each in members:
            if each.is_current and not self.is_cancelled:
                self._failed(each.subscriber, problem)

    def _end(self, lane: Lane) -> None:
        self._lanes.remove(lane)
        lane.close()

    def _fail(self, problem: Exception) -> None:
        self._complain(problem)
        members = [each for lane in self._lanes for each in lane.members.values()]
        for lane in list(self._lanes):
            self._end(lane)
        self._post(partial(self._give_up, members, problem))


def _is_near(lane: Lane, position: Cursor) -> bool:
    """Whether somebody at a position may join a lane: it is not behind it, nor far ahead."""
    if lane.position.generation != position.generation or not reaches(position, lane.position):
        return False
    return sum(position.offsets.values()) - sum(lane.position.offsets.values()) <= NEAR
