"""The origin of definitions: the operator's file, or the network.

The origin of existing definitions is unknown, so none of them is trusted. A definition that imports code, reads files
or connects to hosts stops with an error that says so, until the operator applies it again from a file.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the tables and columns of format 5."""
    for table in ("definitions", "history"):
        op.add_column(table, sa.Column("origin", sa.String(8), nullable=False, server_default="remote"))
