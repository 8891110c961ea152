"""The registry as a stream: what became of which service, as events of `_services`."""

from __future__ import annotations

import json
from typing import Any

from tidegate.model import Schema, timestamps
from tidegate.services.definitions import Service
from tidegate.services.redaction import redacted
from tidegate.services.writing import to_dict

STREAM = "_services"
KEY = "service"
"""What tells events of `_services` apart, and of `_status`."""

Event = dict[str, Any]

SCHEMA = Schema(
    {
        "service": "string",
        "version": "int64",
        "change": "string",
        "attributes": "string[]",
        "categories": "string[]",
        "themes": "string[]",
        "description": "string",
        "definition": "string",
        "time": "timestamp",
    },
    event_time="time",
)
"""Of the events of `_services`. `definition` is JSON, as `GET /v1/services/{name}` has it; of what is gone the last.
It is for providers who see all services, and never holds a password."""


def told(service: Service, version: int, output: Schema, micros: int, *, is_new: bool) -> Event:
    """A service that is new, or other than it was."""
    moment = timestamps.to_text(micros)
    return {
        "_id": f"{service.name}@{version}",
        "_time": moment,
        "service": service.name,
        "version": version,
        "change": "added" if is_new else "changed",
        "attributes": [field.name for field in output.root],
        "categories": list(service.categories),
        "themes": list(service.themes),
        "description": service.description,
        "definition": json.dumps(redacted(to_dict(service))),
        "time": moment,
    }


def gone(last: Event, micros: int) -> Event:
    """A service of which this was told last, and that is there no more."""
    moment = timestamps.to_text(micros)
    return {**last, "_id": f"{last['_id']}-", "_time": moment, "change": "removed", "time": moment}
