"""The gateways that run, and what each of them tells the others."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
OLDEST = "0009"


def upgrade() -> None:
    """Create the table of format 10."""
    op.create_table(
        "gateways",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
