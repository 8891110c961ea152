"""Finds which subscriptions' filters match which events of a batch.

Knows filters and events; does no I/O and reads no clock. Engines implement one protocol (`index.Index`): `columnar` is
the default, `scan` is the slow oracle that the tests compare all others with.
"""

from tidegate.matching.matcher import Matcher
from tidegate.matching.result import Matches

__all__ = ["Matcher", "Matches"]
