"""Streams and services, their history, and the counter.

Registries that are older than migrations have some or all of these tables, but no Alembic revision. The migration
creates the missing ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables and columns of format 1."""
    op.create_table(
        "definitions",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.Column("forced", sa.Boolean, nullable=False),
        sa.Column("backfill", sa.Boolean, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "history",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("document", sa.Text),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.Column("forced", sa.Boolean, nullable=False),
        sa.Column("backfill", sa.Boolean, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "revisions",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
        if_not_exists=True,
    )
    op.execute(
        "INSERT INTO revisions (id, revision, format) SELECT 1, 0, 1 WHERE NOT EXISTS (SELECT id FROM revisions)"
    )
