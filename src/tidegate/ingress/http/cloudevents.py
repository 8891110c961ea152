"""Reads id and time from the envelope of CloudEvents 1.0, and checks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from tidegate.errors import Violation
from tidegate.model import timestamps
from tidegate.model.events import show

_PREFIX = "ce-"


class Envelope(NamedTuple):
    """Id and time of the envelope of an event."""

    id: str | None = None
    time: str | None = None


def attributes_of_headers(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the CloudEvents attributes of `ce-` headers; empty if there are none."""
    return {
        name.lower().removeprefix(_PREFIX): unquote(value)
        for name, value in headers.items()
        if name.lower().startswith(_PREFIX)
    }


def envelope(attributes: Mapping[str, Any]) -> Envelope:
    """Return id and time of an envelope without violations, in the form of a record."""
    time = attributes.get("time")
    micros = timestamps.from_text(time) if isinstance(time, str) else None
    id_ = attributes.get("id")
    return Envelope(id_ if isinstance(id_, str) else None, None if micros is None else timestamps.to_text(micros))


def structured_violations(value: Any) -> Iterator[Violation]:
    """Yield the violations of an envelope in JSON, including its data."""
    if not isinstance(value, dict):
        yield Violation("event", f"expected a CloudEvents object, not {show(value)}")
        return
    yield from violations(value)
    kind = value.get("datacontenttype")
    if kind is not None and not _is_json(kind):
        yield Violation("datacontenttype", f"expected application/json, not {show(kind)}")
    if "data" not in value:
        instead = ", not data_base64" if "data_base64" in value else ", but it is missing"
        yield Violation("data", f"expected an object of attributes{instead}")
    elif not isinstance(value["data"], dict):
        yield Violation("data", f"expected an object of attributes, not {show(value['data'])}")


def violations(attributes: Mapping[str, Any], prefix: str = "") -> Iterator[Violation]:
    """Yield the violations of the attributes of an envelope. `prefix` is put before their names in messages."""
    for name in ("specversion", "id", "source", "type"):
        value = attributes.get(name)
        if value is None:
            yield Violation(f"{prefix}{name}", "expected a string that is not empty, but it is missing")
        elif not isinstance(value, str) or not value:
            yield Violation(f"{prefix}{name}", f"expected a string that is not empty, not {show(value)}")
        elif name == "specversion" and not value.startswith("1."):
            yield Violation(f"{prefix}{name}", f"expected '1.0', not {show(value)}")
    time = attributes.get("time")
    if time is not None and (not isinstance(time, str) or timestamps.from_text(time) is None):
        yield Violation(f"{prefix}time", f"expected an RFC 3339 timestamp, not {show(time)}")


def _is_json(kind: Any) -> bool:
    name = kind.partition(";")[0].strip().lower() if isinstance(kind, str) else ""
    return name.endswith(("/json", "+json"))
