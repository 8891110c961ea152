"""A wider column for roles: `publisher` has nine letters."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Widen the column `role` of keys."""
    with op.batch_alter_table("keys") as keys:
        keys.alter_column("role", existing_type=sa.String(8), type_=sa.String(16), existing_nullable=False)
