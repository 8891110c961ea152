"""Trust in a link: transit, public services, and the pinned keys of origins."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the columns and the table of format 7.

    An existing link may still forward services of other brokers, so that chains of brokers keep working. A new link
    forwards only what the operator allows.
    """
    op.add_column("links", sa.Column("transit", sa.Text))
    op.add_column("links", sa.Column("public", sa.Text))
    op.execute("UPDATE links SET transit = '[\"*\"]'")
    op.create_table(
        "link_origins",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("keys", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
