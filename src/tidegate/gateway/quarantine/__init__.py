"""Reads the events that services and raw streams have quarantined, and plans their replay.

Knows nothing of HTTP, and changes no record in the log: a replayed event is a new event in a
raw stream, and a mark in a stream beside the quarantine says that it was replayed.
"""

from tidegate.gateway.quarantine.marks import ReplayMark, ReplayMarks, ReplayState
from tidegate.gateway.quarantine.refused import (
    MAX_EVENTS,
    QuarantinedEvent,
    QuarantinePage,
    QuarantinePosition,
    QuarantineQuery,
    read_page,
)
from tidegate.gateway.quarantine.replay import ReplayEntry, ReplayOutcome, ReplayPlan, ReplayPlanner, Subject

__all__ = [
    "MAX_EVENTS",
    "QuarantinePage",
    "QuarantinePosition",
    "QuarantineQuery",
    "QuarantinedEvent",
    "ReplayEntry",
    "ReplayMark",
    "ReplayMarks",
    "ReplayOutcome",
    "ReplayPlan",
    "ReplayPlanner",
    "ReplayState",
    "Subject",
    "read_page",
]
