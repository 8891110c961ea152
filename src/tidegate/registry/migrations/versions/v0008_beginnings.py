"""The start position of each service in each of its inputs, fixed when it is applied."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table of format 8. Existing services get no rows: they continue from their checkpoints."""
    op.create_table(
        "beginnings",
        sa.Column("service", sa.String(64), primary_key=True),
        sa.Column("stream", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("since", sa.Integer, nullable=False),
        sa.Column("cursor", sa.Text, nullable=False),
    )
