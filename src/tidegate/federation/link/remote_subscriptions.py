"""Local subscriptions to other brokers' services: requests their filters, and synchronizes the mirrors.

A mirror holds the events that were requested, while they were requested. After the *sync point* of a filter it holds
all events of that filter. A subscriber reads earlier events from the origin, and later ones from the mirror.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial

from tidegate.errors import FederationError, TidegateError
from tidegate.federation.link import history
from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.coverage import SyncPoint, SyncPoints, at_origin
from tidegate.federation.link.history_exchange import HistoryExchange
from tidegate.federation.link.mirrors import Mirrors
from tidegate.federation.link.needs import Needs
from tidegate.federation.link.offers import everything, is_portable
from tidegate.federation.link.persistence import LinkStateStore
from tidegate.federation.link.routing import Routing
from tidegate.federation.link.wire import LinkClosed
from tidegate.filters import Filter
from tidegate.logs import Cursor
from tidegate.logs.gap_records import SYNC_RECORD

FAR_FUTURE_US = 4_102_444_800_000_000
"""A time, in microseconds, at which no event exists: 2100. History from there is empty, but says where it ends."""
RESTORED_INTERVAL_S = 0.1
"""Between two looks for a sync point that another gateway of the broker has found."""
FILTERS_PER_STEP = 50
"""Filters that get a sync point before the loop may do other work: each takes about 0.1 ms."""


class RemoteSubscriptions:
    """Requests what local subscribers need of other brokers. Used on the event loop only."""

    def __init__(
        self,
        context: LinkContext,
        routing: Routing,
        store: LinkStateStore,
        mirrors: Mirrors,
        exchange: HistoryExchange,
        needs: Needs,
    ) -> None:
        self._context, self._routing, self._store = context, routing, store
        self._mirrors, self._history, self._needs = mirrors, exchange, needs
        self._synchronizing: set[str] = set()
        """Services with a running `_synchronize`."""
        self._new_sync_point = asyncio.Event()
        """Set and replaced by another event when sync points were added."""

    # Needs -------------------------------------------------------------------------------

    def hold(self, holder: Hashable, service: str, filter_: Filter | None) -> None:
        """Request the events of a filter for a holder, in place of its previous filter. None: all events.

        A filter that is too long for neighbours is replaced by one that matches everything. Does
        nothing if the service is unknown.
        """
        remote = self._context.remotes.get(service)
        if remote is not None:
            max_bytes = self._context.settings.bounds.filter_bytes
            is_sent = filter_ is not None and is_portable(filter_, max_bytes)
            self._needs.hold(holder, service, filter_ if is_sent and filter_ else everything(remote.schema))

    def release(self, holder: Hashable) -> None:
        """Release the filter of a holder. It is still requested for `LinkSettings.linger_s`."""
        self._needs.release(holder)

    def on_need_change(self, service: str, id_: str, filter_: Filter | None) -> None:
        """Request a filter that is needed from now on, or, by None, stop requesting it. Called by `Needs`."""
        self._routing.send(self._context.broker.set_all(service, {id_: filter_}))
        self._routing.reset_unrequested(service)
        runtime = self._context.runtime
        if filter_ is not None and service not in self._synchronizing and not runtime.is_closed:
            self._synchronizing.add(service)
            runtime.spawn(self._synchronize(service))

    # Sync points ---------------------------------------------------------------------------

    async def _synchronize(self, service: str) -> None:
        """Find sync points until all needed filters of a service have one; retry while the origin can't be asked."""
        has_failed = False
        try:
            while filters := self._needs.without_sync_point(service):
                try:
                    if has_failed:  # test the path first: each attempt below writes a note to the mirror
                        await self._history.read(service, None, history.at_moment(FAR_FUTURE_US), None)
                    await self._find_sync_point(service, filters)
                    has_failed = False
                except (TidegateError, LinkClosed, TimeoutError):
                    has_failed = True
                    await asyncio.sleep(self._context.settings.first_retry_s)
        finally:
            self._synchronizing.discard(service)

    async def _find_sync_point(self, service: str, filters: Sequence[Filter]) -> None:
        """Ask the origin where it started to forward these filters, and find the same position in the mirror."""
        context, remote = self._context, self._context.remotes.get(service)
        if remote is None or not self._routing.is_in_sync(service, remote.via):
            raise LinkClosed(f"no neighbour that offers {service!r} is in sync")
        await self._mirrors.create(service)
        await context.runtime.in_thread(partial(context.log.append, service, "0", [SYNC_RECORD]))
        since = await self._mirrors.end(service)
        page = await self._history.read(service, None, history.at_moment(FAR_FUTURE_US), None)
        position = await self._mirrors.position(service, since, page.until)
        if position is None:
            raise FederationError(f"there is no mirror of {service!r} yet")
        point = SyncPoint(position, page.until)
        points = self._store.sync_points.setdefault(service, SyncPoints())
        if points.add(point) and remote.via in context.neighbours:
            context.neighbours[remote.via].unsaved["joints", service] = points.to_json()
        for at in range(0, len(filters), FILTERS_PER_STEP):
            self._needs.add_sync_point(service, filters[at : at + FILTERS_PER_STEP], point)
            await asyncio.sleep(0)
        await self._store.save()  # before a subscriber gets a cursor that relies on it
        self._new_sync_point.set()
        self._new_sync_point = asyncio.Event()

    def sync_point(self, service: str, filter_: Filter | None) -> SyncPoint | None:
        """Return the position after which a mirror has all events of a filter; None if it or the service is unknown."""
        remote = self._context.remotes.get(service)
        if remote is None:
            return None
        return self._needs.sync_point(service, everything(remote.schema) if filter_ is None else filter_)

    async def wait_for_sync_point(self, service: str, filter_: Filter | None, timeout_s: float) -> bool:
        """Wait until a filter has a sync point. Returns False after the timeout, or at once while the link is down.

        The filter is held meanwhile, so that it is requested.
        """
        remote, holder = self._context.remotes.get(service), object()
        if remote is None or self.sync_point(service, filter_) is not None:
            return remote is not None
        self.hold(holder, service, filter_)
        try:
            async with asyncio.timeout(timeout_s):
                while self._may_synchronize(remote.via) and self.sync_point(service, filter_) is None:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(None if self._context.has_lease else RESTORED_INTERVAL_S):
                            await self._new_sync_point.wait()
        except (TimeoutError, KeyError):
            pass
        finally:
            self.release(holder)
        return self.sync_point(service, filter_) is not None

    def _may_synchronize(self, neighbour: str) -> bool:
        """True if the link is up, or another gateway holds the links: then its sync points come from the registry."""
        return not self._context.has_lease or self._context.neighbours[neighbour].session is not None

    async def origin_position(self, service: str, cursor: Cursor) -> Cursor | None:
        """Return the position in history of a cursor in a mirror. None: it can't be determined."""
        point = self._store.sync_points.get(service, SyncPoints()).before(cursor)
        find = partial(at_origin, self._context.log, service, point, cursor)
        return await self._context.runtime.in_thread(find)
