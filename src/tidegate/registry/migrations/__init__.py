"""Alembic migrations of a registry, one per format, in `versions`. A released migration is never changed.

`OLDEST` in a migration is the oldest format whose version may use the tables afterwards. It is the previous format as
long as the migration only adds tables, or columns that are nullable or have a server default. So two versions can share
a registry during an upgrade.
"""
