"""Definitions remember who has stated them: the operator in a file, or somebody over the network.

What is there already counts as the operator's: nobody wrote down where it came from, and it ran so far.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the tables of format 5."""
    for table in ("definitions", "history"):
        op.add_column(table, sa.Column("origin", sa.String(8), nullable=False, server_default="operator"))
