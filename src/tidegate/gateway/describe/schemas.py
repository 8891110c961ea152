"""The documents of the API as JSON schemas, for OpenAPI and AsyncAPI.

Requests are not validated against them: the routes read bodies themselves, and tests
check that both agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.discovery.request import MOST_RESULTS
from tidegate.gateway.describe.json_schema import (
    ANY_OBJECT,
    COUNTS,
    CURSOR,
    ERRORS,
    FIGURE,
    FLAG,
    LENGTH,
    MOMENT,
    NUMBER,
    TEXT,
    WHOLE,
    Schema,
    array,
    optional_record,
    or_null,
    record,
    ref,
)
from tidegate.subscriptions import PUSH_TARGETS, PushTarget, Webhook
from tidegate.subscriptions.rules import MAX_TEXT, PULLED


def _push_targets(*, changed: bool) -> list[Schema]:
    """Return the notation of each push target in a request."""
    schemas = []
    for kind, target in PUSH_TARGETS.items():
        optional = tuple(name for name in target.fields if changed or name not in target.required_fields)
        fields = record(_copied(target.fields), optional=optional, closed=True)
        schemas.append(record({kind: fields}, closed=True))
    return schemas


def _shown_push_targets() -> list[Schema]:
    """Return the form of each push target in an answer."""
    return [record({kind: _shown(target)}) for kind, target in PUSH_TARGETS.items()]


def _shown(target: type[PushTarget]) -> Schema:
    return record({**_copied(target.shown_fields), "secret": TEXT}, optional=("secret",))


def _copied(fields: Mapping[str, Mapping[str, Any]]) -> Schema:
    return {name: dict(schema) for name, schema in fields.items()}


def _wanted(*, changed: bool) -> Schema:
    """Return the fields of a subscription that its creator sets."""
    deliver = [{"enum": [*PULLED, None]}, *_push_targets(changed=changed)]
    return {
        "filter": {"type": ["string", "null"], "maxLength": MAX_TEXT},
        "params": or_null(array({"type": ["string", "number", "boolean"]})),
        "deliver": {"anyOf": deliver, "default": "pull"},
        "select": {"anyOf": [array(TEXT, minItems=1), TEXT, {"type": "null"}]},
        "format": {"enum": ["cloudevents", "plain", None], "default": "cloudevents"},
        "every": LENGTH,
        "key": or_null(TEXT),
        "idle": LENGTH,
        "description": {"type": ["string", "null"], "maxLength": MAX_TEXT},
    }


_EDGE: Schema = {"anyOf": [NUMBER, MOMENT]}
_STATUS = record(
    {"service": TEXT, "state": TEXT, "version": WHOLE, "time": MOMENT},
    description="The newest event of `_status` for the service, with its rates and latencies.",
)
_RECEIPT = record(
    {
        "accepted": WHOLE,
        "duplicates": {**WHOLE, "description": "In the log already, by their ids."},
        "refused": WHOLE,
        "errors": ERRORS,
        "error_count": WHOLE,
        "cursor": CURSOR,
    },
    optional=("errors", "error_count", "cursor"),
)
_WEBHOOK = _shown(Webhook)
_STREAM_TEXTS = dict.fromkeys(("name", "source", "description"), TEXT)
_COUNTS = dict.fromkeys(("events", "refused", "restarts"), or_null(WHOLE))
_SOURCE_STATUS = record({"state": TEXT, "error": or_null(TEXT), "events_per_s": or_null({"type": "number"}), **_COUNTS})
_SUBSCRIPTION = record(
    {
        "id": TEXT,
        "service": TEXT,
        "version": WHOLE,
        "state": {"enum": ["active", "disabled", "stopped"]},
        "reason": or_null(TEXT),
        "filter": TEXT,
        "params": array({"type": ["string", "number", "boolean"]}),
        "deliver": {
            "anyOf": [{"const": "pull"}, *_shown_push_targets()],
        },
        "select": or_null(array(TEXT)),
        "format": {"enum": ["cloudevents", "plain"]},
        "every": or_null(TEXT),
        "key": or_null(TEXT),
        "idle": or_null(TEXT),
        "description": TEXT,
        "cursor": or_null(CURSOR),
        "attempts": WHOLE,
        "retry_at": or_null(MOMENT),
        "created_at": MOMENT,
        "changed_at": MOMENT,
        "expires_at": {
            **or_null(MOMENT),
            "description": "When it stops unless its owner, who has no API key, renews it.",
        },
        "connected": WHOLE,
        "lag": or_null({**WHOLE, "description": "Unacknowledged bytes or records, in the unit of the log."}),
        "delivered": {**WHOLE, "description": "Events that went out from this gateway."},
        "last_error": {
            **or_null(record({"at": MOMENT, "detail": TEXT})),
            "description": "Why its webhook did not take the last message; null: it did, or none was sent from here.",
        },
        "mine": {**FLAG, "description": "Whether the caller may change it."},
    },
    optional=("connected", "lag", "delivered", "last_error", "mine"),
)
_LETTER = record({"id": WHOLE, "cursor": CURSOR, "error": TEXT, "attempts": WHOLE, "at": MOMENT, "event": ANY_OBJECT})
_CLOUD_EVENT = record(
    {
        "specversion": {"const": "1.0"},
        "id": TEXT,
        "source": TEXT,
        "type": {"const": "tidegate.event"},
        "time": MOMENT,
        "datacontenttype": {"const": "application/json"},
        "data": ANY_OBJECT,
    },
    optional=("time",),
    description="An event of a service, as CloudEvents 1.0 has it.",
)


def _named(name: str, figure: str) -> Schema:
    return array(record({name: TEXT, figure: FIGURE}))


_STATE_CHANGE: Schema = record({"effect": {"enum": ["keeps", "migrates", "starts anew"]}, "reasons": array(TEXT)})

SCHEMAS: dict[str, Schema] = {
    "Problem": record(
        {
            "type": {**TEXT, "description": "`urn:tidegate:problem:` and its kind: for programs."},
            "title": TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": TEXT,
            "errors": ERRORS,
        },
        optional=("errors",),
        description="The problem and its place (RFC 9457).",
    ),
    "CloudEvent": _CLOUD_EVENT,
    "PlainEvent": {**ANY_OBJECT, "description": "The attributes of an event, with `_id` and `_time`."},
    "Page": record(
        {
            "cursor": CURSOR,
            "events": array({"anyOf": [ref("CloudEvent"), ref("PlainEvent")]}),
            "gap": ref("Gap"),
        },
        optional=("gap",),
    ),
    "Gap": {**ANY_OBJECT, "properties": {"reason": TEXT}, "description": "Events were missed."},
    "Stream": record({"name": TEXT, "definition": ANY_OBJECT}),
    "Streams": record({"streams": array(ref("Stream"))}),
    "AdoptRequest": record(
        {"owner": {**or_null(TEXT), "description": "The id of the API key that owns it from now on; else the caller."}},
        optional=("owner",),
        closed=True,
    ),
    "StreamDefinition": record(
        {
            "schema": {**ANY_OBJECT, "minProperties": 1},
            "event_time": or_null(TEXT),
            "key": or_null(TEXT),
            "partitions": or_null({"type": "integer", "minimum": 1}),
            "constraints": or_null(ANY_OBJECT),
            "terms": or_null(ANY_OBJECT),
            "source": {},
            "retention": {},
            "themes": {"anyOf": [TEXT, array(TEXT), {"type": "null"}]},
            "description": or_null(TEXT),
        },
        optional=(
            *("event_time", "key", "partitions", "constraints", "terms"),
            *("source", "retention", "themes", "description"),
        ),
        closed=True,
        description="A raw stream as a service file has it.",
    ),
    "ServiceFile": or_null(
        record(
            {"streams": or_null(ANY_OBJECT), "services": or_null(ANY_OBJECT), "files": ANY_OBJECT},
            optional=("streams", "services", "files"),
            closed=True,
            description="Streams and services, as a service file has them; or several texts by name, in `files`.",
        )
    ),
    "DiscoverRequest": optional_record(
        {
            "attributes": {"anyOf": [array({"anyOf": [TEXT, ANY_OBJECT]}), ANY_OBJECT]},
            "names": {"enum": ["exact", "edits", "meaning"], "default": "exact"},
            "coverage": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
            "filter": {**TEXT, "description": "Over the properties of services."},
            "params": array({"type": ["string", "number", "boolean"]}),
            "categories": {"anyOf": [TEXT, array(TEXT)]},
            "themes": {"anyOf": [TEXT, array(TEXT)]},
            "qos": ANY_OBJECT,
            "weights": ANY_OBJECT,
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_RESULTS, "default": 20},
            "explain": {"type": "boolean", "default": False},
        },
        description="A search request; see docs/spec/discovery.md.",
    ),
    "Answer": record(
        {
            "results": array(ANY_OBJECT),
            "total": WHOLE,
            "hints": array(ANY_OBJECT),
            "near": array(ANY_OBJECT),
            "left": ANY_OBJECT,
            "version": WHOLE,
        }
    ),
    "Changes": record(
        {
            name: {"type": "object", "additionalProperties": WHOLE}
            for name in ("added", "changed", "unchanged", "removed")
        }
        | {"states": {"type": "object", "additionalProperties": _STATE_CHANGE}},
        description="Names, each with its version; `states` says what becomes of the state of changed services.",
    ),
    "ServiceDefinition": record(
        {
            "from": {"anyOf": [TEXT, array(TEXT, minItems=1)]},
            "pipeline": or_null(array({"anyOf": [TEXT, ANY_OBJECT]})),
            "constraints": or_null(ANY_OBJECT),
            "on_violation": {"enum": ["quarantine", "drop", "flag", "fail", None], "default": "quarantine"},
            "on_late": {"enum": ["quarantine", "drop", "update", None], "default": "quarantine"},
            "idle": {**or_null(TEXT), "default": "10s", "description": "A length of time, or `never`."},
            "max_ahead": {**or_null(TEXT), "default": "5m", "description": "A length of time, or `never`."},
            "mask": or_null(ANY_OBJECT),
            "properties": or_null({**ANY_OBJECT, "additionalProperties": {"type": ["string", "number", "boolean"]}}),
            "categories": {"anyOf": [TEXT, array(TEXT), {"type": "null"}]},
            "access": {"description": "`public`, `keys`, names, or `{to, fields}`."},
            "qos": or_null(ANY_OBJECT),
            "terms": or_null(ANY_OBJECT),
            "themes": {"anyOf": [TEXT, array(TEXT), {"type": "null"}]},
            "description": or_null(TEXT),
        },
        optional=(
            *("pipeline", "constraints", "on_violation", "on_late", "idle", "max_ahead", "mask", "access"),
            *("properties", "categories", "qos", "terms", "themes", "description"),
        ),
        closed=True,
        description="As a service file has it, see docs/spec/services.md.",
    ),
    "Service": record(
        {
            "name": TEXT,
            "version": or_null(WHOLE),
            "definition": ANY_OBJECT,
            "schema": {**ANY_OBJECT, "description": "The attributes of its events, and their types."},
            "constraints": {
                "type": "object",
                "additionalProperties": TEXT,
                "description": "By attribute, the rest of a filter that every event matches: its own constraints, "
                "those of its inputs, and those that its filters imply.",
            },
            "key": {**or_null(TEXT), "description": "The attribute that tells its events apart, if one alone does."},
            "lost": {**FLAG, "description": "Whether it is down, or has fallen silent."},
            "status": or_null(_STATUS),
            "origin": {**or_null(TEXT), "description": "The broker it comes from; null: this one."},
        }
    ),
    "Services": record({"services": array(ref("Service"))}),
    "ServiceStatus": record(
        {
            "name": TEXT,
            "state": TEXT,
            "lost": FLAG,
            "subscribers": ANY_OBJECT,
            "quality": {
                "type": "object",
                "additionalProperties": record(
                    {
                        "promised": or_null(NUMBER),
                        "measured": or_null(NUMBER),
                        "verdict": or_null({"enum": ["kept", "broken", "unmeasured"]}),
                    }
                ),
                "description": "By metric; null: nothing is promised, or measured.",
            },
        }
    ),
    "Receipt": _RECEIPT,
    "Event": {**ANY_OBJECT, "description": "The attributes of an event; with an `_id` it is taken once."},
    "SubscriptionRequest": optional_record(
        {**_wanted(changed=False), "from": or_null(TEXT), "cursor": or_null(TEXT)},
        description="See docs/spec/subscriptions.md.",
    ),
    "SubscriptionChange": optional_record({**_wanted(changed=True), "version": {"type": ["integer", "null"]}}),
    "Subscription": _SUBSCRIPTION,
    "Subscriptions": record({"subscriptions": array(ref("Subscription")), "total": WHOLE}, optional=("total",)),
    "Acknowledgement": record({"cursor": CURSOR}, closed=True),
    "Acknowledged": record({"cursor": or_null(CURSOR), "moved": FLAG, "detail": TEXT}),
    "Me": record(
        {
            "name": TEXT,
            "known": {**FLAG, "description": "Whether a key or token says who it is."},
            "role": {"enum": ["consumer", "provider", "admin"]},
            "services": or_null(array(TEXT)),
            "expires_at": or_null(MOMENT),
            "version": {**TEXT, "description": "Of the gateway."},
            "has": {
                **array({"enum": ["semantics", "links", "_status", "keys", "_audit"]}),
                "description": "Optional features of this gateway that this caller may use.",
            },
        }
    ),
    "Overview": record(
        {
            "at": MOMENT,
            "streams": array(record({**_STREAM_TEXTS, "status": or_null(_SOURCE_STATUS)})),
            "services": array(
                record(
                    {
                        "name": TEXT,
                        "version": or_null(WHOLE),
                        "description": TEXT,
                        "inputs": array(TEXT),
                        "origin": {**or_null(TEXT), "description": "The broker whose it is; null: ours."},
                        "lost": FLAG,
                        "status": or_null(_STATUS),
                        "subscribers": COUNTS,
                        "behind": WHOLE,
                        "lag": WHOLE,
                        "durable": record({"count": WHOLE, "lag": WHOLE}),
                        "failing": {**WHOLE, "description": "Durable ones whose last delivery failed."},
                        "disabled": {**WHOLE, "description": "Durable ones that get nothing until they are enabled."},
                        "broken": {**array(TEXT), "description": "Metrics whose promises are not kept."},
                        "delivered": COUNTS,
                        "dispatch": {**COUNTS, "description": "Passes that took at most this number of seconds."},
                    }
                )
            ),
        }
    ),
    "FilterExplanation": record(
        {
            "service": TEXT,
            "text": TEXT,
            "canonical": TEXT,
            "tree": array(TEXT),
            "normal_form": ANY_OBJECT,
            "fuzzy": array(ANY_OBJECT),
            "constraints": array(TEXT),
            "warnings": array(TEXT),
            "attributes": array(record({"name": TEXT, "type": TEXT})),
            "event": ANY_OBJECT,
        },
        optional=("event",),
    ),
    "Backtest": record(
        {
            "service": TEXT,
            "filter": {**TEXT, "description": "In its canonical form."},
            "events": WHOLE,
            "matched": WHOLE,
            "complete": {**FLAG, "description": "Whether all that is kept of the time was looked at."},
            "first": or_null(MOMENT),
            "last": or_null(MOMENT),
            "timeline": array(record({"at": MOMENT, "events": WHOLE, "matched": WHOLE})),
            "attributes": array(
                record(
                    {
                        "name": TEXT,
                        "type": TEXT,
                        "missing": WHOLE,
                        "bins": array(record({"from": _EDGE, "to": _EDGE, "events": WHOLE, "matched": WHOLE})),
                        "values": array(record({"value": or_null(TEXT), "events": WHOLE, "matched": WHOLE})),
                    },
                    optional=("bins", "values"),
                )
            ),
            "sample": array(ref("PlainEvent")),
            "took_ms": NUMBER,
        }
    ),
    "Meaning": record(
        {
            "term": TEXT,
            "themes": array(TEXT),
            "threshold": FIGURE,
            "related": array(record({"to": TEXT, "relatedness": FIGURE, "concepts": _named("concept", "share")})),
            "words": array({**TEXT, "description": "As the space has them: stems, without common words."}),
            "unknown": array({**TEXT, "description": "Of these what the space, or the theme, does not have."}),
            "documents": WHOLE,
            "basis": {**WHOLE, "description": "Documents of the theme."},
            "concepts": _named("concept", "weight"),
            "nearest": _named("term", "relatedness"),
        }
    ),
    "Explanation": {**ANY_OBJECT, "required": ["subscription", "index"]},
    "Secret": record({"secret": TEXT, "secrets": WHOLE}),
    "Secrets": record({"secrets": WHOLE}),
    "DeadLetters": record(
        {
            "dead_letters": array(
                record(
                    {"id": WHOLE, "cursor": CURSOR, "error": TEXT, "attempts": WHOLE, "at": MOMENT, "event": ANY_OBJECT}
                )
            )
        }
    ),
    "RedeliverRequest": record(
        {"ids": {"anyOf": [{"const": "all"}, array({"type": "integer"}, minItems=1, maxItems=1_000)]}}, closed=True
    ),
    "Redelivered": record(
        {"delivered": array(WHOLE), "failed": array(record({"id": WHOLE, "error": TEXT})), "untried": array(WHOLE)}
    ),
    "Life": record({"status": {"const": "ok"}}),
    "Readiness": record(
        {"status": {"enum": ["ok", "degraded", "waiting"]}, "services": ANY_OBJECT, "problems": ANY_OBJECT},
        optional=("services", "problems"),
    ),
}
