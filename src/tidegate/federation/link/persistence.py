"""Saves the state of links in the registry, and restores it when the broker starts or gets the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import orjson

from tidegate.errors import TidegateError
from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.coverage import SyncPoint, SyncPoints
from tidegate.federation.link.filters import filter_from_json, filter_to_json
from tidegate.federation.link.mirror import Progress
from tidegate.federation.link.needs import Needs
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.routes import RouteTable
from tidegate.federation.routes.messages import from_json, to_json
from tidegate.model import Schema
from tidegate.registry import LinkStateKey


class LinkStateStore:
    """The saved state of all links, one set of documents per link:

        offers  ""               what the neighbour offered last
        routes  service          the filters that it has requested from us
        mirror  service          the progress of our mirror
        need    service filter   a filter that is needed here, with its sync point
        joints  service          the sync points of our mirror

    Used on the event loop; reads and writes run in threads.
    """

    def __init__(self, context: LinkContext, needs: Needs) -> None:
        self._context, self._needs = context, needs
        self.sync_points: dict[str, SyncPoints] = {}
        """By mirror."""
        self._lock = asyncio.Lock()
        """Held while changes are saved: an older state must not be written after a newer one."""
        self._saves: set[asyncio.Task[None]] = set()

    # Saving --------------------------------------------------------------------------

    async def save(self) -> None:
        """Save all changes. The save is finished even if its caller is cancelled.

        Does nothing while another gateway of the broker has the lease. Raises the first problem, after all other links
        were saved; what could not be saved is saved with the next call.
        """
        task = self._context.runtime.loop.create_task(self._save_all())
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)
        await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for all saves that are running."""
        await asyncio.gather(*self._saves, return_exceptions=True)

    async def _save_all(self) -> None:
        async with self._lock:
            self._needs.expire(self._context.runtime.time())
            if not self._context.has_lease:
                return
            self.collect_needs()
            problems: list[Exception] = []
            for neighbour in list(self._context.neighbours.values()):
                try:
                    await self._save_link(neighbour)
                except Exception as problem:
                    problems.append(problem)
            if problems:
                raise problems[0]

    async def _save_link(self, neighbour: Neighbour) -> None:
        unsaved, neighbour.unsaved = neighbour.unsaved, {}
        routes, neighbour.stale_routes = neighbour.stale_routes, set()
        mirrors, neighbour.stale_mirrors = neighbour.stale_mirrors, set()
        try:
            states = {**unsaved, **await self._changed_states(neighbour, routes, mirrors)}
            if states:
                write = partial(self._context.registry.save_link_states, neighbour.name, states)
                await self._context.runtime.in_registry_thread(write)
        except BaseException:
            neighbour.unsaved = {**unsaved, **neighbour.unsaved}
            neighbour.stale_routes |= routes
            neighbour.stale_mirrors |= mirrors
            raise

    def collect_needs(self) -> None:
        """Add changed needs to the unsaved state of the link over which they are requested."""
        for (service, name), need in self._needs.take_changes().items():
            neighbour = self._context.via(service)
            if neighbour is None:
                continue
            document = None
            if need is not None:
                point = None if need.sync_point is None else need.sync_point.to_json()
                document = orjson.dumps({**filter_to_json(need.filter), "joint": point}).decode()
            neighbour.unsaved["need", f"{service} {name}"] = document

    async def _changed_states(
        self, neighbour: Neighbour, routes: set[str], mirrors: set[str]
    ) -> dict[LinkStateKey, str | None]:
        runtime = self._context.runtime
        states: dict[LinkStateKey, str | None] = {}
        link = self._context.broker.links.get(neighbour.name)
        if link is not None:
            for table in [link.table(service) for service in routes]:
                states["routes", table.service] = await runtime.in_thread(partial(_table_to_text, table))
        else:
            neighbour.stale_routes |= routes
        for mirror in [neighbour.mirrors[service] for service in mirrors & neighbour.mirrors.keys()]:
            states["mirror", mirror.name] = (await runtime.in_thread(mirror.progress)).to_json()
        return states

    # Restoring -----------------------------------------------------------------------

    async def read(self, neighbour: Neighbour) -> Mapping[LinkStateKey, str]:
        """Read the saved documents of a link."""
        registry = self._context.registry
        return await self._context.runtime.in_thread(partial(registry.link_states, neighbour.name))

    def restore(
        self, neighbour: Neighbour, states: Mapping[LinkStateKey, str], schema_of: Callable[[str], Schema | None]
    ) -> None:
        """Restore a link's routes, mirrors, needs and sync points.

        Call it after the offers of all links were restored: `schema_of` types the filters by the offered schemas. An
        untyped filter may cover others that it should not, for example with the labels of an enum. Documents that do
        not fit the current offers are dropped.
        """
        tables = []
        for (kind, name), document in states.items():
            if kind == "mirror":
                neighbour.saved_progress[name] = Progress.from_json(document)
            elif kind == "routes":
                tables.append(_table_from_text(document, schema_of))
        if tables:
            self._context.broker.restore(neighbour.name, tables)
        for (kind, name), document in states.items():
            with suppress(TidegateError):
                if kind == "joints":
                    self.sync_points[name] = SyncPoints.from_json(document)
                elif kind == "need":
                    self._restore_need(name.partition(" ")[0], document)

    def _restore_need(self, service: str, document: str) -> None:
        remote = self._context.remotes.get(service)
        if remote is None:
            return
        saved = orjson.loads(document)
        point = None if saved["joint"] is None else SyncPoint.from_json(saved["joint"])
        filter_ = filter_from_json(saved, remote.schema)
        self._needs.linger(service, filter_, self._context.runtime.time(), point)
        if point is not None:  # it was needed here before the gateway with the links had found the point
            self._needs.add_sync_point(service, [filter_], point)


def _table_to_text(table: RouteTable) -> str:
    return orjson.dumps(to_json(table)).decode()


def _table_from_text(document: str, schema_of: Callable[[str], Schema | None]) -> RouteTable:
    saved = orjson.loads(document)
    schema = schema_of(saved["service"])
    table = from_json(saved, lambda _: schema)
    assert isinstance(table, RouteTable)
    return table
