"""Links to other brokers, and the persisted state of each."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables and columns of format 4."""
    op.create_table(
        "links",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("url", sa.Text),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("services", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "link_states",
        sa.Column("link", sa.Text, sa.ForeignKey("links.name", ondelete="CASCADE"), primary_key=True),
        sa.Column("kind", sa.String(8), primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
