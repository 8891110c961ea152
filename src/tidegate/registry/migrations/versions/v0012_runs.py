"""The last version of each service that ran, and where its checkpoint is."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
OLDEST = "0009"


def upgrade() -> None:
    """Create the table of format 12. Existing services get no rows until they run again."""
    op.create_table(
        "runs",
        sa.Column("service", sa.String(64), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("checkpoints", sa.Text, nullable=False),
    )
