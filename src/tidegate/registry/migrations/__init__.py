"""Alembic migrations of a registry, one per format, in `versions`. A released migration is never changed."""
