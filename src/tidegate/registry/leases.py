"""Leases in a database: one process at a time runs the services, or delivers a push subscription."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from tidegate.errors import RegistryError
from tidegate.model import timestamps
from tidegate.registry.records import Lease
from tidegate.registry.store import Store
from tidegate.registry.tables import LEASES, Text

# One statement, so that of two concurrent callers the second sees the row of the first: the database locks the row
# before it evaluates the condition. SQLite and PostgreSQL both support this form.
_TAKE = """
INSERT INTO leases (name, holder, until) VALUES (:name, :holder, {now} + :length)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE leases.holder = excluded.holder OR leases.until <= {now}
"""


class SqlLeases(Store):
    """The leases of a registry. See `LeaseStore` for what each public method promises."""

    def lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease, and return True; False: another holder has it."""
        if seconds <= 0:
            raise RegistryError(f"expected a lease of more than 0 seconds, got {seconds}")
        now, parameters = self._now_sql()
        texts = [sa.bindparam("name", type_=Text), sa.bindparam("holder", type_=Text)]
        statement = sa.text(_TAKE.format(now=now)).bindparams(*texts)
        parameters |= {"name": name, "holder": holder, "length": round(seconds * 1_000_000)}
        with self._engine.begin() as connection:
            return connection.execute(statement, parameters).rowcount == 1

    def release(self, name: str, holder: str) -> None:
        """Release a lease, if this holder has it."""
        statement = LEASES.delete().where(LEASES.c.name == name, LEASES.c.holder == holder)
        with self._engine.begin() as connection:
            connection.execute(statement)

    def leases(self) -> dict[str, Lease]:
        """Return all leases that have not expired, by name."""
        now, parameters = self._now_sql()
        query = sa.select(LEASES).where(sa.text(f"until > {now}")).order_by(LEASES.c.name)
        with self._engine.connect() as connection:
            rows = connection.execute(query, parameters).all()
        return {row.name: Lease(row.holder, timestamps.to_datetime(row.until)) for row in rows}

    def _now_sql(self) -> tuple[str, dict[str, Any]]:
        """Return the current time as an SQL expression, and the parameters of that expression."""
        return ":now", {"now": self._clock()}
