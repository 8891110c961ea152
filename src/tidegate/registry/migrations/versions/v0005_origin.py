"""Definitions remember who has stated them: the operator in a file, or somebody over the network.

Nobody wrote down where existing definitions came from, so none of them is trusted: one that imports code, reads files
or reaches hosts by itself stops with an error that says so, until the operator states it again in a file.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the tables of format 5."""
    for table in ("definitions", "history"):
        op.add_column(table, sa.Column("origin", sa.String(8), nullable=False, server_default="remote"))
