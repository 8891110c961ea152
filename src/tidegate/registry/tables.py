"""The tables of a registry in their current format. The scripts in `migrations` create them.

    definitions     the current version of each stream and service
    history         all versions of streams and services, including removals
    beginnings      the start position of each service in each of its inputs
    runs            the last version of each service that ran, and where its checkpoint is
    subscriptions   durable subscriptions with cursor and delivery state
    dead_letters    records that could not be delivered to a subscription
    keys            API keys
    leases          rights of one process to do something, for a limited time
    gateways        the gateways that run, and what each of them tells the others
    messages        messages between gateways that were not taken yet
    links           links to other brokers
    link_states     the persisted state of each link: offered services, routes, positions of mirrors
    link_origins    pinned public keys, which the events of other brokers must be signed with
    revisions       one row: the counter of definitions, the counter of subscriptions, keys and links, the oldest
                    format whose version may use the tables, and the id of the key that encrypts secrets

Times are microseconds since 1970 UTC.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

FORMAT = 12
"""The format of the tables: the number of the last migration."""


class Text(sa.types.TypeDecorator[str]):
    """Text from outside. Characters that a database can't store are replaced by U+FFFD.

    PostgreSQL rejects NUL, and both databases reject unpaired surrogates. So a lookup of an id that contains one
    finds nothing, instead of failing.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _: Any) -> str | None:
        """Replace characters that can't be stored. SQLAlchemy calls it for every parameter."""
        if value is None:
            return None
        return value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


METADATA = sa.MetaData()

DEFINITIONS = sa.Table(
    "definitions",
    METADATA,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("changed_at", sa.BigInteger, nullable=False),
    sa.Column("forced", sa.Boolean, nullable=False),
    sa.Column("backfill", sa.Boolean, nullable=False),
    sa.Column("origin", sa.String(8), nullable=False, server_default="remote"),
)
HISTORY = sa.Table(
    "history",
    METADATA,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("document", sa.Text),
    sa.Column("changed_at", sa.BigInteger, nullable=False),
    sa.Column("forced", sa.Boolean, nullable=False),
    sa.Column("backfill", sa.Boolean, nullable=False),
    sa.Column("origin", sa.String(8), nullable=False, server_default="remote"),
)
BEGINNINGS = sa.Table(
    "beginnings",
    METADATA,
    sa.Column("service", sa.String(64), primary_key=True),
    sa.Column("stream", Text, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("since", sa.Integer, nullable=False),
    sa.Column("cursor", Text, nullable=False),
)
RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("service", sa.String(64), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("checkpoints", Text, nullable=False),
)
SUBSCRIPTIONS = sa.Table(
    "subscriptions",
    METADATA,
    sa.Column("id", Text, primary_key=True),
    sa.Column("service", Text, nullable=False),
    sa.Column("owner", Text),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("cursor", Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("changed_at", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(8), nullable=False),
    sa.Column("reason", Text),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("retry_at", sa.BigInteger),
    sa.Index("subscriptions_by_service", "service"),
    sa.Index("subscriptions_by_owner", "owner"),
)
DEAD_LETTERS = sa.Table(
    "dead_letters",
    METADATA,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("subscription", Text, sa.ForeignKey("subscriptions.id", ondelete="CASCADE"), nullable=False),
    sa.Column("cursor", Text, nullable=False),
    sa.Column("record", sa.LargeBinary, nullable=False),
    sa.Column("error", Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Index("dead_letters_by_subscription", "subscription", "id"),
    sqlite_autoincrement=True,
)
KEYS = sa.Table(
    "keys",
    METADATA,
    sa.Column("id", Text, primary_key=True),
    sa.Column("name", Text, nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("services", sa.Text),
    sa.Column("prefix", sa.String(8), nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("revoked_at", sa.BigInteger),
    sa.Column("quotas", sa.Text),
    sa.Column("previous_prefix", sa.String(8)),
    sa.Column("previous_digest", sa.LargeBinary),
    sa.Column("previous_until", sa.BigInteger),
    sa.Column("last_used_at", sa.BigInteger),
    sa.Column("last_used_from", Text),
    sa.Index("keys_by_prefix", "prefix"),
    sa.Index("keys_by_previous_prefix", "previous_prefix"),
)
LEASES = sa.Table(
    "leases",
    METADATA,
    sa.Column("name", Text, primary_key=True),
    sa.Column("holder", Text, nullable=False),
    sa.Column("until", sa.BigInteger, nullable=False),
)
GATEWAYS = sa.Table(
    "gateways",
    METADATA,
    sa.Column("id", Text, primary_key=True),
    sa.Column("until", sa.BigInteger, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
)
MESSAGES = sa.Table(
    "messages",
    METADATA,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("recipient", Text, nullable=False),
    sa.Column("until", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Index("messages_by_recipient", "recipient"),
    sqlite_autoincrement=True,
)
LINKS = sa.Table(
    "links",
    METADATA,
    sa.Column("name", Text, primary_key=True),
    sa.Column("url", Text),
    sa.Column("secret", Text, nullable=False),
    sa.Column("services", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("transit", sa.Text),
    sa.Column("public", sa.Text),
)
LINK_ORIGINS = sa.Table(
    "link_origins",
    METADATA,
    sa.Column("name", Text, primary_key=True),
    sa.Column("keys", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
LINK_STATES = sa.Table(
    "link_states",
    METADATA,
    sa.Column("link", Text, sa.ForeignKey("links.name", ondelete="CASCADE"), primary_key=True),
    sa.Column("kind", sa.String(8), primary_key=True),
    sa.Column("name", Text, primary_key=True),
    sa.Column("document", Text, nullable=False),
)
REVISIONS = sa.Table(
    "revisions",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("subscriptions", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("secrets_key", sa.String(16)),
)
