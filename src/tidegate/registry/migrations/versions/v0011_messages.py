"""Short messages between the gateways that share a registry."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
OLDEST = "0009"


def upgrade() -> None:
    """Create the table of format 11."""
    op.create_table(
        "messages",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("recipient", sa.Text, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("messages_by_recipient", "messages", ["recipient"])
