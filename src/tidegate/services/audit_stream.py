"""The audit log as a stream: its name, the schema of its events, and how much of it is kept."""

from __future__ import annotations

from tidegate.model import Schema

STREAM = "_audit"

SCHEMA = Schema(
    {
        "action": "string",
        "result": "string",
        "caller": "string?",
        "name": "string?",
        "role": "string?",
        "address": "string",
        "target": "string?",
        "detail": "string?",
        "count": "int64",
        "gateway": "string",
        "time": "timestamp",
    },
    event_time="time",
)
"""Of the events of `_audit`: who did what, from where, and what became of it. `count` is above 1 where an event sums up
several."""

MAX_AGE_S = 365 * 86_400.0
MAX_BYTES = 256 * 1024 * 1024
"""Of each partition, and there are two for each gateway: changes, and all else. A flood of the latter, failed sign-ins
for instance, pushes out no change."""
