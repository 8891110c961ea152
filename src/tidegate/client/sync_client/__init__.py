# Generated from async_client/__init__.py by scripts/generate_sync_client.py; do not edit.
"""The blocking client. Generated from `tidegate.client.async_client`: change that package."""
