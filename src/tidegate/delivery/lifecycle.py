"""Moves subscribers between the states that docs/subscriber-states.md draws."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any

from tidegate.delivery import notices
from tidegate.delivery.batch import ahead
from tidegate.delivery.history import HistoryProvider
from tidegate.delivery.history_sender import HistorySender
from tidegate.delivery.live import OnDispatch
from tidegate.delivery.outputs import Outputs
from tidegate.delivery.snapshot_sender import SnapshotSender
from tidegate.delivery.start import restart_at_beginning
from tidegate.delivery.subscriber import LaneMembership, Sink, Subscriber, SubscriberState
from tidegate.delivery.worker import LOG_BACKOFF, DeliveryContext
from tidegate.delivery.workers import Workers
from tidegate.errors import CursorError, LogError, StreamNotFound, TidegateError, is_permanent
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog

STREAM_POLL_INTERVAL_S = 0.2
"""Between two checks for a stream that does not exist yet."""


class Lifecycle:
    """The state machine of all subscribers of a hub. Every method runs on the event loop."""

    def __init__(
        self,
        log: EventLog,
        outputs: Outputs,
        history: HistoryProvider,
        served: Set[Subscriber],
        *,
        write_batch: AbstractContextManager[None],
        on_dispatch: OnDispatch,
        dismiss: Callable[[Subscriber, str], None],
    ) -> None:
        """`served` is the hub's own set of subscribers. `dismiss` ends one, with a reason."""
        self._log, self._outputs, self._history, self._served, self._dismiss = log, outputs, history, served, dismiss
        self.history_sender = HistorySender(history)
        self.snapshot_sender = SnapshotSender(log, history)
        self._loop = asyncio.get_running_loop()
        self.workers = Workers(
            log,
            outputs,
            DeliveryContext(self._loop, self.overflow, write_batch),
            on_dispatch=on_dispatch,
            on_return=self.reroute,
            on_end_of_log=self._reached_end_of_log,
            on_failure=self._failed,
        )
        self._tasks: set[asyncio.Task[None]] = set()

    # Entering a state ------------------------------------------------------------------

    def route(self, subscribers: Sequence[Subscriber]) -> None:
        """Let each subscriber enter the state that it needs next.

        Those of the same service and with the same cursor object catch up together.
        """
        together: dict[tuple[str, int], list[LaneMembership]] = {}
        for subscriber in subscribers:
            if subscriber.starts_now:
                self._start_in_history(subscriber)
            if subscriber.starts_now:
                self._join([subscriber], None)
            elif subscriber.latest is not None:
                membership = _enter(subscriber, SubscriberState.SNAPSHOT)
                self._spawn(self._send_snapshot(membership))
            elif self._history.needs_history(subscriber):
                membership = _enter(subscriber, SubscriberState.HISTORY)
                subscriber.history = None
                self._spawn(self._send_history(membership))
            else:
                membership = _enter(subscriber, SubscriberState.CATCHING_UP)
                together.setdefault((subscriber.service, id(subscriber.cursor)), []).append(membership)
        for members in together.values():
            self._spawn(self._catch_up(members, members[0].subscriber.cursor))

    def _start_in_history(self, subscriber: Subscriber) -> None:
        """Give a subscriber that starts now a cursor, if the log will not have all of its events."""
        cursor = self._history.now_cursor(subscriber)
        if cursor is not None:
            subscriber.cursor, subscriber.starts_now = cursor, False
            subscriber.sink.send_notice(subscriber, notices.began(cursor))

    def leave_lanes(self, subscribers: Sequence[Subscriber]) -> None:
        """Take subscribers out of their lanes, set each one's cursor to its position, and void pending work for them.

        The caller lets them enter another state.
        """
        members = [subscriber.membership for subscriber in subscribers if subscriber.membership is not None]
        for subscriber in subscribers:
            subscriber.cursor = subscriber.position
            subscriber.membership = None
        self.workers.remove(members)

    def reroute(self, subscriber: Subscriber) -> None:
        """Take a subscriber out of its state, and let it enter the one that it needs next."""
        if subscriber in self._served:
            self.leave_lanes([subscriber])
            self.route([subscriber])

    def overflow(self, sink: Sink) -> None:
        """Let all subscribers of a sink that is full read the log again from their positions, once it has room."""
        sink.epoch += 1
        # The snapshot sender waits for room by itself.
        subscribers = [
            subscriber for subscriber in sink.subscribers if subscriber in self._served and subscriber.latest is None
        ]
        self.leave_lanes(subscribers)
        self.route(subscribers)

    async def change_filter(
        self, subscriber: Subscriber, filter_: Filter | None, on_change: Callable[[], None]
    ) -> Cursor | None:
        """Replace the filter of a subscriber between two events, and return the cursor from which it applies.

        The sink gets a notice `changed`. `on_change` is called with the new filter in place, unless the subscriber has
        left in the meantime; it may be called twice. None: the stream does not exist yet.
        """
        cursor = None
        live = self.workers.running_live().get(subscriber.service)
        # A partial log may lack events that the new filter matches: then the subscriber is routed again.
        is_partial = self._history.is_partial(subscriber.service)
        if subscriber.state is SubscriberState.LIVE and live is not None and not is_partial:
            cursor = await live.change(subscriber, filter_)
            if subscriber not in self._served:  # it has left in the meantime
                return cursor
            on_change()
        if cursor is None:
            subscriber.filter = filter_
            on_change()
            if subscriber.latest is not None:  # the rest of the snapshot was matched with the old filter
                subscriber.latest.discard_snapshot()
                self.reroute(subscriber)
            self.overflow(subscriber.sink)  # drops output that was matched with the old filter
            cursor = subscriber.cursor
            subscriber.sink.send_notice(subscriber, notices.filter_changed(filter_, cursor))
        return cursor

    # The work of each state ----------------------------------------------------------------

    async def _send_history(self, membership: LaneMembership) -> None:
        if await self.history_sender.send_all(membership):
            self.route([membership.subscriber])

    async def _send_snapshot(self, membership: LaneMembership) -> None:
        subscriber = membership.subscriber
        latest = subscriber.latest
        assert latest is not None
        try:
            await self.snapshot_sender.send_all(membership, latest)
        except LogError as problem:
            if membership.is_current:
                self._failed(subscriber, problem)
            return
        if membership.is_current:
            latest.discard_snapshot()
            self.route([subscriber])

    async def _catch_up(self, members: Sequence[LaneMembership], cursor: Cursor | None) -> None:
        """Add members with one sink and one cursor to a lane, once the sink has room and the stream exists."""
        service = members[0].subscriber.service
        await members[0].subscriber.sink.drain()
        if cursor is None:
            cursor = await self._begin_when_possible(service, lambda: any(member.is_current for member in members))
        current = [member for member in members if member.is_current]
        for member in current:
            member.subscriber.cursor = cursor
        if current and cursor is not None:
            self.workers.replay(service).add(current, cursor)

    async def _begin_when_possible(self, service: str, is_wanted: Callable[[], bool]) -> Cursor | None:
        """Return the beginning of a stream when the log answers and has it; None once `is_wanted` returns False."""
        failures = 0
        while is_wanted():
            try:
                return await asyncio.to_thread(self._log.begin, service)
            except StreamNotFound:
                await asyncio.sleep(STREAM_POLL_INTERVAL_S)
            except LogError:
                failures += 1
                await asyncio.sleep(LOG_BACKOFF.delay_s(failures))
        return None

    def _reached_end_of_log(self, members: Sequence[LaneMembership], position: Cursor) -> None:
        for member in members:
            member.subscriber.cursor = ahead(position, member.skip_below or {})
        for member in members:
            if member.skip_below:  # it had received more than its lane has read: rare
                self._join([member.subscriber], member.subscriber.cursor)
        self._join([member.subscriber for member in members if not member.skip_below], position)

    def _join(self, subscribers: Sequence[Subscriber], position: Cursor | None) -> None:
        """Ask the live worker to admit subscribers that have read up to a position; None: that start now."""
        members = [_enter(subscriber, SubscriberState.JOINING) for subscriber in subscribers]
        if members:
            self._spawn(self._wait_for_admission(members, position))

    async def _wait_for_admission(self, members: Sequence[LaneMembership], position: Cursor | None) -> None:
        if await self._is_admitted(members, position):
            return
        for member in members:
            if member.is_current:
                if member.subscriber.starts_now:  # the stream does not exist yet, so that all of its events are new
                    member.subscriber.starts_now = False
                    member.subscriber.sink.send_notice(member.subscriber, notices.began(None))
                self.route([member.subscriber])

    async def _is_admitted(self, members: Sequence[LaneMembership], position: Cursor | None) -> bool:
        """Ask for admission. Those that start now have no position to read from meanwhile, and wait for the log."""
        service, failures = members[0].subscriber.service, 0
        while True:
            try:
                return await self.workers.live(service).join(members, position)
            except LogError as problem:
                if is_permanent(problem) or position is not None or not any(member.is_current for member in members):
                    return False
                failures += 1
                await asyncio.sleep(LOG_BACKOFF.delay_s(failures))
            except TidegateError:
                return False

    # Failures ------------------------------------------------------------------------------

    def _failed(self, subscriber: Subscriber, problem: Exception) -> None:
        """Continue at the beginning if the cursor is gone; wait if the stream is gone or the log does not answer.

        A subscriber that waits keeps its cursor. It is dismissed if its service is gone, or after any other error.
        """
        self.leave_lanes([subscriber])
        subscriber.enter(SubscriberState.CATCHING_UP)
        if isinstance(problem, CursorError):
            self._spawn(self._restart(subscriber))
        elif isinstance(problem, LogError) and subscriber.service in self._outputs:
            self._spawn(self._wait_for_stream(subscriber))
        elif isinstance(problem, TidegateError):
            self._dismiss(subscriber, str(problem))
        else:
            self._dismiss(subscriber, f"internal error: {type(problem).__name__}")

    async def _restart(self, subscriber: Subscriber) -> None:
        failures = 0
        while self._is_waiting(subscriber):
            try:
                await restart_at_beginning(self._log, subscriber)
            except LogError:
                failures += 1
                await asyncio.sleep(LOG_BACKOFF.delay_s(failures))
                continue
            if self._is_waiting(subscriber):
                self.route([subscriber])
            return

    async def _wait_for_stream(self, subscriber: Subscriber) -> None:
        """Route a subscriber with the cursor that it has, once the log answers and has the stream."""
        begin = await self._begin_when_possible(subscriber.service, lambda: self._is_waiting(subscriber))
        if begin is not None and self._is_waiting(subscriber):
            self.route([subscriber])

    def _is_waiting(self, subscriber: Subscriber) -> bool:
        """Return True if a failed subscriber has neither left nor been routed meanwhile."""
        return subscriber in self._served and subscriber.membership is None

    # Tasks ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Cancel all tasks, and wait for the workers to end. The subscribers must be gone."""
        for task in list(self._tasks):
            task.cancel()
        await self.workers.close()
        await self.snapshot_sender.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _enter(subscriber: Subscriber, state: SubscriberState) -> LaneMembership:
    membership = LaneMembership(subscriber)
    subscriber.enter(state, membership)
    return membership
