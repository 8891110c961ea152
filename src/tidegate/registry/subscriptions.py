"""Durable subscriptions in a database: who wants what of which service, and how far each has come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tidegate.errors import NotRegistered, RegistryError, VersionConflict
from tidegate.model import ServiceName, timestamps
from tidegate.registry.registry import DeadLetter, RegisteredSubscription, State
from tidegate.registry.secrets import SecretKey
from tidegate.registry.store import Store, unchanged
from tidegate.registry.tables import DEAD_LETTERS, DEFINITIONS, SUBSCRIPTIONS
from tidegate.subscriptions import Deliver, Grant, Pull, Subscription, Webhook

_KINDS: dict[str, type[Deliver]] = {"pull": Pull, "webhook": Webhook}
_ACTIVE: dict[str, Any] = {"state": "active", "reason": None, "attempts": 0, "retry_at": None}


class SqlSubscriptions(Store):
    """The subscriptions of a registry."""

    # Changing ------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, cursor: str | None) -> RegisteredSubscription:
        """Add a subscription that begins at a cursor; None: the delivery says where."""
        _document(subscription)  # what can't be stored is refused before anything waits
        with self._changing("subscriptions") as connection:
            _need_service(connection, subscription.service)
            if _row(connection, subscription.id) is not None:
                raise RegistryError(f"the id {subscription.id!r} is in use")
            now = self._clock()
            row = {
                "id": subscription.id,
                "service": subscription.service,
                "owner": subscription.owner,
                "document": self._sealed(connection, subscription),
                "version": 1,
                "cursor": cursor,
                "created_at": now,
                "changed_at": now,
                "state": "active",
                "reason": None,
                "attempts": 0,
                "retry_at": None,
            }
            connection.execute(SUBSCRIPTIONS.insert().values(row))
            return self._registered(_found(connection, subscription.id))

    def change_subscription(
        self, subscription: Subscription, version: int | None = None, *, resume: bool = False
    ) -> RegisteredSubscription:
        """Put a new record in the place of one; `version`: only if it is still that one."""
        plain = _document(subscription)
        with self._changing("subscriptions") as connection:
            row = _found(connection, subscription.id)
            if version is not None and version != row.version:
                raise VersionConflict(f"subscription {subscription.id!r}", version, row.version)
            if row.service != subscription.service:
                raise RegistryError(
                    f"subscription {subscription.id!r} is one of {row.service!r}, and its cursor with it: "
                    f"for {subscription.service!r} make a new one"
                )
            # A secret is encrypted differently each time: the same record must not count as a change.
            is_same = plain == _document(self._registered(row).subscription)
            document = row.document if is_same else self._sealed(connection, subscription)
            going_on = _ACTIVE if resume and row.state == "stopped" else {}
            return self._change(connection, row, owner=subscription.owner, document=document, **going_on)

    def disable(self, subscription: str, reason: str, state: State = "disabled") -> RegisteredSubscription:
        """Deliver no more, and say why; the cursor stays."""
        with self._changing("subscriptions") as connection:
            return self._change(connection, _found(connection, subscription), state=state, reason=reason)

    def enable(self, subscription: str) -> RegisteredSubscription:
        """Deliver again from the cursor, as if no attempt had failed."""
        with self._changing("subscriptions") as connection:
            row = _found(connection, subscription)
            _need_service(connection, row.service)
            return self._change(connection, row, **_ACTIVE)

    def unsubscribe(self, subscription: str) -> None:
        """Remove a subscription, and its dead letters with it."""
        with self._changing("subscriptions") as connection:
            _found(connection, subscription)
            connection.execute(SUBSCRIPTIONS.delete().where(SUBSCRIPTIONS.c.id == subscription))

    def _change(self, connection: sa.Connection, row: sa.Row[Any], **values: Any) -> RegisteredSubscription:
        if all(getattr(row, name) == value for name, value in values.items()):
            unchanged(connection)
            return self._registered(row)
        values |= {"version": row.version + 1, "changed_at": self._clock()}
        connection.execute(SUBSCRIPTIONS.update().where(SUBSCRIPTIONS.c.id == row.id).values(values))
        return self._registered(_found(connection, row.id))

    def _leave(self, connection: sa.Connection, services: Iterable[str], force: bool) -> None:
        """Refuse to remove services that have subscriptions; `force`: disable those instead."""
        columns = SUBSCRIPTIONS.c
        # In one order everywhere, so that no two transactions wait for each other: `acknowledge_all` sorts too.
        query = sa.select(SUBSCRIPTIONS).where(columns.service.in_(sorted(services))).order_by(columns.id)
        rows = connection.execute(query).all()
        if not rows:
            return
        if not force:
            first = min(row.service for row in rows)
            count = sum(row.service == first for row in rows)
            has = "1 subscription" if count == 1 else f"{count} subscriptions"
            raise RegistryError(f"{first!r} can't be removed: it has {has} (force removes it and disables them)")
        active = [row for row in rows if row.state == "active"]
        if active:
            self._count(connection, "subscriptions")
        for row in active:
            self._change(connection, row, state="disabled", reason=f"the service {row.service!r} was removed")

    # Moving on -----------------------------------------------------------------

    def acknowledge(self, subscription: str, cursor: str) -> None:
        """Move a cursor: what is before it was received."""
        statement = SUBSCRIPTIONS.update().where(SUBSCRIPTIONS.c.id == subscription).values(cursor=cursor)
        self._alter(statement, _missing(subscription))

    def acknowledge_all(self, cursors: Mapping[str, str]) -> None:
        """Move many cursors in one transaction; those of subscriptions that are gone are left out."""
        if not cursors:
            return
        statement = (
            SUBSCRIPTIONS.update().where(SUBSCRIPTIONS.c.id == sa.bindparam("of")).values(cursor=sa.bindparam("to"))
        )
        with self._engine.begin() as connection:
            connection.execute(statement, [{"of": name, "to": cursors[name]} for name in sorted(cursors)])

    def note_attempt(self, subscription: str, attempts: int, retry_at: datetime | None) -> None:
        """Note how often the delivery of what is at the cursor failed, and when it is tried again; 0: it did not."""
        values = {"attempts": attempts, "retry_at": _micros(retry_at)}
        statement = SUBSCRIPTIONS.update().where(SUBSCRIPTIONS.c.id == subscription).values(values)
        self._alter(statement, _missing(subscription))

    # Reading -------------------------------------------------------------------

    def subscription(self, subscription: str) -> RegisteredSubscription:
        """One subscription."""
        with self._engine.connect() as connection:
            return self._registered(_found(connection, subscription))

    def subscriptions(self, service: str | None = None, owner: str | None = None) -> dict[str, RegisteredSubscription]:
        """All subscriptions by id, or those of a service or an owner, the oldest first."""
        query = sa.select(SUBSCRIPTIONS).order_by(SUBSCRIPTIONS.c.created_at, SUBSCRIPTIONS.c.id)
        for column, value in ((SUBSCRIPTIONS.c.service, service), (SUBSCRIPTIONS.c.owner, owner)):
            query = query if value is None else query.where(column == value)
        with self._engine.connect() as connection:
            return {row.id: self._registered(row) for row in connection.execute(query)}

    def subscriptions_revision(self) -> int:
        """A number that grows with every change of a subscription or key; cheap to ask."""
        return self._counted("subscriptions")

    def _registered(self, row: sa.Row[Any]) -> RegisteredSubscription:
        return _record(row, lambda sealed: self._opened(sealed, *_place(row.id)))

    def _sealed(self, connection: sa.Connection, subscription: Subscription) -> str:
        """Return a record as JSON, with the secrets of its webhook encrypted."""
        key, deliver = self._sealing_key(connection), subscription.deliver
        if key is None or not isinstance(deliver, Webhook):
            return _document(subscription)
        secrets = tuple(key.seal(each, _place(subscription.id)) for each in deliver.secrets)
        return _document(replace(subscription, deliver=replace(deliver, secrets=secrets)))

    def _reseal_subscriptions(self, connection: sa.Connection, key: SecretKey) -> int:
        """Encrypt all secrets of webhooks with a key, and return how many there are."""
        count = 0
        for row in connection.execute(sa.select(SUBSCRIPTIONS).order_by(SUBSCRIPTIONS.c.id)).all():
            deliver = self._registered(row).subscription.deliver
            if isinstance(deliver, Webhook) and deliver.secrets:
                document = json.loads(row.document)
                document["deliver"]["secrets"] = [key.seal(each, _place(row.id)) for each in deliver.secrets]
                values = {"document": json.dumps(document)}
                connection.execute(SUBSCRIPTIONS.update().where(SUBSCRIPTIONS.c.id == row.id).values(values))
                count += len(deliver.secrets)
        return count

    # Dead letters --------------------------------------------------------------

    def bury(self, subscription: str, cursor: str, record: bytes, error: str, attempts: int) -> DeadLetter:
        """Put aside what could not be delivered."""
        values = {
            "subscription": subscription,
            "cursor": cursor,
            "record": record,
            "error": error,
            "attempts": attempts,
            "at": self._clock(),
        }
        try:
            with self._engine.begin() as connection:
                return _letter(connection.execute(DEAD_LETTERS.insert().values(values).returning(DEAD_LETTERS)).one())
        except sa.exc.IntegrityError as exc:
            raise NotRegistered(_missing(subscription)) from exc

    def dead_letters(self, subscription: str, after: int = 0, most: int = 100) -> list[DeadLetter]:
        """What could not be delivered, the oldest first; `after`: the id of the last one that was read."""
        columns = DEAD_LETTERS.c
        query = sa.select(DEAD_LETTERS).where(columns.subscription == subscription, columns.id > after)
        with self._engine.connect() as connection:
            _found(connection, subscription)
            return [_letter(row) for row in connection.execute(query.order_by(columns.id).limit(most))]

    def unbury(self, subscription: str, ids: Iterable[int]) -> int:
        """Take dead letters out, and give how many there were."""
        columns = DEAD_LETTERS.c
        statement = DEAD_LETTERS.delete().where(columns.subscription == subscription, columns.id.in_(list(ids)))
        with self._engine.begin() as connection:
            _found(connection, subscription)
            return connection.execute(statement).rowcount


def _place(id_: str) -> tuple[str, str, str]:
    return "subscriptions", id_, "secret"


def _row(connection: sa.Connection, subscription: str) -> sa.Row[Any] | None:
    return connection.execute(sa.select(SUBSCRIPTIONS).where(SUBSCRIPTIONS.c.id == subscription)).one_or_none()


def _found(connection: sa.Connection, subscription: str) -> sa.Row[Any]:
    row = _row(connection, subscription)
    if row is None:
        raise NotRegistered(_missing(subscription))
    return row


def _missing(subscription: str) -> str:
    # Without a hint: an id that is near may be someone else's, and ids are not to be guessed.
    return f"there is no subscription {subscription!r}"


def _need_service(connection: sa.Connection, name: str) -> None:
    if ServiceName.parse(name).is_remote:  # another broker's: whoever is linked to it knows whether it is there
        return
    query = sa.select(DEFINITIONS.c.name).where(DEFINITIONS.c.kind == "service")
    known = connection.execute(query).scalars().all()
    if name not in known:
        # Without a hint: whoever asks may not see the service whose name is near.
        raise NotRegistered(f"there is no service {name!r}")


def _document(subscription: Subscription) -> str:
    """A record as JSON, but for what has columns of its own."""
    record = asdict(subscription)
    for name in ("id", "service", "owner"):
        del record[name]
    kind = next(kind for kind, of in _KINDS.items() if isinstance(subscription.deliver, of))
    record["deliver"] = {"kind": kind, **record["deliver"]}
    try:
        return json.dumps(record, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RegistryError(f"expected a subscription of JSON values: {error}") from error


def _record(row: sa.Row[Any], opened: Callable[[str], str]) -> RegisteredSubscription:
    record = _values(json.loads(row.document))
    deliver = _values(record.pop("deliver"))
    if "secrets" in deliver:
        deliver["secrets"] = tuple(opened(each) for each in deliver["secrets"])
    made = _KINDS[deliver.pop("kind")](**deliver)
    grant = record.pop("grant", None)
    record["grant"] = None if grant is None else Grant(**_values(grant))
    subscription = Subscription(id=row.id, service=row.service, owner=row.owner, deliver=made, **record)
    return RegisteredSubscription(
        subscription,
        row.version,
        row.cursor,
        timestamps.to_datetime(row.created_at),
        timestamps.to_datetime(row.changed_at),
        row.state,
        row.reason,
        row.attempts,
        _moment(row.retry_at),
    )


def _values(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a frozen value: its sequences are tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}


def _letter(row: sa.Row[Any]) -> DeadLetter:
    at = timestamps.to_datetime(row.at)
    return DeadLetter(row.id, row.subscription, row.cursor, bytes(row.record), row.error, row.attempts, at)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else timestamps.from_datetime(moment)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else timestamps.to_datetime(micros)
