"""Parses the messages of a WebSocket client: one JSON object per message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tidegate.errors import did_you_mean
from tidegate.gateway.http.bodies import MAX_DEPTH, is_shallow
from tidegate.gateway.http.problems import HttpProblem

BESIDE_SUBSCRIPTION = ("cursor", "latest")
"""The members that a client may send together with `subscription`."""
MAX_ID_LENGTH = 128
"""Characters of a subscription's id."""
MAX_CREDIT = 2**53


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Open a subscription to a service, or consume a durable subscription, under the id of the client."""

    id: str
    service: str | None = None
    subscription: str | None = None
    filter: str | None = None
    params: tuple[str, ...] | None = None
    cursor: str | None = None
    begin: str | None = None
    select: tuple[str, ...] | None = None
    format: str | None = None
    latest: str | None = None
    every: str | None = None
    key: str | None = None
    idle: str | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """End a subscription."""

    id: str


@dataclass(frozen=True, slots=True)
class Change:
    """Change the filter of a subscription, or only its parameters."""

    id: str
    filter: str | None = None
    params: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledge all events up to a cursor."""

    id: str
    cursor: str


@dataclass(frozen=True, slots=True)
class Credit:
    """Allow the gateway to send this number of further events."""

    events: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Ask for a `pong` message."""


Message = Subscribe | Unsubscribe | Change | Ack | Credit | Ping

Reader = Callable[[str, Any], Any]


def bad_message(detail: str, **more: Any) -> HttpProblem:
    """Return the `HttpProblem` for an invalid message. The socket stays open."""
    return HttpProblem(400, "bad-message", "A message can't be used", detail, **more)


def decode(data: str | bytes) -> Mapping[str, Any]:
    """Decode a text message. Raises `HttpProblem` (400) unless it is a JSON object of limited depth."""
    if isinstance(data, bytes):
        raise bad_message("expected a text message, not a binary one")
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as problem:
        raise bad_message(f"expected a JSON object: {problem}") from problem
    if data.count("[") + data.count("{") > MAX_DEPTH and not is_shallow(document):
        raise bad_message(f"expected JSON that nests at most {MAX_DEPTH} deep")
    if not isinstance(document, dict):
        raise bad_message(f"expected a JSON object, not {_shown(document)}")
    return document


def parse(document: Mapping[str, Any]) -> Message:
    """Parse a decoded message. Raises `HttpProblem` (400) that names the wrong member.

    >>> parse({"op": "credit", "events": 100})
    Credit(events=100)
    """
    op = document.get("op")
    if not isinstance(op, str) or op not in OPS:
        hint = did_you_mean(op, OPS) if isinstance(op, str) else ""
        raise bad_message(f"op: expected {', '.join(OPS)}, not {_shown(op)}{hint}", member="op")
    make, required, optional = OPS[op]
    readers = {**required, **optional}
    members = {}
    for name, value in document.items():
        if name == "op" or (value is None and name in optional):
            continue
        if name not in readers:
            expected = f"a member of {op}: {', '.join(readers)}" if readers else f"no member but op in {op}"
            raise bad_message(f"{name}: expected {expected}{did_you_mean(name, readers)}", member=name)
        members["begin" if name == "from" else name] = readers[name](name, value)
    for name in required:
        if name not in members:
            raise bad_message(f"{op}: expected the member {name}", member=name)
    message: Message = make(**members)
    if isinstance(message, Subscribe):
        _need_service_or_subscription(members)
    return message


def _need_service_or_subscription(members: Mapping[str, Any]) -> None:
    """Refuse a `subscribe` without a service, or one that sets what its durable subscription already defines."""
    if "subscription" not in members:
        if "service" not in members:
            raise bad_message("subscribe: expected the member service, or subscription", member="service")
        return
    for name in members:
        if name not in ("id", "subscription", *BESIDE_SUBSCRIPTION):
            member = "from" if name == "begin" else name
            detail = (
                f"{member}: expected just {' and '.join(BESIDE_SUBSCRIPTION)} beside subscription, which has the rest"
            )
            raise bad_message(detail, member=member)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _unfit(name, value, "a string")
    return value


def _id(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_LENGTH:
        raise _unfit(name, value, f"a string of 1 to {MAX_ID_LENGTH} characters")
    return value


def _attribute(name: str, value: Any) -> str | None:
    """Return the name of an attribute, or `true`, which means the key of the service."""
    if isinstance(value, bool):
        return "true" if value else None
    return _text(name, value)


def _attributes(name: str, value: Any) -> tuple[str, ...]:
    """Return attributes from a list, or from a string with commas as in a query parameter."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _unfit(name, value, "a list of strings")
    return tuple(value)


def _values(name: str, value: Any) -> tuple[str, ...]:
    """Return the parameters of a filter as strings. Numbers are written as in JSON."""
    if not isinstance(value, list) or not all(isinstance(item, str | int | float | bool) for item in value):
        raise _unfit(name, value, "a list of strings and numbers")
    return tuple(item if isinstance(item, str) else orjson.dumps(item).decode() for item in value)


def _length(name: str, value: Any) -> str:
    """Return a duration as text: `500ms`, or a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _unfit(name, value, "a length of time such as 30s")
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_CREDIT:
        raise _unfit(name, value, f"a whole number from 0 to {MAX_CREDIT}")
    return value


def _unfit(name: str, value: Any, expected: str) -> HttpProblem:
    return bad_message(f"{name}: expected {expected}, not {_shown(value)}", member=name)


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


_FILTER: dict[str, Reader] = {"filter": _text, "params": _values}
_START: dict[str, Reader] = {"cursor": _text, "from": _text}
OPS: dict[str, tuple[Callable[..., Message], dict[str, Reader], dict[str, Reader]]] = {
    "subscribe": (
        Subscribe,
        {"id": _id},
        {
            "service": _text,
            "subscription": _text,
            **_FILTER,
            **_START,
            "select": _attributes,
            "format": _text,
            "latest": _attribute,
            "every": _length,
            "key": _text,
            "idle": _length,
        },
    ),
    "unsubscribe": (Unsubscribe, {"id": _id}, {}),
    "change": (Change, {"id": _id}, _FILTER),
    "ack": (Ack, {"id": _id, "cursor": _text}, {}),
    "credit": (Credit, {"events": _count}, {}),
    "ping": (Ping, {}, {}),
}
"""The class, the required members and the optional members of each message."""
