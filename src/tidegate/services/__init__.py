"""Definitions of streams and services: as Python values, as YAML, checked, versioned.

Knows nothing of how they run.
"""
