"""Dead letters in a database: records that could not be delivered to a subscription."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from tidegate.errors import NotRegistered
from tidegate.model import timestamps
from tidegate.registry.records import DeadLetter, Fence
from tidegate.registry.store import Store
from tidegate.registry.subscriptions import missing_subscription, need_subscription
from tidegate.registry.tables import DEAD_LETTERS


class SqlDeadLetters(Store):
    """The dead letters of a registry. See `DeadLetterStore` for what each public method promises."""

    def add_dead_letter(
        self, subscription: str, cursor: str, record: bytes, error: str, attempts: int, fence: Fence | None = None
    ) -> DeadLetter:
        """Store a record that could not be delivered; `cursor` is the position right after it."""
        values = {
            "subscription": subscription,
            "cursor": cursor,
            "record": record,
            "error": error,
            "attempts": attempts,
            "at": self._clock(),
        }
        insert = DEAD_LETTERS.insert().values(values).returning(DEAD_LETTERS)
        try:
            with self._engine.begin() as connection:
                if fence is not None:
                    self._need_lease(connection, subscription, fence)
                return _parse(connection.execute(insert).one())
        except sa.exc.IntegrityError as exc:
            raise NotRegistered(missing_subscription(subscription)) from exc

    def dead_letters(self, subscription: str, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """Return at most `limit` dead letters with an id greater than `after`, oldest first."""
        columns = DEAD_LETTERS.c
        query = sa.select(DEAD_LETTERS).where(columns.subscription == subscription, columns.id > after)
        with self._engine.connect() as connection:
            need_subscription(connection, subscription)
            return [_parse(row) for row in connection.execute(query.order_by(columns.id).limit(limit))]

    def remove_dead_letters(self, subscription: str, ids: Iterable[int]) -> int:
        """Remove dead letters of a subscription, and return how many existed."""
        columns = DEAD_LETTERS.c
        statement = DEAD_LETTERS.delete().where(columns.subscription == subscription, columns.id.in_(list(ids)))
        with self._engine.begin() as connection:
            need_subscription(connection, subscription)
            return connection.execute(statement).rowcount


def _parse(row: sa.Row[Any]) -> DeadLetter:
    at = timestamps.to_datetime(row.at)
    return DeadLetter(row.id, row.subscription, row.cursor, bytes(row.record), row.error, row.attempts, at)
