"""Leases in a database: who does, for a while, what only one may do."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from tidegate.errors import RegistryError
from tidegate.model import timestamps
from tidegate.registry.registry import Lease
from tidegate.registry.store import Store
from tidegate.registry.tables import LEASES, Text

# One statement, so that of two at once the second sees what the first did: the database locks the row
# before it looks at the condition. Both databases have this form.
_TAKE = """
INSERT INTO leases (name, holder, until) VALUES (:name, :holder, {now} + :length)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE leases.holder = excluded.holder OR leases.until <= {now}
"""


class SqlLeases(Store):
    """The leases of a registry."""

    def lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease; False: another has it."""
        if seconds <= 0:
            raise RegistryError(f"expected a lease of more than 0 seconds, got {seconds}")
        now, given = self._moment()
        texts = [sa.bindparam("name", type_=Text), sa.bindparam("holder", type_=Text)]
        statement = sa.text(_TAKE.format(now=now)).bindparams(*texts)
        given |= {"name": name, "holder": holder, "length": round(seconds * 1_000_000)}
        with self._engine.begin() as connection:
            return connection.execute(statement, given).rowcount == 1

    def release(self, name: str, holder: str) -> None:
        """Give a lease back, if this holder has it."""
        statement = LEASES.delete().where(LEASES.c.name == name, LEASES.c.holder == holder)
        with self._engine.begin() as connection:
            connection.execute(statement)

    def leases(self) -> dict[str, Lease]:
        """Who has what, by name; what has run out is left out."""
        now, given = self._moment()
        query = sa.select(LEASES).where(sa.text(f"until > {now}")).order_by(LEASES.c.name)
        with self._engine.connect() as connection:
            rows = connection.execute(query, given).all()
        return {row.name: Lease(row.holder, timestamps.to_datetime(row.until)) for row in rows}

    def _moment(self) -> tuple[str, dict[str, Any]]:
        """The present as SQL, and what its parameters are."""
        return ":now", {"now": self._clock()}
