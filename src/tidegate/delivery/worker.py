"""A thread that serves subscribers of one service, and how it and the event loop talk."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import structlog

from tidegate.delivery.batch import Batch, ahead
from tidegate.delivery.lane import Lane, Step
from tidegate.delivery.subscriber import Member, Notice, Sink
from tidegate.errors import TidegateError
from tidegate.logs import Cursor

LOOK_S = 0.02
"""How long a command waits where no event comes."""
LINGER_S = 1.0
"""How long the thread stays when it has nothing to do."""
COMMANDS = 50
"""Commands that are obeyed between two passes: who is served must not wait for all who come at once."""

LOST = "lost at the service's origin: older than what it keeps, or its stream was made anew"
"""Why a subscriber of another broker's service is told of a gap."""

_log = structlog.get_logger("tidegate.delivery")


@dataclass(frozen=True, slots=True)
class Handing:
    """How the loop takes what passes have found."""

    loop: asyncio.AbstractEventLoop
    overflowed: Callable[[Sink], None]
    """Called, in the loop, with a sink that is full."""
    together: AbstractContextManager[None]
    """All of a pass is written within one block: sockets may send it at its end."""


class Worker(ABC):
    """Has a thread while there is something to do.

    The thread owns lanes; the loop owns sinks and the states of subscribers.
    They meet in two queues, both in order: commands one way, calls the other.
    """

    under_way = 8
    """Passes whose output the loop has not taken yet; then the thread waits for it."""

    def __init__(self, service: str, handing: Handing, name: str) -> None:
        self.service, self._name = service, name
        self._loop, self._overflowed, self._together = handing.loop, handing.overflowed, handing.together
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._under_way = threading.Semaphore(self.under_way)
        self.is_cancelled = False

    # For the event loop ---------------------------------------------------------------

    def cancel(self) -> None:
        """Hand nothing over any more, also of what is on its way; the thread ends."""
        self.is_cancelled = True

    def close(self) -> None:
        """Wait until the thread has ended."""
        self.cancel()
        if self._thread is not None:
            self._thread.join()

    def _tell(self, command: Callable[[], None]) -> None:
        self._commands.put(command)
        if self._thread is None and not self.is_cancelled:
            self._thread = threading.Thread(target=self._run, name=f"{self._name}-{self.service}", daemon=True)
            self._thread.start()

    def _hand(self, lane: Lane, step: Step) -> None:
        self._under_way.release()
        if self.is_cancelled:
            return
        lane.delivered = step.batch.end
        with self._together:
            for sink, epoch, rendered in step.outputs:
                if sink.epoch == epoch and not sink.write(rendered):
                    if sink.cut is not None:
                        _put_back(sink, lane, step.batch.before(sink.cut))
                    self._overflowed(sink)

    # The thread -------------------------------------------------------------------------

    @abstractmethod
    def _work(self) -> bool:
        """Do some work; false: there is nobody to work for."""

    @abstractmethod
    def _fail(self, problem: Exception) -> None:
        """Give everybody back: their lanes can't go on."""

    def _run(self) -> None:
        idle_s = 0.0
        while not self.is_cancelled:
            try:
                self._obey()
                if self._work():
                    idle_s = 0.0
                    continue
            except Exception as problem:
                self._fail(problem)
            idle_s += LOOK_S
            if idle_s >= LINGER_S and self._may_end():
                return
            with suppress(Empty):
                self._commands.get(timeout=LOOK_S)()
        self._dismiss()

    def _dismiss(self) -> None:
        """Obey what was told before the end: whoever waits for an answer gets one."""
        with suppress(Empty):
            while True:
                self._commands.get_nowait()()

    def _obey(self) -> None:
        for _ in range(COMMANDS):
            if self._commands.empty():
                return
            self._commands.get()()

    def _may_end(self) -> bool:
        """End only where no command can come unseen: the loop itself looks."""
        looked, ends = threading.Event(), False

        def look() -> None:
            nonlocal ends
            ends = self._commands.empty()
            if ends:
                self._thread = None
            looked.set()

        self._post(look)
        return looked.wait(LINGER_S) and ends

    def _pass_on(self, lane: Lane, step: Step) -> None:
        """Let the loop hand over what a pass has found."""
        while not self._under_way.acquire(timeout=LINGER_S):
            if self.is_cancelled:
                return
        if step.batch.gaps:
            self._post(partial(_tell_gap, list(lane.members.values()), step.batch))
        self._post(partial(self._hand, lane, step))
        for member in lane.lowered():
            self._post(partial(_forget_floor, member))

    def _post(self, call: Callable[[], Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            self.is_cancelled = True

    def _answer(self, done: asyncio.Future[Any], value: Any) -> None:
        self._post(lambda: None if done.done() else done.set_result(value))

    def _complain(self, problem: Exception) -> None:
        """A fault of ours is told to whoever runs this; what streams do is told to subscribers."""
        if not isinstance(problem, TidegateError):
            _log.error("a pass has failed", service=self.service, exc_info=problem)

    def _refuse(self, done: asyncio.Future[Any], problem: Exception) -> None:
        self._post(lambda: None if done.done() else done.set_exception(problem))


def _put_back(sink: Sink, lane: Lane, place: Cursor) -> None:
    """Those of a lane whose sink has not taken all of a batch go on within it."""
    for each in sink.subscribers:
        if each.member is not None and each.member.lane is lane:
            floor = each.member.floor
            each.place, each.member.lane = ahead(place, floor) if floor else place, None


def _forget_floor(member: Member) -> None:
    member.floor = None


def _tell_gap(members: list[Member], batch: Batch) -> None:
    notice = gap(batch)
    for each in members:
        if each.is_current:
            each.subscriber.sink.tell(each.subscriber, notice)


def gap(batch: Batch) -> Notice:
    """What was missed before a batch."""
    missed = [
        {"partition": each.partition, "missed_from": each.missed_from, "resumed_at": each.resumed_at}
        for each in batch.gaps
    ]
    here = {each.partition: each.resumed_at for each in batch.gaps if not each.at_origin}
    reason = "older than what the stream keeps" if here else LOST
    return Notice("gap", ahead(batch.start, here).text, {"reason": reason, "missed": missed})
