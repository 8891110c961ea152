"""Appends the events that neighbours forward to the local mirrors of other brokers' services."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tidegate.errors import FederationError, StreamNotFound, TidegateError
from tidegate.federation.link import history
from tidegate.federation.link.bounds import NeighbourFault
from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.mirror import Mirror
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.link.persistence import LinkStateStore
from tidegate.federation.link.record_matcher import RecordMatcher
from tidegate.federation.link.routing import Routing
from tidegate.filters import Filter
from tidegate.logs import Cursor, RetentionLimits

UNWANTED_UNITS = 20
"""Units of work that a neighbour is charged for a batch of events that were not requested."""

Selector = Callable[[Sequence[bytes]], Sequence[int]]
"""Returns the indices of the records that are wanted."""


class Mirrors:
    """All mirrors of other brokers' services. Used on the event loop; the log is used in threads."""

    def __init__(self, context: LinkContext, routing: Routing, store: LinkStateStore) -> None:
        self._context, self._routing, self._store = context, routing, store
        self._created: set[str] = set()

    async def receive(self, neighbour: Neighbour, head: Mapping[str, Any], records: list[bytes]) -> None:
        """Append a batch of events and confirm it with `taken`. Events that were not requested are dropped.

        Raises `NeighbourFault` if a record is not one of the service, and `FederationError` if the log fails.
        """
        service, dropped = head["service"], len(records)
        if service in neighbour.offers and self._routing.has_requested(service, neighbour.name):
            selector = self._selector(neighbour, service) if head.get("coarse") else None
            dropped = await self.append(neighbour, service, records, head["cursor"], selector)
        elif neighbour.session is not None:
            await neighbour.session.charge(UNWANTED_UNITS)
        neighbour.ended.dropped += dropped
        if neighbour.session is not None:
            report = {"type": "taken", "service": service, "events": len(records), "dropped": dropped}
            neighbour.session.send(report)

    def _selector(self, neighbour: Neighbour, service: str) -> Selector:
        """Return a function that selects the events that match a filter that we have requested.

        Every subscriber's filter is among the requested ones from the moment it is needed. A subscriber that arrives
        while a batch is processed misses nothing: what the other end matches for it comes in later batches.
        """
        schema, matcher = neighbour.offers[service].schema, neighbour.record_matchers.get(service)
        if matcher is None or matcher.schema != schema:
            if matcher is not None:
                matcher.close()
            matcher = neighbour.record_matchers[service] = RecordMatcher(schema)
            neighbour.matcher_versions.pop(service, None)
        link = self._context.broker.link(neighbour.name)
        version = link.requested_version(service)
        if neighbour.matcher_versions.get(service) == version:
            return matcher.match
        neighbour.matcher_versions[service] = version
        return partial(_select, matcher, link.requested(service))

    async def append(
        self, neighbour: Neighbour, service: str, records: list[bytes], cursor: str, selector: Selector | None
    ) -> int:
        """Append events to the mirror of a service. Returns how many were dropped, since no filter requests them."""
        runtime = self._context.runtime
        try:
            mirror = neighbour.mirrors.get(service) or await self._open(neighbour, service)
            is_first = mirror.upstream is None
            appended = await runtime.in_thread(partial(mirror.append, records, cursor, selector))
        except FederationError as problem:
            neighbour.mirrors.pop(service, None)
            neighbour.refusals["record"] += 1
            raise NeighbourFault(str(problem)) from problem
        except TidegateError as problem:
            neighbour.mirrors.pop(service, None)  # it is opened again with its saved progress
            raise FederationError(f"can't append to {service!r}: {problem}") from problem
        neighbour.ended.received += appended.added
        neighbour.ended.repeated += appended.repeated
        neighbour.refusals["signature"] += appended.unsigned
        neighbour.stale_mirrors.add(service)
        if is_first:
            await self._store.save()
        return appended.dropped

    async def _open(self, neighbour: Neighbour, service: str) -> Mirror:
        verifier, max_partitions = self._context.trust.verifier(service), self._context.settings.bounds.partitions
        progress = neighbour.saved_progress.get(service)
        open_ = partial(Mirror, self._context.log, service, progress, verifier, max_partitions)
        mirror = neighbour.mirrors[service] = await self._context.runtime.in_thread(open_)
        return mirror

    async def close(self, neighbour: Neighbour, service: str) -> None:
        """Close an open mirror and keep its progress."""
        mirror = neighbour.mirrors.pop(service)
        neighbour.saved_progress[service] = progress = await self._context.runtime.in_thread(mirror.close)
        neighbour.stale_mirrors.discard(service)
        neighbour.unsaved["mirror", service] = progress.to_json()
        matcher = neighbour.record_matchers.pop(service, None)
        if matcher is not None:
            matcher.close()

    async def create(self, service: str) -> None:
        """Create the stream of a mirror, so that it has cursors, unless it exists or the service is unknown."""
        if service in self._context.remotes and service not in self._created:
            await self._context.runtime.in_thread(partial(self._context.log.create, service))
            self._created.add(service)

    async def end(self, service: str) -> Cursor | None:
        """Return the end of a mirror. None: it does not exist yet. Raises `LogUnreachable`."""
        with suppress(StreamNotFound):
            return await self._context.runtime.in_thread(partial(self._context.log.end, service))
        return None

    async def position(self, service: str, since: Cursor | None, until: Cursor | None) -> Cursor | None:
        """Return where a mirror continues after history was read up to `until`, which is a cursor at the origin.

        The search starts at `since` in the mirror. None: the mirror does not exist. Raises
        `LogUnreachable`.
        """
        return await self._context.runtime.in_thread(
            partial(history.mirrored, self._context.log, service, since, until)
        )

    async def expire(self) -> None:
        """Delete the events of all mirrors that are older or more than their service's retention allows."""
        for service, remote in list(self._context.remotes.items()):
            retention = remote.service.retention
            limits = RetentionLimits(retention.age_s, retention.size_bytes)
            with suppress(TidegateError):
                await self._context.runtime.in_thread(partial(self._context.log.expire, service, limits))


def _select(matcher: RecordMatcher, requested: Mapping[int, Filter], records: Sequence[bytes]) -> Sequence[int]:
    matcher.set_filters(requested)
    return matcher.match(records)
