"""The events are described as AsyncAPI 3.0 has it, and are as they are described."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from tests.gateway.running import World

NAME = re.compile(r"^[\w.\-]+$")
ROOT = {"asyncapi", "id", "info", "defaultContentType", "servers", "channels", "operations", "components"}
OBJECTS: dict[str, tuple[set[str], set[str]]] = {
    "servers": (
        {"host", "protocol"},
        {"protocolVersion", "pathname", "title", "summary", "description", "variables", "security", "tags", "bindings"},
    ),
    "channels": (
        {"address", "messages"},
        {"title", "summary", "description", "servers", "parameters", "tags", "externalDocs", "bindings"},
    ),
    "operations": (
        {"action", "channel"},
        {"title", "summary", "description", "security", "tags", "bindings", "traits", "messages", "reply"},
    ),
    "messages": (
        {"name", "payload"},
        {"title", "summary", "description", "contentType", "headers", "correlationId", "tags", "bindings", "examples"},
    ),
}
"""What an object of AsyncAPI 3.0 must have here, and what it may have."""
BINDINGS = {"http": {"method", "query", "bindingVersion"}, "ws": {"method", "query", "headers", "bindingVersion"}}


def found(document: dict[str, Any], ref: dict[str, str]) -> Any:
    assert ref.keys() == {"$ref"}
    value: Any = document
    for part in ref["$ref"].removeprefix("#/").split("/"):
        value = value[part]
    return value


def need_all_refs(document: dict[str, Any], value: Any) -> None:
    if isinstance(value, dict):
        if "$ref" in value:
            found(document, value)
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        need_all_refs(document, each)


def need_fields(kind: str, objects: dict[str, Any]) -> None:
    required, optional = OBJECTS[kind]
    for name, each in objects.items():
        assert NAME.match(name), name
        assert required <= each.keys() <= required | optional, (kind, name, each.keys() - required - optional)
        for protocol, binding in each.get("bindings", {}).items():
            assert binding.keys() <= BINDINGS[protocol], (name, protocol)


def need_asyncapi(document: dict[str, Any]) -> None:
    """The rules of the specification, as far as they say anything of what we write."""
    assert document["asyncapi"] == "3.0.0"
    assert document.keys() <= ROOT
    assert document["info"].keys() >= {"title", "version"}
    components = document["components"]
    assert components.keys() <= {"messages", "schemas", "securitySchemes"}
    for kind, objects in (*((each, document[each]) for each in ("servers", "channels", "operations")),):
        need_fields(kind, objects)
    need_fields("messages", components["messages"])
    need_all_refs(document, document)
    for server in document["servers"].values():
        assert "://" not in server["host"]
        for each in server.get("security", ()):
            assert found(document, each)["type"] in ("http", "httpApiKey")
    for name, channel in document["channels"].items():
        assert all(each["$ref"].startswith("#/servers/") for each in channel["servers"]), name
        assert channel["messages"], name
        assert channel["address"] is None or not re.search(r"[?#{]", channel["address"]), "a parameter is not described"
    addresses = [each["address"] for each in document["channels"].values() if each["address"] is not None]
    assert len(addresses) == len(set(addresses)), "an address names one channel"
    for name, operation in document["operations"].items():
        assert operation["action"] in ("send", "receive"), name
        at = operation["channel"]["$ref"]
        assert re.fullmatch(r"#/channels/[^/]+", at), "an operation names a channel of the document's own"
        for each in operation["messages"]:
            assert each["$ref"].startswith(f"{at}/messages/"), "a message of another channel"
    names = [each["name"] for each in components["messages"].values()]
    assert len(names) == len(set(names))
    for schema in components["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "http://json-schema.org/draft-07/schema#", **schema})


def schema_of(document: dict[str, Any], channel: str) -> Any:
    """The payload of a channel's events, which a validator takes."""
    message = found(document, document["channels"][channel]["messages"]["event"])
    return {**found(document, message["payload"]), "components": document["components"]}


def test_document_has_all_services_and_http_streams(world: World, http: httpx.Client) -> None:
    document = http.get("/asyncapi.json").json()
    need_asyncapi(document)
    assert document["channels"].keys() == {"_socket", "gps", "gps.webhook", "fast", "fast.webhook", "gps_taxi.ingest"}
    assert document["servers"]["websocket"] == {
        "host": f"127.0.0.1:{world.port}",
        "protocol": "ws",
        "description": "Many subscriptions on one socket.",
    }
    assert document["channels"]["gps"]["address"] == "/v1/services/gps/events"
    assert document["components"]["schemas"]["gps"]["required"] == ["vid", "speed", "time"]


def test_one_service(http: httpx.Client) -> None:
    document = http.get("/v1/services/gps/asyncapi.json").json()
    need_asyncapi(document)
    assert document["channels"].keys() == {"_socket", "gps", "gps.webhook"}
    assert http.get("/v1/services/gsp/asyncapi.json").status_code == 404


def test_delivered_events_fit_the_document(world: World, http: httpx.Client) -> None:
    world.append(3)
    schema = schema_of(http.get("/asyncapi.json").json(), "gps")
    events = http.get("/v1/services/gps/events", params={"from": "beginning"}).json()["events"]
    assert len(events) == 3
    for each in events:
        jsonschema_rs.validator_for(schema).validate(each)
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validator_for(schema).validate({**events[0], "data": {"vid": 1}})


def test_key_for_some_services_gets_only_those(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.needs_keys = True
    _, secret = world.registry.create_key("mine", "consumer", ["fast"])
    with world.running(), world.client() as http:
        assert http.get("/asyncapi.json").status_code == 401
        document = http.get("/asyncapi.json", headers={"x-api-key": secret}).json()
    need_asyncapi(document)
    assert document["channels"].keys() == {"_socket", "fast", "fast.webhook"}
    assert len(document["servers"]["http"]["security"]) == 3
