"""Rotation and last use of API keys, and the id of the key that encrypts secrets."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables and columns of format 6."""
    op.add_column("keys", sa.Column("previous_prefix", sa.String(8)))
    op.add_column("keys", sa.Column("previous_digest", sa.LargeBinary))
    op.add_column("keys", sa.Column("previous_until", sa.BigInteger))
    op.add_column("keys", sa.Column("last_used_at", sa.BigInteger))
    op.add_column("keys", sa.Column("last_used_from", sa.Text))
    op.create_index("keys_by_previous_prefix", "keys", ["previous_prefix"])
    op.add_column("revisions", sa.Column("secrets_key", sa.String(16)))
