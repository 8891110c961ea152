"""Given a batch of events and all live filters: which filter matches which event.

Knows filters and events; no log, no network, no clock. Engines stand behind one
protocol (`index`), and `scan`, the slow one, judges the others.
"""

from tidegate.matching.matcher import Matcher
from tidegate.matching.result import Matches

__all__ = ["Matcher", "Matches"]
