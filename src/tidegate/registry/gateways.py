"""The gateways that run, what each of them tells the others, and messages between them, in a database."""

from __future__ import annotations

import sqlalchemy as sa

from tidegate.errors import RegistryError
from tidegate.registry.store import Store
from tidegate.registry.tables import GATEWAYS, MESSAGES, Text

_REPORT = """
INSERT INTO gateways (id, until, document) VALUES (:id, {now} + :length, :document)
ON CONFLICT (id) DO UPDATE SET until = excluded.until, document = excluded.document
"""

_SEND = "INSERT INTO messages (recipient, until, body) VALUES (:recipient, {now} + :length, :body)"


class SqlGateways(Store):
    """The gateways of a registry. See `GatewayStore` for what each public method promises."""

    def report_gateway(self, gateway: str, document: str, seconds: float) -> None:
        """Say that a gateway runs, for a limited time, and replace its document."""
        if seconds <= 0:
            raise RegistryError(f"expected a report that is valid for more than 0 seconds, got {seconds}")
        now, parameters = self._now_sql()
        statement = sa.text(_REPORT.format(now=now)).bindparams(sa.bindparam("id", type_=Text))
        with self._engine.begin() as connection:
            values = {"id": gateway, "length": round(seconds * 1_000_000), "document": document}
            connection.execute(statement, parameters | values)
            connection.execute(sa.delete(GATEWAYS).where(sa.text(f"until <= {now}")), parameters)

    def gateways(self) -> dict[str, str]:
        """Return the documents of all gateways that run, by id."""
        now, parameters = self._now_sql()
        query = sa.select(GATEWAYS).where(sa.text(f"until > {now}")).order_by(GATEWAYS.c.id)
        with self._engine.connect() as connection:
            return {row.id: row.document for row in connection.execute(query, parameters)}

    def send_message(self, recipient: str, body: bytes, seconds: float) -> None:
        """Leave a message for a recipient, who may take it for a limited time."""
        now, parameters = self._now_sql()
        values = {"recipient": recipient, "length": round(seconds * 1_000_000), "body": body}
        statement = sa.text(_SEND.format(now=now)).bindparams(sa.bindparam("recipient", type_=Text))
        with self._engine.begin() as connection:
            connection.execute(statement, parameters | values)
            connection.execute(sa.delete(MESSAGES).where(sa.text(f"until <= {now}")), parameters)

    def take_messages(self, recipient: str) -> list[bytes]:
        """Return the messages for a recipient, oldest first, and remove them."""
        columns = MESSAGES.c
        with self._engine.connect() as connection:  # most often there is none, and nothing has to be written
            if connection.execute(sa.select(columns.id).where(columns.recipient == recipient).limit(1)).first() is None:
                return []
        taken = sa.delete(MESSAGES).where(columns.recipient == recipient).returning(columns.id, columns.body)
        with self._engine.begin() as connection:
            rows = connection.execute(taken).all()
        return [bytes(row.body) for row in sorted(rows, key=lambda row: row.id)]

    def remove_gateway(self, gateway: str) -> None:
        """Say that a gateway has ended."""
        with self._engine.begin() as connection:
            connection.execute(GATEWAYS.delete().where(GATEWAYS.c.id == gateway))
