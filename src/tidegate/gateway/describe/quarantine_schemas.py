"""The documents of quarantines and replays as JSON schemas."""

from __future__ import annotations

from tidegate.gateway.describe.json_schema import (
    ANY_OBJECT,
    CURSOR,
    ERRORS,
    FLAG,
    MOMENT,
    TEXT,
    WHOLE,
    Schema,
    array,
    optional_record,
    or_null,
    record,
)
from tidegate.gateway.quarantine import MAX_EVENTS as MAX_QUARANTINED

_REFUSED = record(
    {
        "id": {**TEXT, "description": "Its place in the quarantine."},
        "event_id": or_null(TEXT),
        "time": or_null(TEXT),
        "reason": TEXT,
        "rules": array(TEXT),
        "source": or_null(TEXT),
        "event": or_null(ANY_OBJECT),
        "raw": TEXT,
        "raw64": TEXT,
        "replayed": or_null(record({"at": MOMENT, "stream": TEXT, "by": or_null(TEXT)})),
    },
    optional=("raw", "raw64"),
)
_ENTRY = record(
    {"id": TEXT, "event": or_null(ANY_OBJECT), "patch": or_null(ANY_OBJECT), "stream": or_null(TEXT)},
    optional=("event", "patch", "stream"),
    closed=True,
)
_SELECTION = optional_record(
    {
        "rule": TEXT,
        "from": TEXT,
        "to": TEXT,
        "cursor": TEXT,
        "max": {"type": "integer", "minimum": 1, "maximum": MAX_QUARANTINED},
    }
)

QUARANTINE_SCHEMAS: dict[str, Schema] = {
    "Quarantine": record({"quarantined": array(_REFUSED), "cursor": or_null(CURSOR), "more": FLAG}),
    "ReplayRequest": {
        "anyOf": [
            record({"events": array(_ENTRY, minItems=1, maxItems=MAX_QUARANTINED)}, closed=True),
            record({"all": _SELECTION, "patch": or_null(ANY_OBJECT)}, optional=("patch",), closed=True),
        ]
    },
    "Replay": record(
        {
            "replayed": WHOLE,
            "already": WHOLE,
            "refused": WHOLE,
            "results": array(
                record(
                    {
                        "id": TEXT,
                        "result": {"enum": ["replayed", "already", "refused"]},
                        "stream": or_null(TEXT),
                        "errors": ERRORS,
                    },
                    optional=("errors",),
                )
            ),
            "cursor": or_null(CURSOR),
            "more": FLAG,
        },
        optional=("cursor", "more"),
    ),
}
