"""`/openapi.json`: the document of FastAPI, completed with bodies, responses, problems and authentication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tidegate.gateway.describe.json_schema import BROKER, NAME, SERVICE, ref
from tidegate.gateway.describe.key_schemas import KEY_SCHEMAS
from tidegate.gateway.describe.link_schemas import LINK_SCHEMAS
from tidegate.gateway.describe.quarantine_schemas import QUARANTINE_SCHEMAS
from tidegate.gateway.describe.schemas import SCHEMAS
from tidegate.gateway.history.writers import ARROW, PARQUET
from tidegate.gateway.http.problems import MEDIA_TYPE
from tidegate.gateway.telemetry.metrics import CONTENT_TYPE as METRICS
from tidegate.ingress.http import CONTENT_TYPES

JSON = "application/json"
SSE = "text/event-stream"

_MEANINGS = {
    400: "Something in it can't be used: a filter, a parameter, a cursor, the body",
    401: "Authentication is required",
    403: "The key does not open this",
    404: "There is no such thing",
    409: "It won't do that now",
    412: "It was changed meanwhile",
    413: "The request is too large",
    415: "The content type can't be read",
    422: "The request does not fit",
    429: "Too much at once; try again later",
    501: "A part is not installed",
    503: "Not now; try again",
}
_ANYWHERE = (401, 403, 429, 503)
"""Problems of every call under /v1."""

_EVENT = {"_id": "taxi-7-1", "vid": "B1", "speed": 61.5, "time": "2026-01-01T00:00:00Z"}
_CLOUD = {"specversion": "1.0", "id": "taxi-7-1", "source": "/taxi/7", "type": "position", "data": _EVENT}
_LINES = '{"vid": "B1", "speed": 61.5, "time": "2026-01-01T00:00:00Z"}\n{"vid": "B2", "speed": 0.0}\n'


def _content(kind: str, schema: Any, **examples: Any) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": schema}
    if examples:
        content["examples"] = {name: {"value": value} for name, value in examples.items()}
    return {kind: content}


def _json(name: str, **examples: Any) -> dict[str, Any]:
    return _content(JSON, ref(name), **examples)


_TEXTS = {"type": "string", "description": "One JSON object a line."}
_EVENTS: dict[str, Any] = {}
for _kind in CONTENT_TYPES:
    _EVENTS |= _content(_kind, _TEXTS, two=_LINES)
_EVENTS |= _content(
    JSON, {"anyOf": [ref("Event"), {"type": "array", "items": ref("Event")}]}, one=_EVENT, several=[_EVENT]
)
_EVENTS |= _content("application/cloudevents+json", {"type": "object"}, one=_CLOUD)
_EVENTS |= _content(
    "application/cloudevents-batch+json", {"type": "array", "items": {"type": "object"}}, several=[_CLOUD]
)
_EVENTS |= _content(
    "application/vnd.apache.arrow.stream", {"type": "string", "format": "binary", "description": "Arrow IPC."}
)

_SERVICE = {"from": "gps_taxi", "pipeline": [{"filter": "speed > 60"}], "constraints": {"speed": ">= 0"}}
_DEFINITION = {
    **_json("ServiceDefinition", filtered=_SERVICE),
    **_content("application/yaml", ref("ServiceDefinition"), filtered=_SERVICE),
}
_POSITIONS = {"schema": {"vid": "string", "speed": "float64", "time": "timestamp"}, "event_time": "time"}
_STREAM = {
    **_json("StreamDefinition", positions=_POSITIONS),
    **_content("application/yaml", ref("StreamDefinition"), positions=_POSITIONS),
}
_FILE = {"streams": {"gps_bus": _POSITIONS}, "services": {"fast_buses": {**_SERVICE, "from": "gps_bus"}}}
_FILES = {
    **_json("ServiceFile", one=_FILE),
    **_content("application/yaml", ref("ServiceFile"), one=_FILE),
}
_WANTED_SERVICE = {
    "attributes": {"speed": {"type": "float64", "range": [0, 120]}, "vid": "string"},
    "qos": {"limits": {"availability": "good"}, "weights": {"latency": 2}},
}
_WEBHOOK = {"deliver": {"webhook": {"url": "https://example.com/in", "batch": 10}}, "filter": "speed > 60"}
_WANTED = _json(
    "SubscriptionRequest", pull={"filter": "speed > %0", "params": [60], "select": ["vid"]}, webhook=_WEBHOOK
)
_PUBLIC_KEY = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
_DIALLED = {"name": "city", "url": "https://city.example:8080", "secret": "what both ends of it know alone"}
_REPLAY = _json(
    "ReplayRequest",
    patched={"events": [{"id": "gps.quarantine:1f2e3d4c:gps_taxi.0:0", "patch": {"speed": 0.0}}]},
    selection={"all": {"rule": "speed", "from": "1h"}},
)
_BLOCKS = {"type": "string", "description": "Blocks of `id:` (a cursor), `event:` and `data:`, without end."}
_STREAMED = {**_json("Page"), **_content(SSE, _BLOCKS)}
_BINARY = {"type": "string", "format": "binary", "description": "History, with `format=arrow` or `parquet`."}
_WITH_HISTORY = {**_STREAMED, **_content(ARROW, _BINARY), **_content(PARQUET, _BINARY)}
_ETAG = {"ETag": {"schema": {"type": "string"}, "description": "The version."}}


@dataclass(frozen=True, slots=True)
class CallDescription:
    """The body and responses of one call."""

    id: str
    ok: Mapping[str, Any] | None
    """The content of the successful response; None if it has none."""
    errors: tuple[int, ...] = ()
    """Status codes of problems, besides those of every call under /v1."""
    body: Mapping[str, Any] | None = None
    needs_body: bool = True
    status: int = 200
    headers: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Other responses that are not problems."""


_ID = "/v1/subscriptions/{id}"
_READ = (400, 404, 422)

_PATTERNS = {"name": SERVICE, "stream": NAME, "broker": BROKER}
"""Patterns of the names in paths."""

CALLS: dict[str, CallDescription] = {
    "GET /livez": CallDescription("isAlive", _json("Life")),
    "GET /readyz": CallDescription("isReady", _json("Readiness"), more={503: _json("Readiness")}),
    "GET /metrics": CallDescription("getMetrics", _content(METRICS.partition(";")[0], {"type": "string"})),
    "GET /asyncapi.json": CallDescription("describeEvents", _content(JSON, {"type": "object"})),
    "GET /v1/services/{name}/asyncapi.json": CallDescription(
        "describeEventsOf", _content(JSON, {"type": "object"}), (404,)
    ),
    "POST /v1/apply": CallDescription("applyFiles", _json("Changes"), (400, 404, 409, 413, 422), body=_FILES),
    "POST /v1/discover": CallDescription(
        "discover",
        {**_json("Answer"), **_content(SSE, _BLOCKS)},
        (400, 413, 422),
        body=_json("DiscoverRequest", attributes=_WANTED_SERVICE),
    ),
    "GET /v1/me": CallDescription("whoAmI", _json("Me")),
    "GET /v1/overview": CallDescription("getOverview", _json("Overview")),
    "GET /v1/semantics": CallDescription("lookIntoMeaning", _json("Meaning"), (404, 422)),
    "GET /v1/streams": CallDescription("listStreams", _json("Streams")),
    "GET /v1/streams/{stream}": CallDescription("getStream", _json("Stream"), (404,)),
    "PUT /v1/streams/{stream}": CallDescription("putStream", _json("Stream"), (400, 404, 409, 413, 422), body=_STREAM),
    "DELETE /v1/streams/{stream}": CallDescription("removeStream", None, (404, 409), status=204),
    "POST /v1/streams/{stream}/events": CallDescription(
        "ingest", _json("Receipt"), (400, 404, 409, 413, 415, 422, 501), body=_EVENTS
    ),
    "GET /v1/streams/{name}/quarantine": CallDescription("listStreamQuarantine", _json("Quarantine"), _READ),
    "POST /v1/streams/{name}/quarantine/replay": CallDescription(
        "replayStreamQuarantine", _json("Replay"), (400, 404, 409, 413, 422), body=_REPLAY
    ),
    "GET /v1/services": CallDescription("listServices", _json("Services")),
    "GET /v1/keys": CallDescription("listKeys", _json("Keys")),
    "POST /v1/keys": CallDescription(
        "createKey",
        _json("NewKey"),
        (400, 409, 413, 422),
        body=_json("KeyRequest", consumer={"name": "fleet", "role": "consumer", "expires": "90d"}),
        status=201,
    ),
    "POST /v1/keys/{id}/rotate": CallDescription(
        "rotateKey",
        _json("NewKey"),
        (400, 404, 409, 413, 422),
        body=_json("RotateRequest", day={"overlap": "24h"}),
        needs_body=False,
    ),
    "DELETE /v1/keys/{id}": CallDescription("revokeKey", _json("Key"), (404, 409)),
    "GET /v1/links": CallDescription("listLinks", _json("Links"), (409,)),
    "POST /v1/links": CallDescription(
        "addLink",
        _json("NewLink"),
        (400, 409, 413, 422),
        body=_json("LinkRequest", dialled=_DIALLED, awaited={"name": "province"}),
        status=201,
    ),
    "GET /v1/links/{broker}": CallDescription("getLink", _json("Link"), (404, 409)),
    "GET /v1/links/{broker}/routes": CallDescription("listRoutes", _json("Routes"), (404, 409, 422)),
    "PATCH /v1/links/{broker}": CallDescription(
        "changeLink", _json("Link"), (400, 404, 409, 413, 422), body=_json("LinkChange", transit={"transit": ["rail"]})
    ),
    "GET /v1/links/{broker}/keys": CallDescription("getPinnedKeys", _json("PinnedKeys"), (404, 409)),
    "PUT /v1/links/{broker}/keys": CallDescription(
        "pinKeys", _json("PinnedKeys"), (400, 409, 413, 422), body=_json("KeySet", public={"keys": [_PUBLIC_KEY]})
    ),
    "DELETE /v1/links/{broker}/keys": CallDescription("unpinKeys", None, (404, 409), status=204),
    "DELETE /v1/links/{broker}": CallDescription("removeLink", None, (404, 409), status=204),
    "GET /v1/services/{name}": CallDescription("getService", _json("Service"), (404,)),
    "PUT /v1/services/{name}": CallDescription(
        "putService", _json("Service"), (400, 404, 409, 413, 422), body=_DEFINITION
    ),
    "DELETE /v1/services/{name}": CallDescription("removeService", None, (404, 409, 422), status=204),
    "GET /v1/services/{name}/status": CallDescription("getServiceStatus", _json("ServiceStatus"), (404,)),
    "GET /v1/services/{name}/quarantine": CallDescription("listQuarantine", _json("Quarantine"), _READ),
    "POST /v1/services/{name}/quarantine/replay": CallDescription(
        "replayQuarantine", _json("Replay"), (400, 404, 409, 413, 422), body=_REPLAY
    ),
    "GET /v1/services/{name}/events": CallDescription("subscribe", _WITH_HISTORY, _READ),
    "GET /v1/services/{name}/explain": CallDescription("explainFilter", _json("FilterExplanation"), _READ),
    "GET /v1/services/{name}/backtest": CallDescription("backtest", _json("Backtest"), _READ),
    "POST /v1/services/{name}/subscriptions": CallDescription(
        "createSubscription",
        _json("Subscription"),
        (400, 404, 413, 422),
        body=_WANTED,
        needs_body=False,
        status=201,
        headers={**_ETAG, "Location": {"schema": {"type": "string"}}},
    ),
    "GET /v1/services/{name}/subscriptions": CallDescription("listSubscriptions", _json("Subscriptions"), (404,)),
    "GET /v1/subscriptions": CallDescription("listAllSubscriptions", _json("Subscriptions"), (422,)),
    f"GET {_ID}": CallDescription("getSubscription", _json("Subscription"), (404,), headers=_ETAG),
    f"GET {_ID}/status": CallDescription("getSubscriptionStatus", _json("Subscription"), (404,)),
    f"PATCH {_ID}": CallDescription(
        "changeSubscription",
        _json("Subscription"),
        (400, 404, 409, 412, 413, 422),
        body=_json("SubscriptionChange", params={"params": [80], "version": 1}),
        headers=_ETAG,
    ),
    f"DELETE {_ID}": CallDescription("removeSubscription", None, (404,), status=204),
    f"GET {_ID}/events": CallDescription("consume", _STREAMED, (400, 404, 409, 422)),
    f"POST {_ID}/ack": CallDescription(
        "acknowledge",
        _json("Acknowledged"),
        (400, 404, 409, 413, 422),
        body=_json("Acknowledgement", last={"cursor": "WyJhIix7IjAiOjF9XQ"}),
    ),
    f"GET {_ID}/explain": CallDescription("explainSubscription", _json("Explanation"), (400, 404, 422)),
    f"POST {_ID}/secret": CallDescription("newSecret", _json("Secret"), (404, 409)),
    f"DELETE {_ID}/secret": CallDescription("dropSecrets", _json("Secrets"), (404, 409)),
    f"POST {_ID}/enable": CallDescription("enableSubscription", _json("Subscription"), (404, 409)),
    f"POST {_ID}/renew": CallDescription("renewSubscription", _json("Subscription"), (404, 409, 422)),
    f"POST {_ID}/adopt": CallDescription(
        "adoptSubscription",
        _json("Subscription"),
        (400, 404, 409, 413, 422),
        body=_json("AdoptRequest", key={"owner": "key_0123456789abcdef"}),
        needs_body=False,
    ),
    f"GET {_ID}/dead-letters": CallDescription("listDeadLetters", _json("DeadLetters"), (404, 422)),
    f"POST {_ID}/dead-letters/redeliver": CallDescription(
        "redeliver",
        _json("Redelivered"),
        (400, 404, 409, 413, 422),
        body=_json("RedeliverRequest", all={"ids": "all"}, some={"ids": [1, 2]}),
        needs_body=False,
    ),
}

SECURITY = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key: `tidegate keys create`."},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "query": {
        "type": "apiKey",
        "in": "query",
        "name": "access_token",
        "description": "For browsers, whose EventSource and WebSocket set no header.",
    },
}


_DOCUMENTS: dict[bool, dict[str, Any]] = {}


def describe(app: FastAPI, *, needs_keys: bool) -> dict[str, Any]:
    """Return the OpenAPI document of an app. Built once per process, because all gateways have the same calls."""
    if needs_keys not in _DOCUMENTS:
        _DOCUMENTS[needs_keys] = _document(app, needs_keys=needs_keys)
    return _DOCUMENTS[needs_keys]


def _document(app: FastAPI, *, needs_keys: bool) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    for path, calls in document["paths"].items():
        for method, operation in calls.items():
            call = CALLS.get(f"{method.upper()} {path}")
            if call is not None:
                _complete(operation, call, path, needs_keys=needs_keys)
    schemas = {**SCHEMAS, **QUARANTINE_SCHEMAS, **LINK_SCHEMAS, **KEY_SCHEMAS}
    document["components"] = {"schemas": schemas, "securitySchemes": SECURITY}
    return document


def _complete(operation: dict[str, Any], call: CallDescription, path: str, *, needs_keys: bool) -> None:
    operation["operationId"] = call.id
    if call.body is not None:
        operation["requestBody"] = {"required": call.needs_body, "content": dict(call.body)}
    success: dict[str, Any] = {"description": "Done"}
    if call.ok is not None:
        success["content"] = dict(call.ok)
    if call.headers:
        success["headers"] = dict(call.headers)
    responses = {str(call.status): success}
    for status, content in call.more.items():
        responses[str(status)] = {"description": _MEANINGS[status], "content": dict(content)}
    is_api = path.startswith("/v1/") or path == "/asyncapi.json"
    for status in sorted({*call.errors, *(_ANYWHERE if is_api else ())}):
        responses[str(status)] = {"description": _MEANINGS[status], "content": _content(MEDIA_TYPE, ref("Problem"))}
    operation["responses"] = responses
    if is_api:
        operation["security"] = [*({name: []} for name in SECURITY), *([] if needs_keys else [{}])]
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path" and parameter["name"] in _PATTERNS:
            parameter["schema"] = {"type": "string", "pattern": _PATTERNS[parameter["name"]]}
