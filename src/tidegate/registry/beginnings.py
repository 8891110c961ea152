"""Where services begin to read their inputs: fixed when a definition is applied, at the log's end at that moment.

So an event that is acknowledged after an `apply` has answered reaches every service of it, whenever that first runs,
and nobody who appends has to wait for a service.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import sqlalchemy as sa

from tidegate.registry.registry import Beginning, Ends
from tidegate.registry.tables import BEGINNINGS
from tidegate.services import Service


class FixedEnds:
    """The ends of streams during one `apply`, each asked for once."""

    def __init__(self, ends: Ends | None) -> None:
        """`ends` None: there is no log to ask, and nothing is fixed."""
        self._ends = ends
        self._found: dict[str, str] = {}

    def ask(self, streams: Iterable[str]) -> None:
        """Read the ends of streams now, before a transaction holds others up; those that are known stay."""
        unknown = sorted({*streams} - self._found.keys())
        if unknown and self._ends is not None:
            given = self._ends(unknown)
            self._found |= {name: given.get(name, "") for name in unknown}

    def of(self, stream: str) -> str | None:
        """Return the cursor of a stream's end; "" if the stream is not there yet; None if there is no log to ask."""
        self.ask([stream])
        return self._found.get(stream)


def fix(
    connection: sa.Connection,
    service: Service,
    version: int,
    before: Service | None,
    ends: FixedEnds,
    *,
    backfill: bool,
) -> None:
    """Fix where a new version of a service begins; `before` is the version that it replaces.

    An input that the service read already keeps its beginning: the new version goes on where the old one was.
    """
    kept = read(connection, service.name).get(service.name, {})
    carried = set() if before is None or backfill else {*before.inputs}
    rows = []
    for stream in sorted({*service.inputs}):
        since = version
        cursor = "" if backfill else None
        if stream in carried:
            since = kept[stream].since if stream in kept else 0
            cursor = kept[stream].cursor if stream in kept else None
        cursor = ends.of(stream) if cursor is None else cursor
        if cursor is not None:
            rows.append(
                {"service": service.name, "stream": stream, "version": version, "since": since, "cursor": cursor}
            )
    forget(connection, service.name)
    if rows:
        connection.execute(BEGINNINGS.insert(), rows)


def forget(connection: sa.Connection, service: str) -> None:
    """Drop the beginnings of a service that is removed or replaced."""
    connection.execute(BEGINNINGS.delete().where(BEGINNINGS.c.service == service))


def read(connection: sa.Connection, service: str | None = None) -> Mapping[str, dict[str, Beginning]]:
    """The beginnings of all services, or of one, by service and stream."""
    query = sa.select(BEGINNINGS)
    if service is not None:
        query = query.where(BEGINNINGS.c.service == service)
    found: dict[str, dict[str, Beginning]] = defaultdict(dict)
    for row in connection.execute(query):
        found[row.service][row.stream] = Beginning(row.cursor, row.since)
    return found
