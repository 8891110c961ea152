"""What services and raw streams have refused: read from the log, and sent again.

Knows nothing of HTTP, and changes nothing that is written: what was sent again is
a new event in a raw stream, and a mark in a stream of its own.
"""

from tidegate.gateway.quarantine.marks import Mark, Marks, State
from tidegate.gateway.quarantine.refused import MOST, Found, Place, Refused, Wanted, select
from tidegate.gateway.quarantine.replay import Entry, Outcome, Plan, Planner, Subject

__all__ = [
    "MOST",
    "Entry",
    "Found",
    "Mark",
    "Marks",
    "Outcome",
    "Place",
    "Plan",
    "Planner",
    "Refused",
    "State",
    "Subject",
    "Wanted",
    "select",
]
