"""The envelope of CloudEvents 1.0: what of it an event needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from tidegate.errors import Violation
from tidegate.model import timestamps
from tidegate.model.events import show

_PREFIX = "ce-"


class Envelope(NamedTuple):
    """What came around an event."""

    id: str | None = None
    time: str | None = None


def of_headers(headers: Mapping[str, str]) -> dict[str, Any]:
    """The attributes that `ce-` headers hold; none: the event has no envelope there."""
    return {
        name.lower().removeprefix(_PREFIX): unquote(value)
        for name, value in headers.items()
        if name.lower().startswith(_PREFIX)
    }


def envelope(attributes: Mapping[str, Any]) -> Envelope:
    """Id and time, as they go in front of a record; of an envelope that has no violations."""
    time = attributes.get("time")
    micros = timestamps.from_text(time) if isinstance(time, str) else None
    id_ = attributes.get("id")
    return Envelope(id_ if isinstance(id_, str) else None, None if micros is None else timestamps.to_text(micros))


def problems(value: Any) -> Iterator[Violation]:
    """Find what is wrong with an object that is to be an envelope, data included."""
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
    """Find what is wrong with an envelope's own attributes; names are shown behind a prefix."""
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
