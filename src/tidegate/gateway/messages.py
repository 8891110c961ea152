"""What a client says on a WebSocket, understood: one JSON object a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tidegate.errors import did_you_mean
from tidegate.gateway.bodies import MAX_DEPTH, is_shallow
from tidegate.gateway.problems import Problem

BESIDE_SUBSCRIPTION = ("cursor", "latest")
"""What may be said of a durable subscription that is opened."""
LONGEST_ID = 128
"""Characters."""
MOST_CREDIT = 2**53


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Send me a service's events, or those of a durable subscription, under this id."""

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
    """Send me no more of it."""

    id: str


@dataclass(frozen=True, slots=True)
class Change:
    """Another filter from here on, or the same with other parameters."""

    id: str
    filter: str | None = None
    params: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ack:
    """I have done with all up to here."""

    id: str
    cursor: str


@dataclass(frozen=True, slots=True)
class Credit:
    """Send me so many more events."""

    events: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there?"""


Message = Subscribe | Unsubscribe | Change | Ack | Credit | Ping

Reader = Callable[[str, Any], Any]


def bad_message(detail: str, **more: Any) -> Problem:
    """A message that can't be used; the socket goes on."""
    return Problem(400, "bad-message", "A message can't be used", detail, **more)


def decode(data: str | bytes) -> Mapping[str, Any]:
    """A message as JSON says it."""
    if isinstance(data, bytes):
        raise bad_message("expected a text message, not a binary one")
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError as problem:
        raise bad_message(f"expected a JSON object: {problem}") from problem
    if data.count("[") + data.count("{") > MAX_DEPTH and not is_shallow(said):
        raise bad_message(f"expected JSON that nests at most {MAX_DEPTH} deep")
    if not isinstance(said, dict):
        raise bad_message(f"expected a JSON object, not {_shown(said)}")
    return said


def understand(said: Mapping[str, Any]) -> Message:
    """A message, every part of it checked.

    >>> understand({"op": "credit", "events": 100})
    Credit(events=100)
    """
    op = said.get("op")
    if not isinstance(op, str) or op not in OPS:
        hint = did_you_mean(op, OPS) if isinstance(op, str) else ""
        raise bad_message(f"op: expected {', '.join(OPS)}, not {_shown(op)}{hint}", member="op")
    make, required, optional = OPS[op]
    readers = {**required, **optional}
    found = {}
    for name, value in said.items():
        if name == "op" or (value is None and name in optional):
            continue
        if name not in readers:
            known = f"a member of {op}: {', '.join(readers)}" if readers else f"no member but op in {op}"
            raise bad_message(f"{name}: expected {known}{did_you_mean(name, readers)}", member=name)
        found["begin" if name == "from" else name] = readers[name](name, value)
    for name in required:
        if name not in found:
            raise bad_message(f"{op}: expected the member {name}", member=name)
    message: Message = make(**found)
    if isinstance(message, Subscribe):
        _need_one(found)
    return message


def _need_one(found: Mapping[str, Any]) -> None:
    """A subscription is made here, of a service, or is there already and says all else itself."""
    if "subscription" not in found:
        if "service" not in found:
            raise bad_message("subscribe: expected the member service, or subscription", member="service")
        return
    for name in found:
        if name not in ("id", "subscription", *BESIDE_SUBSCRIPTION):
            said = "from" if name == "begin" else name
            detail = (
                f"{said}: expected just {' and '.join(BESIDE_SUBSCRIPTION)} beside subscription, which has the rest"
            )
            raise bad_message(detail, member=said)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _unfit(name, value, "a string")
    return value


def _id(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID:
        raise _unfit(name, value, f"a string of 1 to {LONGEST_ID} characters")
    return value


def _attribute(name: str, value: Any) -> str | None:
    """An attribute; true is the service's key."""
    if isinstance(value, bool):
        return "true" if value else None
    return _text(name, value)


def _attributes(name: str, value: Any) -> tuple[str, ...]:
    """A list, or the same as a query has it: separated by commas."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _unfit(name, value, "a list of strings")
    return tuple(value)


def _values(name: str, value: Any) -> tuple[str, ...]:
    """Parameters of a filter: strings, or numbers as JSON writes them."""
    if not isinstance(value, list) or not all(isinstance(each, str | int | float | bool) for each in value):
        raise _unfit(name, value, "a list of strings and numbers")
    return tuple(each if isinstance(each, str) else orjson.dumps(each).decode() for each in value)


def _length(name: str, value: Any) -> str:
    """A length of time: `500ms`, or seconds."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _unfit(name, value, "a length of time such as 30s")
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_CREDIT:
        raise _unfit(name, value, f"a whole number from 0 to {MOST_CREDIT}")
    return value


def _unfit(name: str, value: Any, expected: str) -> Problem:
    return bad_message(f"{name}: expected {expected}, not {_shown(value)}", member=name)


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


_FILTER: dict[str, Reader] = {"filter": _text, "params": _values}
_PLACE: dict[str, Reader] = {"cursor": _text, "from": _text}
OPS: dict[str, tuple[Callable[..., Message], dict[str, Reader], dict[str, Reader]]] = {
    "subscribe": (
        Subscribe,
        {"id": _id},
        {
            "service": _text,
            "subscription": _text,
            **_FILTER,
            **_PLACE,
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
"""How each is made: what it must have, and what it may have."""
