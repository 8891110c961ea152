"""The documents of links between brokers as JSON schemas."""

from __future__ import annotations

from tidegate.gateway.describe.json_schema import (
    ANY_OBJECT,
    BROKER,
    MOMENT,
    SERVICE,
    TEXT,
    WHOLE,
    Schema,
    array,
    or_null,
    record,
    ref,
)
from tidegate.registry.links import MIN_LINK_SECRET

_ROUTE = record({"service": TEXT, "filter": {**TEXT, "description": "In its canonical form."}})
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


LINK_SCHEMAS: dict[str, Schema] = {
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
            "entries": {**array(_ROUTE), "description": "The filters that it requests from us."},
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
        description="The new trust in a neighbour; absent fields are unchanged.",
    ),
    "PinnedKeys": _PINNED_KEYS,
    "KeySet": record(
        {"keys": array(ANY_OBJECT, minItems=1, maxItems=16)},
        description="A JWK set (RFC 7517) of public Ed25519 keys (RFC 8037), with `nbf` and `exp` if wanted.",
    ),
}
