"""Quotas of API keys."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the tables and columns of format 3."""
    op.add_column("keys", sa.Column("quotas", sa.Text))
