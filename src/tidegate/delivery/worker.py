"""A thread that reads, matches and renders for one service, and its queues to and from the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
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
from tidegate.delivery.notices import gap
from tidegate.delivery.subscriber import LaneMembership, Sink
from tidegate.errors import LogError, TidegateError, is_permanent
from tidegate.logs import Cursor
from tidegate.timing import Backoff

POLL_INTERVAL_S = 0.02
"""How long the thread waits for events, and so how long a command waits if none comes."""
IDLE_TIMEOUT_S = 1.0
"""How long the thread lives without work."""
MAX_COMMANDS = 50
"""Commands that run between two passes, so that many new subscribers do not delay those that are served."""

LOG_BACKOFF = Backoff(first_s=0.1, max_s=2.0)
"""Pauses while the log does not answer."""

_log = structlog.get_logger("tidegate.delivery")


@dataclass(frozen=True, slots=True)
class DeliveryContext:
    """What all workers of a hub share."""

    loop: asyncio.AbstractEventLoop
    on_overflow: Callable[[Sink], None]
    """Called on the event loop with a sink that is full."""
    write_batch: AbstractContextManager[None]
    """All output of a pass is written inside this context, so that sockets can send it at its end."""


class Worker(ABC):
    """Has a thread while there is work.

    The thread owns the lanes; the event loop owns the sinks and the states of subscribers. They exchange commands (from
    the loop to the thread) and calls (from the thread to the loop), both in order.
    """

    max_pending_passes = 8
    """Passes whose output the event loop has not written yet; with more the thread waits."""

    def __init__(self, service: str, context: DeliveryContext, name: str) -> None:
        """`name` is the first part of the thread's name."""
        self.service, self._name = service, name
        self._loop, self._on_overflow, self._write_batch = context.loop, context.on_overflow, context.write_batch
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending_passes = threading.Semaphore(self.max_pending_passes)
        self.is_cancelled = False

    # On the event loop -----------------------------------------------------------------

    def cancel(self) -> None:
        """Let the thread end soon, and drop output that is not written yet."""
        self.is_cancelled = True

    def close(self) -> None:
        """Cancel, and wait until the thread has ended. Blocks."""
        self.cancel()
        if self._thread is not None:
            self._thread.join()

    def _command(self, command: Callable[[], None]) -> None:
        """Run a command on the thread, after those before it. Starts the thread if there is none."""
        self._commands.put(command)
        if self._thread is None and not self.is_cancelled:
            self._thread = threading.Thread(target=self._run, name=f"{self._name}-{self.service}", daemon=True)
            self._thread.start()

    def _write(self, lane: Lane, step: Step) -> None:
        """Write the output of a pass to the sinks."""
        self._pending_passes.release()
        if self.is_cancelled:
            return
        lane.delivered = step.batch.end
        with self._write_batch:
            for sink, epoch, rendered in step.outputs:
                if sink.epoch == epoch and not sink.write(rendered):
                    if sink.first_unsent is not None:
                        _rewind(sink, lane, step.batch.before(sink.first_unsent))
                    self._on_overflow(sink)

    # On the thread -----------------------------------------------------------------------

    @abstractmethod
    def _work(self) -> bool:
        """Do one pass. Returns False if there is no subscriber to work for.

        If it raises `LogUnreachable`, its lanes are where they were before, and it is called again after a pause.
        """

    @abstractmethod
    def _fail(self, problem: Exception) -> None:
        """Close all lanes after an exception, and return their subscribers to the event loop."""

    def _run(self) -> None:
        idle_s, failures = 0.0, 0
        while not self.is_cancelled:
            try:
                self._run_commands()
                is_busy = self._work()
                failures = 0
                if is_busy:
                    idle_s = 0.0
                    continue
            except Exception as problem:
                if isinstance(problem, LogError) and not is_permanent(problem):
                    failures += 1
                    self._wait_for_log(problem, failures)
                    continue
                self._fail(problem)
            idle_s += POLL_INTERVAL_S
            if idle_s >= IDLE_TIMEOUT_S and self._may_end():
                return
            with suppress(Empty):
                self._commands.get(timeout=POLL_INTERVAL_S)()
        self._run_last_commands()

    def _wait_for_log(self, problem: LogError, failures: int) -> None:
        """Pause before the next pass, since the log does not answer; commands run meanwhile. Lanes keep their members.

        A subscriber that left its lane and came back would read its last events again, or the whole stream.
        """
        if failures == 1:
            _log.warning("the log does not answer: subscribers wait", service=self.service, problem=str(problem))
        until = time.monotonic() + LOG_BACKOFF.delay_s(failures)
        while not self.is_cancelled and (left_s := until - time.monotonic()) > 0:
            with suppress(Empty):
                self._commands.get(timeout=min(left_s, POLL_INTERVAL_S))()

    def _run_last_commands(self) -> None:
        """Run the commands that are left after a cancellation, so that each one that is awaited gets its answer."""
        with suppress(Empty):
            while True:
                self._commands.get_nowait()()

    def _run_commands(self) -> None:
        for _ in range(MAX_COMMANDS):
            if self._commands.empty():
                return
            self._commands.get()()

    def _may_end(self) -> bool:
        """Return True if the thread may end. The event loop decides, as it alone adds commands."""
        decided, may_end = threading.Event(), False

        def decide() -> None:
            nonlocal may_end
            may_end = self._commands.empty()
            if may_end:
                self._thread = None
            decided.set()

        self._call(decide)
        return decided.wait(IDLE_TIMEOUT_S) and may_end

    def _deliver(self, lane: Lane, step: Step) -> None:
        """Let the event loop write the output of a pass; wait while too many passes are pending."""
        while not self._pending_passes.acquire(timeout=IDLE_TIMEOUT_S):
            if self.is_cancelled:
                return
        if step.batch.gaps:
            self._call(partial(_send_gap, list(lane.members.values()), step.batch))
        self._call(partial(self._write, lane, step))
        for member in lane.caught_up_members():
            self._call(partial(_skip_nothing, member))

    def _call(self, call: Callable[[], Any]) -> None:
        """Run a call on the event loop, after those before it."""
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the event loop is closed
            self.is_cancelled = True

    def _answer(self, done: asyncio.Future[Any], value: Any) -> None:
        """Set the result of a future of the event loop."""
        self._call(lambda: None if done.done() else done.set_result(value))

    def _answer_error(self, done: asyncio.Future[Any], problem: Exception) -> None:
        """Set the exception of a future of the event loop."""
        self._call(lambda: None if done.done() else done.set_exception(problem))

    def _log_failure(self, problem: Exception) -> None:
        """Log an error of ours. Those of streams are sent to the subscribers as notices."""
        if not isinstance(problem, TidegateError):
            _log.error("a pass has failed", service=self.service, exc_info=problem)


def _rewind(sink: Sink, lane: Lane, cursor: Cursor) -> None:
    """Let the subscribers of a sink that took only a part of a batch continue inside it."""
    for subscriber in sink.subscribers:
        membership = subscriber.membership
        if membership is not None and membership.lane is lane:
            skip_below = membership.skip_below
            subscriber.cursor, membership.lane = ahead(cursor, skip_below) if skip_below else cursor, None


def _skip_nothing(member: LaneMembership) -> None:
    member.skip_below = None


def _send_gap(members: list[LaneMembership], batch: Batch) -> None:
    notice = gap(batch)
    for member in members:
        if member.is_current:
            member.subscriber.sink.send_notice(member.subscriber, notice)
