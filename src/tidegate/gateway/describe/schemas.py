"""The documents of the API as JSON schemas, each once.

Plain dicts, which nothing on the path of an event reads: what a body is held to is
for the code that reads it, and a test holds the two together.
"""

from __future__ import annotations

from typing import Any

from tidegate.discovery.request import MOST_RESULTS
from tidegate.gateway.quarantine import MOST as MOST_REFUSED
from tidegate.registry.links import MAX_BROKER_NAME, MIN_LINK_SECRET
from tidegate.subscriptions.rules import LEAST_S, MOST_BATCH, MOST_S, MOST_TEXT, MOST_URL, PULLED

Schema = dict[str, Any]

DURATION = r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
BROKER = rf"^[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_BROKER_NAME - 1}}}$"
SERVICE = f"{NAME[:-1]}(@{BROKER[1:-1]})?$"
"""A service's name, with its origin where that is another broker."""


def ref(name: str) -> Schema:
    """A schema of these by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(of: Schema, **more: Any) -> Schema:
    """A list."""
    return {"type": "array", "items": of, **more}


def record(properties: Schema, *, optional: tuple[str, ...] = (), closed: bool = False, **more: Any) -> Schema:
    """An object that has all its properties but the optional ones, and no others where it is closed."""
    found: Schema = {"type": "object", "properties": properties, **more}
    required = [name for name in properties if name not in optional]
    if required:
        found["required"] = required
    return found | ({"additionalProperties": False} if closed else {})


TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
ANY_OBJECT: Schema = {"type": "object"}
CURSOR: Schema = {"type": "string", "description": "An opaque place in a stream."}


def or_null(schema: Schema) -> Schema:
    """The same, or null."""
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


_LENGTH: Schema = {
    "anyOf": [
        {"type": "string", "pattern": DURATION},
        {"type": "number", "minimum": LEAST_S, "maximum": MOST_S},
        {"type": "null"},
    ],
    "description": "A length of time such as 500ms or 30s, or a number of seconds; from 10ms to a day.",
}


def _webhook(*, changed: bool) -> Schema:
    return record(
        {
            "url": {"type": "string", "maxLength": MOST_URL, "description": "http or https."},
            "batch": {"type": "integer", "minimum": 1, "maximum": MOST_BATCH, "default": 1},
            "handshake": {"type": "boolean", "default": True},
        },
        optional=("url", "batch", "handshake") if changed else ("batch", "handshake"),
        closed=True,
    )


def _wanted(*, changed: bool) -> Schema:
    """The fields of a subscription that its maker says."""
    deliver = [{"enum": [*PULLED, None]}, record({"webhook": _webhook(changed=changed)}, closed=True)]
    return {
        "filter": {"type": ["string", "null"], "maxLength": MOST_TEXT},
        "params": or_null(array({"type": ["string", "number", "boolean"]})),
        "deliver": {"anyOf": deliver, "default": "pull"},
        "select": {"anyOf": [array(TEXT, minItems=1), TEXT, {"type": "null"}]},
        "format": {"enum": ["cloudevents", "plain", None], "default": "cloudevents"},
        "every": _LENGTH,
        "key": or_null(TEXT),
        "idle": _LENGTH,
        "description": {"type": ["string", "null"], "maxLength": MOST_TEXT},
    }


def _optional(properties: Schema, **more: Any) -> Schema:
    return record(properties, optional=tuple(properties), closed=True, **more)


_ERRORS = array({"type": "object", "properties": {"pointer": TEXT, "detail": TEXT}})

_COUNTS: Schema = {"type": "object", "additionalProperties": WHOLE}
_NUMBER: Schema = {"type": "number"}
_ROUTE = record({"service": TEXT, "filter": {**TEXT, "description": "In its canonical form."}})
_EDGE: Schema = {"anyOf": [_NUMBER, MOMENT]}

_STATUS = record(
    {"service": TEXT, "state": TEXT, "version": WHOLE, "time": MOMENT},
    description="The newest event of `_status` for the service, with its rates and latencies.",
)

_RECEIPT = record(
    {
        "accepted": WHOLE,
        "duplicates": {**WHOLE, "description": "In the log already, by their ids."},
        "refused": WHOLE,
        "errors": _ERRORS,
        "error_count": WHOLE,
        "cursor": CURSOR,
    },
    optional=("errors", "error_count", "cursor"),
)

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

_SELECTION = _optional(
    {
        "rule": TEXT,
        "from": TEXT,
        "to": TEXT,
        "cursor": TEXT,
        "max": {"type": "integer", "minimum": 1, "maximum": MOST_REFUSED},
    }
)

_WEBHOOK = record({"url": TEXT, "batch": WHOLE, "secrets": WHOLE, "secret": TEXT}, optional=("secret",))

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
            "anyOf": [
                {"const": "pull"},
                record(
                    {
                        "webhook": record(
                            {"url": TEXT, "batch": WHOLE, "secrets": WHOLE, "secret": TEXT}, optional=("secret",)
                        )
                    }
                ),
            ]
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
        "lag": or_null({**WHOLE, "description": "What it has yet to acknowledge, in the log's measure."}),
        "delivered": {**WHOLE, "description": "Events that went out from this gateway."},
        "last_error": {
            **or_null(record({"at": MOMENT, "detail": TEXT})),
            "description": "Why its webhook did not take the last message; null: it did, or none was sent from here.",
        },
        "mine": {**FLAG, "description": "Whether whoever asks may change it."},
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

_FILTERED = ("forwarded", "stopped", "asked", "excess", "dropped", "coarsened", "tightened")

_FILTERING = record(
    {
        "coarse": {"type": "boolean", "description": "Whether all is forwarded, and only a sample asked about."},
        **dict.fromkeys(_FILTERED, WHOLE),
        "asking_s": {"type": "number", "minimum": 0},
    }
)

_LINK = record(
    {
        "name": {**TEXT, "description": "Of the broker at the other end."},
        "url": or_null(TEXT),
        "services": or_null(array(TEXT)),
        "created_at": MOMENT,
        "state": {"enum": ["up", "down", "refused"]},
        "problem": or_null(TEXT),
        "transit": array(TEXT, description="Other brokers whose services it may pass on; `*`: any."),
        "public": array(TEXT, description="Services of it that guests may read if their origin says so; `*`: any."),
        "offers": array(TEXT, description="Services that come over it."),
        "refused": {
            "type": "object",
            "additionalProperties": TEXT,
            "description": "Services that it offers and is not believed, with the reason.",
        },
        "refusals": {
            "type": "object",
            "additionalProperties": WHOLE,
            "description": "How often something of it was refused, by reason.",
        },
        "asked": {**ANY_OBJECT, "description": "By service, filters that we have asked for."},
        "entries": {**ANY_OBJECT, "description": "By service, filters that we were asked for."},
        "paths": array(array(TEXT), description="Whom it leads to, and by which way."),
        "figures": {"type": "object", "additionalProperties": WHOLE},
        "filtering": {
            "type": "object",
            "additionalProperties": _FILTERING,
            "description": "By service that it has asked for, how what goes there is filtered.",
        },
    }
)


_PINNED_KEYS = record(
    {
        "name": {**TEXT, "description": "Of a broker whose events and offers must be signed."},
        "keys": array(ANY_OBJECT, description="Its public keys, as JWK."),
    }
)
_FIGURE: Schema = {"type": "number", "minimum": 0}


def _named(name: str, figure: str) -> Schema:
    return array(record({name: TEXT, figure: _FIGURE}))


SCHEMAS: dict[str, Schema] = {
    "Problem": record(
        {
            "type": {**TEXT, "description": "`urn:tidegate:problem:` and its kind: for programs."},
            "title": TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": TEXT,
            "errors": _ERRORS,
        },
        optional=("errors",),
        description="What is wrong, and where (RFC 9457).",
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
    "DiscoverRequest": _optional(
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
        description="What is looked for, see docs/spec/discovery.md.",
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
        },
        description="Names, each with its version.",
    ),
    "ServiceDefinition": record(
        {
            "from": {"anyOf": [TEXT, array(TEXT, minItems=1)]},
            "pipeline": or_null(array({"anyOf": [TEXT, ANY_OBJECT]})),
            "constraints": or_null(ANY_OBJECT),
            "on_violation": {"enum": ["quarantine", "drop", "flag", "fail", None], "default": "quarantine"},
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
            "pipeline",
            "constraints",
            "on_violation",
            "mask",
            "access",
            "properties",
            "categories",
            "qos",
            "terms",
            "themes",
            "description",
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
            "key": {**or_null(TEXT), "description": "The attribute that tells its events apart, if one alone does."},
            "lost": {**FLAG, "description": "Whether it is down, or has fallen silent."},
            "status": or_null(_STATUS),
            "origin": {**or_null(TEXT), "description": "The broker it comes from; null: this one."},
        }
    ),
    "Services": record({"services": array(ref("Service"))}),
    "Link": _LINK,
    "Links": record(
        {
            "broker": TEXT,
            "links": array(ref("Link")),
            "pinned": array(ref("PinnedKeys"), description="Brokers whose events and offers must be signed."),
        }
    ),
    "NewLink": record({**_LINK["properties"], "secret": {**TEXT, "description": "Shown this once."}}),
    "Routes": record(
        {
            "name": TEXT,
            "asked": {**array(_ROUTE), "description": "What we ask the other broker for."},
            "entries": {**array(_ROUTE), "description": "What it asks us for."},
            "total": record({"asked": WHOLE, "entries": WHOLE}),
        }
    ),
    "LinkRequest": record(
        {
            "name": {"type": "string", "pattern": BROKER},
            "url": or_null({"type": "string", "pattern": r"^(https?|wss?)://[a-z0-9.:-]+$"}),
            "secret": or_null({"type": "string", "minLength": MIN_LINK_SECRET}),
            "services": or_null(array(TEXT)),
            "transit": or_null(array({"type": "string", "pattern": rf"{BROKER}|^\*$"})),
            "public": or_null(array({"type": "string", "pattern": rf"{SERVICE}|^\*$"})),
        },
        optional=("url", "secret", "services", "transit", "public"),
        closed=True,
        description="A link to the broker of a name. Without a URL it dials us; without a secret one is made.",
    ),
    "LinkChange": record(
        {
            "transit": or_null(array({"type": "string", "pattern": rf"{BROKER}|^\*$"})),
            "public": or_null(array({"type": "string", "pattern": rf"{SERVICE}|^\*$"})),
        },
        optional=("transit", "public"),
        closed=True,
        description="What is believed of a neighbour, in place of what was; without a field it stays.",
    ),
    "PinnedKeys": _PINNED_KEYS,
    "KeySet": record(
        {"keys": array(ANY_OBJECT, minItems=1, maxItems=16)},
        description="A JWK set (RFC 7517) of public Ed25519 keys (RFC 8037), with `nbf` and `exp` if wanted.",
    ),
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
                        "promised": or_null(_NUMBER),
                        "measured": or_null(_NUMBER),
                        "verdict": or_null({"enum": ["kept", "broken", "unmeasured"]}),
                    }
                ),
                "description": "By metric; null: nothing is promised, or measured.",
            },
        }
    ),
    "Receipt": _RECEIPT,
    "Event": {**ANY_OBJECT, "description": "The attributes of an event; with an `_id` it is taken once."},
    "Quarantine": record({"quarantined": array(_REFUSED), "cursor": or_null(CURSOR), "more": FLAG}),
    "ReplayRequest": {
        "anyOf": [
            record({"events": array(_ENTRY, minItems=1, maxItems=MOST_REFUSED)}, closed=True),
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
                        "errors": _ERRORS,
                    },
                    optional=("errors",),
                )
            ),
            "cursor": or_null(CURSOR),
            "more": FLAG,
        },
        optional=("cursor", "more"),
    ),
    "SubscriptionRequest": _optional(
        {**_wanted(changed=False), "from": or_null(TEXT), "cursor": or_null(TEXT)},
        description="See docs/spec/subscriptions.md.",
    ),
    "SubscriptionChange": _optional({**_wanted(changed=True), "version": {"type": ["integer", "null"]}}),
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
                "description": "What is not everywhere, and this caller may ask for here.",
            },
        }
    ),
    "Overview": record(
        {
            "at": MOMENT,
            "streams": array(record({"name": TEXT, "source": TEXT, "description": TEXT})),
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
                        "subscribers": _COUNTS,
                        "behind": WHOLE,
                        "lag": WHOLE,
                        "durable": record({"count": WHOLE, "lag": WHOLE}),
                        "failing": {**WHOLE, "description": "Durable ones that did not take what was sent last."},
                        "disabled": {**WHOLE, "description": "Durable ones that get nothing until they are enabled."},
                        "broken": {**array(TEXT), "description": "Metrics of which promises are not kept."},
                        "delivered": _COUNTS,
                        "dispatch": {**_COUNTS, "description": "Passes that took at most so many seconds."},
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
            "took_ms": _NUMBER,
        }
    ),
    "Meaning": record(
        {
            "term": TEXT,
            "themes": array(TEXT),
            "threshold": _FIGURE,
            "related": array(record({"to": TEXT, "relatedness": _FIGURE, "concepts": _named("concept", "share")})),
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
    "Readiness": record({"status": {"enum": ["ok", "waiting"]}, "services": ANY_OBJECT}),
}
