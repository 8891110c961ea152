"""`/asyncapi.json`: the events that a gateway sends and receives, as an AsyncAPI 3.0 document.

The gateway is the application of the document. It sends the output of services by server-sent
events, WebSocket and webhooks, and receives events for raw streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate import __version__
from tidegate.gateway.describe.json_schema import ANY_OBJECT, CURSOR, TEXT, array, record
from tidegate.gateway.transports.messages import OPS
from tidegate.model import Schema
from tidegate.services.definitions import Http, Service, Stream

VERSION = "3.0.0"
HTTP_BINDING, WS_BINDING = "0.3.0", "0.1.0"

Document = dict[str, Any]

_QUERY = {
    "type": "object",
    "properties": {
        "filter": {**TEXT, "description": "Just events that match."},
        "param": array(TEXT, description="Values of the filter's %0, %1, ..."),
        "cursor": CURSOR,
        "from": {**TEXT, "description": "now, beginning, a moment, or 10m for ten minutes ago."},
        "select": {**TEXT, "description": "Attributes, separated by commas."},
        "format": {"enum": ["cloudevents", "plain"]},
    },
}

SECURITY = {
    "key": {"type": "http", "scheme": "bearer"},
    "header": {"type": "httpApiKey", "in": "header", "name": "X-API-Key"},
    "query": {"type": "httpApiKey", "in": "query", "name": "access_token"},
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The address at which a client asked for the document."""

    host: str
    """Host and port."""
    is_secure: bool = False
    needs_keys: bool = False


def describe(
    services: Iterable[Service], streams: Iterable[Stream], schemas: Mapping[str, Schema], origin: Origin
) -> Document:
    """Return the document of services and raw streams; `schemas` are the schemas of their events."""
    document: Document = {
        "asyncapi": VERSION,
        "info": {
            "title": "Tidegate",
            "version": __version__,
            "description": "Sensor streams as services: subscribe with a filter, get just the events that match.",
        },
        "defaultContentType": "application/json",
        "servers": _servers(origin),
        "channels": {},
        "operations": {},
        "components": {"messages": {}, "schemas": {}, "securitySchemes": SECURITY},
    }
    _add_socket(document)
    for service in services:
        _add_service(document, service, schemas[service.name])
    for stream in streams:
        if isinstance(stream.source, Http):
            _add_stream(document, stream)
    return document


def _servers(origin: Origin) -> Document:
    end = "s" if origin.is_secure else ""
    security = {"security": [_ref("components", "securitySchemes", name) for name in SECURITY]}
    servers = {
        "http": {"host": origin.host, "protocol": f"http{end}", "description": "Server-sent events, pages, webhooks."},
        "websocket": {"host": origin.host, "protocol": f"ws{end}", "description": "Many subscriptions on one socket."},
    }
    return {name: {**server, **(security if origin.needs_keys else {})} for name, server in servers.items()}


def _add_service(document: Document, service: Service, schema: Schema) -> None:
    name, components = service.name, document["components"]
    components["schemas"][name] = _attributes(schema)
    components["schemas"][f"{name}.cloudevent"] = _envelope(name)
    components["messages"][name] = {
        "name": f"{name}.event",
        "title": f"An event of {name}, as CloudEvents 1.0 has it",
        "contentType": "application/cloudevents+json",
        "payload": _ref("components", "schemas", f"{name}.cloudevent"),
        "correlationId": {"description": "The event's id.", "location": "$message.payload#/id"},
    }
    channel = {
        "address": f"/v1/services/{name}/events",
        "title": name,
        "messages": {"event": _ref("components", "messages", name)},
        "servers": [_ref("servers", "http"), _ref("servers", "websocket")],
        "bindings": {"ws": {"method": "GET", "query": _QUERY, "bindingVersion": WS_BINDING}},
    }
    if service.description:
        channel["description"] = service.description
    if service.themes:
        channel["tags"] = [{"name": theme} for theme in service.themes]
    document["channels"][name] = channel
    document["channels"][f"{name}.webhook"] = {
        "address": None,
        "title": f"{name}, to a webhook",
        "description": "The address that a durable subscription names: POST /v1/services/{name}/subscriptions.",
        "messages": {"event": _ref("components", "messages", name)},
        "servers": [_ref("servers", "http")],
    }
    document["operations"][f"{name}.subscribe"] = {
        "action": "send",
        "channel": _ref("channels", name),
        "summary": "With Accept: text/event-stream as server-sent events, else a page; or on a WebSocket.",
        "messages": [_ref("channels", name, "messages", "event")],
        "bindings": {"http": {"method": "GET", "query": _QUERY, "bindingVersion": HTTP_BINDING}},
    }
    document["operations"][f"{name}.deliver"] = {
        "action": "send",
        "channel": _ref("channels", f"{name}.webhook"),
        "summary": "To a webhook, signed as Standard Webhooks has it, at least once.",
        "messages": [_ref("channels", f"{name}.webhook", "messages", "event")],
        "bindings": {"http": {"method": "POST", "bindingVersion": HTTP_BINDING}},
    }


def _add_stream(document: Document, stream: Stream) -> None:
    name, components = f"{stream.name}.ingest", document["components"]
    components["schemas"][name] = _attributes(stream.schema)
    components["messages"][name] = {
        "name": name,
        "title": f"An event for {stream.name}",
        "contentType": "application/json",
        "payload": _ref("components", "schemas", name),
    }
    document["channels"][name] = {
        "address": f"/v1/streams/{stream.name}/events",
        "title": f"{stream.name}, a raw stream",
        "messages": {"event": _ref("components", "messages", name)},
        "servers": [_ref("servers", "http")],
    }
    document["operations"][name] = {
        "action": "receive",
        "channel": _ref("channels", name),
        "summary": "Put events into a raw stream; also several, as lines, CloudEvents or Arrow.",
        "messages": [_ref("channels", name, "messages", "event")],
        "bindings": {"http": {"method": "POST", "bindingVersion": HTTP_BINDING}},
    }


def _add_socket(document: Document) -> None:
    """Add the WebSocket that starts without a subscription; see docs/spec/delivery.md."""
    commands = {"op": {"enum": list(OPS)}, "id": TEXT, "service": TEXT, "filter": TEXT, "cursor": CURSOR}
    answers = {"op": TEXT, "id": TEXT, "subscriptions": array(TEXT), "cursor": CURSOR, "event": ANY_OBJECT}
    for name, title, payload in (
        ("command", "What a client says", record(commands, optional=tuple(commands)[1:])),
        ("told", "What the gateway says", record(answers, optional=tuple(answers)[1:])),
    ):
        document["components"]["messages"][f"_socket.{name}"] = {
            "name": f"_socket.{name}",
            "title": title,
            "contentType": "application/json",
            "payload": payload,
        }
    document["channels"]["_socket"] = {
        "address": "/v1/events",
        "title": "A WebSocket for many subscriptions, subprotocol tidegate.v1",
        "messages": {name: _ref("components", "messages", f"_socket.{name}") for name in ("command", "told")},
        "servers": [_ref("servers", "websocket")],
        "bindings": {"ws": {"method": "GET", "bindingVersion": WS_BINDING}},
    }
    for action, name in (("receive", "command"), ("send", "told")):
        document["operations"][f"_socket.{name}"] = {
            "action": action,
            "channel": _ref("channels", "_socket"),
            "messages": [_ref("channels", "_socket", "messages", name)],
        }


def _attributes(schema: Schema) -> Document:
    """Return the JSON schema of events, limited to what the schemas of AsyncAPI (draft 07) support.

    `x-constraints` has by attribute the rest of a filter that every event matches.
    """
    written = schema.to_json_schema()
    del written["$schema"]
    if schema.constraints:
        written["x-constraints"] = dict(schema.constraints)
    return written


def _envelope(name: str) -> Document:
    return record(
        {
            "specversion": {"const": "1.0"},
            "id": TEXT,
            "source": {"const": f"/v1/services/{name}"},
            "type": {"const": "tidegate.event"},
            "time": {"type": "string", "format": "date-time"},
            "datacontenttype": {"const": "application/json"},
            "data": _ref("components", "schemas", name),
        },
        optional=("time",),
    )


def _ref(*path: str) -> Document:
    """Return a reference within the document. Names contain neither / nor ~."""
    return {"$ref": "#/" + "/".join(path)}
