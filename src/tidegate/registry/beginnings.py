"""Start positions of services in their inputs.

`apply` fixes them at the end of the log at that moment. So an event that is acknowledged after `apply` has returned
reaches every applied service, no matter when that service first runs, and no publisher has to wait for a service.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import sqlalchemy as sa

from tidegate.registry.records import Beginning, EndReader
from tidegate.registry.tables import BEGINNINGS
from tidegate.services import Service


class EndCursors:
    """The end cursors of streams during one `apply`; the log is asked once per stream."""

    def __init__(self, read_ends: EndReader | None) -> None:
        """`read_ends` None: there is no log, and no start position is stored."""
        self._read_ends = read_ends
        self._cursors: dict[str, str] = {}

    def load(self, streams: Iterable[str]) -> None:
        """Read the end cursors of streams that are not loaded yet. Raises what `read_ends` raises.

        `apply` calls it before its transaction, because a slow log would delay all other changes.
        """
        missing = sorted({*streams} - self._cursors.keys())
        if missing and self._read_ends is not None:
            cursors = self._read_ends(missing)
            self._cursors |= {name: cursors.get(name, "") for name in missing}

    def get(self, stream: str) -> str | None:
        """Return the end cursor of a stream; "" if the log does not have the stream; None if there is no log."""
        self.load([stream])
        return self._cursors.get(stream)


def save(
    connection: sa.Connection,
    service: Service,
    version: int,
    before: Service | None,
    ends: EndCursors,
    *,
    backfill: bool,
) -> None:
    """Store the start positions of a new version of a service; `before` is the version that it replaces.

    An input that the previous version also read keeps its start position, and the new version continues from the
    offsets of the previous one. With `backfill`, all inputs start at their oldest event.
    """
    stored = load(connection, service.name).get(service.name, {})
    carried_over = set() if before is None or backfill else {*before.inputs}
    rows = []
    for stream in sorted({*service.inputs}):
        since = version
        cursor = "" if backfill else None
        if stream in carried_over:
            since = stored[stream].since if stream in stored else 0
            cursor = stored[stream].cursor if stream in stored else None
        cursor = ends.get(stream) if cursor is None else cursor
        if cursor is not None:
            rows.append(
                {"service": service.name, "stream": stream, "version": version, "since": since, "cursor": cursor}
            )
    delete(connection, service.name)
    if rows:
        connection.execute(BEGINNINGS.insert(), rows)


def delete(connection: sa.Connection, service: str) -> None:
    """Delete the start positions of a service."""
    connection.execute(BEGINNINGS.delete().where(BEGINNINGS.c.service == service))


def load(connection: sa.Connection, service: str | None = None) -> Mapping[str, dict[str, Beginning]]:
    """Return the start positions of all services, or of one, by service and stream."""
    query = sa.select(BEGINNINGS)
    if service is not None:
        query = query.where(BEGINNINGS.c.service == service)
    beginnings: dict[str, dict[str, Beginning]] = defaultdict(dict)
    for row in connection.execute(query):
        beginnings[row.service][row.stream] = Beginning(row.cursor, row.since)
    return beginnings
