"""The stream `_services`: an event for each service that is added, changed or removed."""

from __future__ import annotations

import json
from typing import Any

from tidegate.model import Schema, timestamps
from tidegate.services.definitions import Service
from tidegate.services.redaction import redacted
from tidegate.services.writing import to_dict

STREAM = "_services"
KEY = "service"
"""The key attribute of the events of `_services`, and of `_status`."""

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
"""The schema of `_services`. `definition` is JSON in the form of `GET /v1/services/{name}`; a removal has the last one.
Only providers who may see all services get `definition`, and it never contains a password."""


def told(service: Service, version: int, output: Schema, micros: int, *, is_new: bool) -> Event:
    """Return the event for a service that was added or changed at `micros`."""
    time_text = timestamps.to_text(micros)
    return {
        "_id": f"{service.name}@{version}",
        "_time": time_text,
        "service": service.name,
        "version": version,
        "change": "added" if is_new else "changed",
        "attributes": [field.name for field in output.root],
        "categories": list(service.categories),
        "themes": list(service.themes),
        "description": service.description,
        "definition": json.dumps(redacted(to_dict(service))),
        "time": time_text,
    }


def gone(last: Event, micros: int) -> Event:
    """Return the event for a service that was removed at `micros`; `last` is its last event."""
    time_text = timestamps.to_text(micros)
    return {**last, "_id": f"{last['_id']}-", "_time": time_text, "change": "removed", "time": time_text}
