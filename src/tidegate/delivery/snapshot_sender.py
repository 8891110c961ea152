"""Sends a subscriber the latest event of each key before it is served from its cursor on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from tidegate.delivery.history import HistoryProvider
from tidegate.delivery.latest import Latest, Snapshot, newest
from tidegate.delivery.subscriber import LaneMembership, Subscriber
from tidegate.errors import StreamNotFound
from tidegate.logs import Cursor, EventLog

READER_THREADS = 2
"""Threads that read snapshots. Few, so that they take little time from the live workers."""
MAX_SNAPSHOTS = 8
"""Snapshots in memory at the same time; other subscribers wait for their turn."""
DRAIN_TIMEOUT_S = 10.0
"""How long a snapshot is kept for a sink that is full. After that another subscriber has its turn."""
PAGE_EVENTS = 1_000
"""Events that are rendered and written at a time."""


class SnapshotSender:
    """The work of the state SNAPSHOT. Runs on the event loop; reading and rendering run on threads."""

    def __init__(self, log: EventLog, history: HistoryProvider) -> None:
        self._log, self._history = log, history
        self._readers = ThreadPoolExecutor(READER_THREADS, "latest")
        self._turns = asyncio.Semaphore(MAX_SNAPSHOTS)

    async def send_all(self, membership: LaneMembership, latest: Latest) -> None:
        """Send the whole snapshot, then the notice `latest`.

        Returns early if the membership is void, or if the sink stays full: then the subscriber keeps its `latest`, and
        another snapshot starts at its cursor. Raises `CursorError` if the cursor is not valid in the stream,
        and `LogUnreachable` if the log does not answer.
        """
        await membership.subscriber.sink.drain()
        try:
            async with self._turns:
                await self._send(membership, latest)
        except TimeoutError:
            pass
        except StreamNotFound:  # the stream does not exist yet, so that all of its events are new
            if membership.is_current:
                _finish(membership.subscriber, latest)

    async def _send(self, membership: LaneMembership, latest: Latest) -> None:
        subscriber = membership.subscriber

        def is_wanted() -> bool:
            return membership.is_current

        if not is_wanted():
            return
        cursor = subscriber.cursor
        if cursor is None:
            cursor = await asyncio.to_thread(self._log.begin, subscriber.service)
        snapshot = await self._read(subscriber, latest, cursor, is_wanted)
        if not is_wanted():
            return
        latest.begin(snapshot)
        if snapshot.missed is not None:
            subscriber.sink.send_notice(subscriber, snapshot.missed)
        while not latest.is_sent:
            await asyncio.wait_for(subscriber.sink.drain(), DRAIN_TIMEOUT_S)
            piece = latest.piece(subscriber.service, PAGE_EVENTS)
            rendered = await asyncio.to_thread(membership.render, piece)
            if not is_wanted():
                return
            subscriber.sink.first_unsent = None
            subscriber.sink.write(rendered)
            unsent = subscriber.sink.first_unsent
            subscriber.cursor = latest.advance(len(piece) if unsent is None else unsent) or subscriber.cursor
        _finish(subscriber, latest)

    async def send_page(self, subscriber: Subscriber, latest: Latest, cursor: Cursor) -> None:
        """Send some events of the snapshot to a subscriber that polls, and the notice `latest` behind the last one."""
        if latest.snapshot is None:
            latest.begin(await self._read(subscriber, latest, cursor, lambda: True))
        piece = latest.piece(subscriber.service, PAGE_EVENTS)
        if piece.events:
            subscriber.sink.write(await asyncio.to_thread(LaneMembership(subscriber).render, piece))
            subscriber.cursor = latest.advance(len(piece))
        if latest.is_sent:
            _finish(subscriber, latest)

    async def _read(
        self, subscriber: Subscriber, latest: Latest, cursor: Cursor, is_wanted: Callable[[], bool]
    ) -> Snapshot:
        if self._history.is_historical(cursor):  # a snapshot has only events of the log
            cursor = await asyncio.to_thread(self._log.begin, subscriber.service)
        await self._history.wait_for_sync(subscriber)  # so that no event is missed behind the snapshot
        read = partial(newest, self._log, subscriber.service, cursor, subscriber.wants, latest.key, is_wanted)
        snapshot = await asyncio.get_running_loop().run_in_executor(self._readers, read)
        return replace(snapshot, is_complete=False) if self._history.is_partial(subscriber.service) else snapshot

    async def close(self) -> None:
        """Wait for the reader threads to end. The subscribers must be gone, so that no snapshot is wanted."""
        await asyncio.to_thread(self._readers.shutdown, cancel_futures=True)


def _finish(subscriber: Subscriber, latest: Latest) -> None:
    """Continue behind the snapshot, and send the notice."""
    if latest.snapshot is not None:
        subscriber.cursor = latest.snapshot.end
    subscriber.latest = None
    subscriber.sink.send_notice(subscriber, latest.notice(subscriber.cursor))
