"""The stream of the audit log: name, schema and retention."""

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
"""The schema of `_audit`: who did what, from which address, and with which result. An event with a `count` above 1
summarises several equal ones."""

MAX_AGE_S = 365 * 86_400.0
MAX_BYTES = 256 * 1024 * 1024
"""The size limit of a partition. Each gateway has two partitions: changes, and everything else. So a flood of other
events, such as failed sign-ins, does not remove changes."""
