"""Durable subscriptions in a database, with their cursors and the state of their delivery."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tidegate.errors import NotRegistered, RegistryError, VersionConflict
from tidegate.model import ServiceName, timestamps
from tidegate.registry.records import Fence, RegisteredSubscription, SubscriptionState
from tidegate.registry.secrets import SecretKey
from tidegate.registry.store import Store, increment, roll_back
from tidegate.registry.tables import DEFINITIONS, SUBSCRIPTIONS
from tidegate.subscriptions import PUSH_TARGETS, Deliver, Grant, Pull, SubscriptionRecord

_KINDS: dict[str, type[Deliver]] = {"pull": Pull, **PUSH_TARGETS}
_ACTIVE: dict[str, Any] = {"state": "active", "reason": None, "attempts": 0, "retry_at": None}


class SqlSubscriptions(Store):
    """The subscriptions of a registry. See `SubscriptionStore` for what each public method promises."""

    # Changes -------------------------------------------------------------------

    def subscribe(self, subscription: SubscriptionRecord, cursor: str | None) -> RegisteredSubscription:
        """Add a subscription that starts at `cursor`; None: delivery chooses the start position."""
        _document(subscription)  # raises for values that can't be stored, before the transaction locks others out
        with self._change_transaction("subscriptions") as connection:
            _need_service(connection, subscription.service)
            if _find_row(connection, subscription.id) is not None:
                raise RegistryError(f"the id {subscription.id!r} is in use")
            now = self._clock()
            row = {
                "id": subscription.id,
                "service": subscription.service,
                "owner": subscription.owner,
                "document": self._sealed_document(connection, subscription),
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
            return self._registered(need_subscription(connection, subscription.id))

    def change_subscription(
        self, subscription: SubscriptionRecord, version: int | None = None, *, resume: bool = False
    ) -> RegisteredSubscription:
        """Replace the subscription that has the same id, if `version` is its current version or None."""
        plain = _document(subscription)
        with self._change_transaction("subscriptions") as connection:
            row = need_subscription(connection, subscription.id)
            if version is not None and version != row.version:
                raise VersionConflict(f"subscription {subscription.id!r}", version, row.version)
            if row.service != subscription.service:
                raise RegistryError(
                    f"subscription {subscription.id!r} belongs to the service {row.service!r}, and so does its cursor; "
                    f"create a new subscription for {subscription.service!r}"
                )
            # Encrypting a secret gives a different text each time, so compare the plain documents.
            is_same = plain == _document(self._registered(row).subscription)
            document = row.document if is_same else self._sealed_document(connection, subscription)
            activation = _ACTIVE if resume and row.state == "stopped" else {}
            return self._update(connection, row, owner=subscription.owner, document=document, **activation)

    def disable(self, subscription: str, reason: str, state: SubscriptionState = "disabled") -> RegisteredSubscription:
        """Stop the delivery of a subscription for a reason; the cursor stays."""
        with self._change_transaction("subscriptions") as connection:
            return self._update(connection, need_subscription(connection, subscription), state=state, reason=reason)

    def enable(self, subscription: str) -> RegisteredSubscription:
        """Resume delivery at the cursor, and reset the failed attempts."""
        with self._change_transaction("subscriptions") as connection:
            row = need_subscription(connection, subscription)
            _need_service(connection, row.service)
            return self._update(connection, row, **_ACTIVE)

    def unsubscribe(self, subscription: str) -> None:
        """Remove a subscription with its dead letters."""
        with self._change_transaction("subscriptions") as connection:
            need_subscription(connection, subscription)
            connection.execute(SUBSCRIPTIONS.delete().where(SUBSCRIPTIONS.c.id == subscription))

    def _update(self, connection: sa.Connection, row: sa.Row[Any], **values: Any) -> RegisteredSubscription:
        """Change columns of a subscription and increment its version; roll back if no value differs."""
        if all(getattr(row, name) == value for name, value in values.items()):
            roll_back(connection)
            return self._registered(row)
        values |= {"version": row.version + 1, "changed_at": self._clock()}
        connection.execute(SUBSCRIPTIONS.update().where(SUBSCRIPTIONS.c.id == row.id).values(values))
        return self._registered(need_subscription(connection, row.id))

    # Progress, which changes no version or revision ----------------------------

    def acknowledge(self, subscription: str, cursor: str) -> None:
        """Move the cursor of a subscription."""
        statement = SUBSCRIPTIONS.update().where(SUBSCRIPTIONS.c.id == subscription).values(cursor=cursor)
        self._update_row(statement, missing_subscription(subscription))

    def acknowledge_all(self, cursors: Mapping[str, str], fence: Fence | None = None) -> None:
        """Move many cursors in one transaction. Skips ids that do not exist, or whose lease the fence's holder lost."""
        if not cursors:
            return
        is_row = SUBSCRIPTIONS.c.id == sa.bindparam("subscription_id")
        statement = SUBSCRIPTIONS.update().where(is_row).values(cursor=sa.bindparam("new_cursor"))
        more: dict[str, Any] = {}
        if fence is not None:
            is_held, more = self._is_fenced(SUBSCRIPTIONS.c.id, fence)
            statement = statement.where(is_held)
        # Sorted, so that transactions lock rows in the same order and can't deadlock: see `disable_subscriptions`.
        rows = [{"subscription_id": id_, "new_cursor": cursors[id_], **more} for id_ in sorted(cursors)]
        with self._engine.begin() as connection:
            connection.execute(statement, rows)

    def note_attempt(
        self, subscription: str, attempts: int, retry_at: datetime | None, fence: Fence | None = None
    ) -> None:
        """Store how often delivery at the cursor has failed, and when to retry."""
        values = {"attempts": attempts, "retry_at": _micros(retry_at)}
        statement = SUBSCRIPTIONS.update().where(SUBSCRIPTIONS.c.id == subscription).values(values)
        with self._engine.begin() as connection:
            if fence is not None:
                self._need_lease(connection, subscription, fence)
            if connection.execute(statement).rowcount == 0:
                raise NotRegistered(missing_subscription(subscription))

    # Queries -------------------------------------------------------------------

    def subscription(self, subscription: str) -> RegisteredSubscription:
        """Return the subscription with an id."""
        with self._engine.connect() as connection:
            return self._registered(need_subscription(connection, subscription))

    def find_subscriptions(self, ids: Collection[str]) -> dict[str, RegisteredSubscription]:
        """Return the subscriptions with some ids, by id; those that do not exist are left out."""
        query = sa.select(SUBSCRIPTIONS).where(SUBSCRIPTIONS.c.id.in_(list(ids)))
        with self._engine.connect() as connection:
            return {row.id: self._registered(row) for row in connection.execute(query)}

    def subscriptions(self, service: str | None = None, owner: str | None = None) -> dict[str, RegisteredSubscription]:
        """Return all subscriptions by id, or those of a service or an owner, oldest first."""
        query = sa.select(SUBSCRIPTIONS).order_by(SUBSCRIPTIONS.c.created_at, SUBSCRIPTIONS.c.id)
        for column, value in ((SUBSCRIPTIONS.c.service, service), (SUBSCRIPTIONS.c.owner, owner)):
            query = query if value is None else query.where(column == value)
        with self._engine.connect() as connection:
            return {row.id: self._registered(row) for row in connection.execute(query)}

    def subscriptions_revision(self) -> int:
        """Return a counter that grows with every change of a subscription, key or link."""
        return self._read_counter("subscriptions")

    def _registered(self, row: sa.Row[Any]) -> RegisteredSubscription:
        return _parse(row, lambda sealed: self._decrypt(sealed, *_secret_location(row.id)))

    def _sealed_document(self, connection: sa.Connection, subscription: SubscriptionRecord) -> str:
        """Return the JSON document of a subscription, with the secrets of its push target encrypted."""
        key, target = self._encryption_key(connection), subscription.push_target
        if key is None or target is None:
            return _document(subscription)
        secrets = tuple(key.seal(secret, _secret_location(subscription.id)) for secret in target.secrets)
        return _document(replace(subscription, deliver=target.with_secrets(secrets)))

    def _reseal_subscriptions(self, connection: sa.Connection, key: SecretKey) -> int:
        """Encrypt the secrets of all push targets with a key, and return how many there are."""
        count = 0
        for row in connection.execute(sa.select(SUBSCRIPTIONS).order_by(SUBSCRIPTIONS.c.id)).all():
            target = self._registered(row).subscription.push_target
            if target is not None and target.secrets:
                document, location = json.loads(row.document), _secret_location(row.id)
                document["deliver"]["secrets"] = [key.seal(secret, location) for secret in target.secrets]
                values = {"document": json.dumps(document)}
                connection.execute(SUBSCRIPTIONS.update().where(SUBSCRIPTIONS.c.id == row.id).values(values))
                count += len(target.secrets)
        return count


def disable_subscriptions(
    connection: sa.Connection, services: Iterable[str], clock: Callable[[], int], *, force: bool
) -> None:
    """Disable all active subscriptions of services that are removed, inside the transaction of the removal.

    Raises `RegistryError` if there are subscriptions, active or not, and `force` is not set.
    """
    columns = SUBSCRIPTIONS.c
    # Sorted, so that transactions lock rows in the same order and can't deadlock: see `acknowledge_all`.
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
        increment(connection, "subscriptions")
    for row in active:
        values = {
            "state": "disabled",
            "reason": f"the service {row.service!r} was removed",
            "version": row.version + 1,
            "changed_at": clock(),
        }
        connection.execute(SUBSCRIPTIONS.update().where(columns.id == row.id).values(values))


def _secret_location(id_: str) -> tuple[str, str, str]:
    """Return table, row and column of a webhook's secrets, which their encryption is bound to."""
    return "subscriptions", id_, "secret"


def _find_row(connection: sa.Connection, subscription: str) -> sa.Row[Any] | None:
    return connection.execute(sa.select(SUBSCRIPTIONS).where(SUBSCRIPTIONS.c.id == subscription)).one_or_none()


def need_subscription(connection: sa.Connection, subscription: str) -> sa.Row[Any]:
    """Return the row of a subscription. Raises `NotRegistered`."""
    row = _find_row(connection, subscription)
    if row is None:
        raise NotRegistered(missing_subscription(subscription))
    return row


def missing_subscription(subscription: str) -> str:
    """Return the error message for an unknown subscription."""
    # No hint: a similar id may belong to another owner, and ids must not be guessable.
    return f"there is no subscription {subscription!r}"


def _need_service(connection: sa.Connection, name: str) -> None:
    if ServiceName.parse(name).is_remote:  # a service of another broker, which only the federation can look up
        return
    query = sa.select(DEFINITIONS.c.name).where(DEFINITIONS.c.kind == "service")
    if name not in connection.execute(query).scalars().all():
        # No hint: the caller may not be allowed to see a service with a similar name.
        raise NotRegistered(f"there is no service {name!r}")


def _document(subscription: SubscriptionRecord) -> str:
    """Return a subscription as JSON, without the fields that have their own columns."""
    record = asdict(subscription)
    for name in ("id", "service", "owner"):
        del record[name]
    kind = next(kind for kind, type_ in _KINDS.items() if isinstance(subscription.deliver, type_))
    record["deliver"] = {"kind": kind, **record["deliver"]}
    try:
        return json.dumps(record, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RegistryError(f"expected a subscription of JSON values: {error}") from error


def _parse(row: sa.Row[Any], decrypt: Callable[[str], str]) -> RegisteredSubscription:
    record = _values(json.loads(row.document))
    deliver = _values(record.pop("deliver"))
    if "secrets" in deliver:
        deliver["secrets"] = tuple(decrypt(secret) for secret in deliver["secrets"])
    transport = _KINDS[deliver.pop("kind")](**deliver)
    grant = record.pop("grant", None)
    record["grant"] = None if grant is None else Grant(**_values(grant))
    subscription = SubscriptionRecord(id=row.id, service=row.service, owner=row.owner, deliver=transport, **record)
    return RegisteredSubscription(
        subscription,
        row.version,
        row.cursor,
        timestamps.to_datetime(row.created_at),
        timestamps.to_datetime(row.changed_at),
        row.state,
        row.reason,
        row.attempts,
        _to_datetime(row.retry_at),
    )


def _values(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a frozen value: lists become tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else timestamps.from_datetime(moment)


def _to_datetime(micros: int | None) -> datetime | None:
    return None if micros is None else timestamps.to_datetime(micros)
