"""Which version of a service ran last, and where its checkpoint is.

Another process that takes over has perhaps another folder: it must not start a service anew that has run elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from tidegate.registry.records import ServiceRun
from tidegate.registry.tables import RUNS


def save(connection: sa.Connection, service: str, run: ServiceRun) -> None:
    """Replace the last run of a service."""
    delete(connection, service)
    connection.execute(RUNS.insert().values(service=service, version=run.version, checkpoints=run.checkpoints))


def delete(connection: sa.Connection, service: str) -> None:
    """Delete the last run of a service."""
    connection.execute(RUNS.delete().where(RUNS.c.service == service))


def load(connection: sa.Connection, service: str | None = None) -> Mapping[str, ServiceRun]:
    """Return the last run of all services, or of one, by name."""
    query = sa.select(RUNS)
    if service is not None:
        query = query.where(RUNS.c.service == service)
    return {row.service: ServiceRun(row.version, row.checkpoints) for row in connection.execute(query)}
