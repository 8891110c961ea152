"""Leases in a database: one process at a time runs the services, or delivers a push subscription."""

from __future__ import annotations

from collections.abc import Collection, Iterator

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
_TAKE_ALL = """
INSERT INTO leases (name, holder, until) VALUES {rows}
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE leases.holder = excluded.holder OR leases.until <= {now}
"""

_ROWS_PER_STATEMENT = 300
"""SQLite allows 32,766 parameters in a statement, older versions 999; two of each row are parameters."""


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

    def lease_all(self, names: Collection[str], holder: str, seconds: float) -> set[str]:
        """Take or renew many leases in one transaction, and return the names of those that the holder has now."""
        if seconds <= 0:
            raise RegistryError(f"expected leases of more than 0 seconds, got {seconds}")
        now, parameters = self._now_sql()
        parameters |= {"holder": holder, "length": round(seconds * 1_000_000)}
        taken: set[str] = set()
        with self._engine.begin() as connection:
            for part in _parts(names):
                rows = ", ".join(f"(:name{n}, :holder, {now} + :length)" for n in range(len(part)))
                named = {f"name{n}": name for n, name in enumerate(part)}
                texts = [sa.bindparam(name, type_=Text) for name in ("holder", *named)]
                connection.execute(sa.text(_TAKE_ALL.format(rows=rows, now=now)).bindparams(*texts), parameters | named)
                held = sa.select(LEASES.c.name).where(LEASES.c.name.in_(part), LEASES.c.holder == holder)
                taken.update(connection.execute(held).scalars())
        return taken

    def release_all(self, names: Collection[str], holder: str) -> None:
        """Release many leases in one transaction, as far as this holder has them."""
        with self._engine.begin() as connection:
            for part in _parts(names):
                connection.execute(LEASES.delete().where(LEASES.c.name.in_(part), LEASES.c.holder == holder))

    def leases(self) -> dict[str, Lease]:
        """Return all leases that have not expired, by name."""
        now, parameters = self._now_sql()
        query = sa.select(LEASES).where(sa.text(f"until > {now}")).order_by(LEASES.c.name)
        with self._engine.connect() as connection:
            rows = connection.execute(query, parameters).all()
        return {row.name: Lease(row.holder, timestamps.to_datetime(row.until)) for row in rows}


def _parts(names: Collection[str]) -> Iterator[list[str]]:
    """Yield the names in parts of one statement each; sorted, so that transactions lock rows in the same order."""
    ordered = sorted(set(names))
    for start in range(0, len(ordered), _ROWS_PER_STATEMENT):
        yield ordered[start : start + _ROWS_PER_STATEMENT]
