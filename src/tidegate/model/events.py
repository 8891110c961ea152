"""Events as dicts: validation, id and time.

An event's own attributes are its keys; keys that start with `_` are reserved. Values may be those of the wire
(timestamps as RFC 3339 text, enums by label) or Python's (datetime, an enum's position).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from tidegate.errors import EventError, Violation, did_you_mean
from tidegate.model import timestamps
from tidegate.model.schema import RESERVED, Schema
from tidegate.model.types import INTEGER_RANGES, Array, Enum, Scalar, Struct, Type

_MAX_SHOWN = 60


def validate(event: Any, schema: Schema) -> None:
    """Raise `EventError` with all violations of an event, if there are any.

    >>> validate({"speed": "fast"}, Schema({"speed": "float64", "vid": "string"}))
    Traceback (most recent call last):
    tidegate.errors.EventError: speed: expected a number (float64), not 'fast'
    vid: expected a string, but it is missing
    """
    problems = list(violations(event, schema))
    if problems:
        raise EventError(problems)


def violations(event: Any, schema: Schema, partial: bool = False) -> Iterator[Violation]:
    """Yield every value that does not fit the schema, and every unknown attribute.

    If `partial`, a required attribute may be missing.
    """
    if not isinstance(event, Mapping):
        yield Violation("event", f"expected an object of attributes, not {show(event)}")
        return
    yield from _struct_violations(event, schema.root, "", partial)


def _struct_violations(
    values: Mapping[Any, Any], struct: Struct, path: str, partial: bool = False
) -> Iterator[Violation]:
    for field in struct:
        value = values.get(field.name)
        where = _join(path, field.name)
        if value is not None:
            yield from value_violations(value, field.type, where, partial)
        elif field.required and not partial:
            missing = "null" if field.name in values else "missing"
            yield Violation(where, f"expected {_expected(field.type)}, but it is {missing}")
    known = {field.name for field in struct}
    for name in values:
        if name in known:
            continue
        if not path and name in RESERVED:
            if values[name] is not None:
                yield from value_violations(values[name], RESERVED[name], name)
            continue
        yield Violation(_join(path, str(name)), f"unknown attribute{did_you_mean(str(name), sorted(known))}")


def value_violations(value: Any, kind: Type, path: str, partial: bool = False) -> Iterator[Violation]:
    """Yield the violations of one value that is not null; if `partial`, parts of it may be missing."""
    match kind:
        case Struct():
            if isinstance(value, Mapping):
                yield from _struct_violations(value, kind, path, partial)
            else:
                yield Violation(path, f"expected {_expected(kind)}, not {show(value)}")
        case Array():
            if not isinstance(value, list | tuple):
                yield Violation(path, f"expected {_expected(kind)}, not {show(value)}")
                return
            if kind.bound is not None and len(value) > kind.bound:
                yield Violation(path, f"expected at most {kind.bound} elements, not {len(value)}")
            for n, item in enumerate(value):
                if item is not None:
                    yield from value_violations(item, kind.item, f"{path}[{n}]", partial)
        case _:
            if not _fits(value, kind):
                yield Violation(path, f"expected {_expected(kind)}, not {show(value)}")


def _fits(value: Any, kind: Scalar | Enum) -> bool:
    if isinstance(kind, Enum):
        return value in kind.labels if isinstance(value, str) else _is_int(value) and 0 <= value < len(kind.labels)
    match kind.kind:
        case "bool":
            return isinstance(value, bool)
        case "int":
            low, high = INTEGER_RANGES[kind.name]
            return _is_int(value) and low <= value <= high
        case "float":
            return isinstance(value, float | int) and _is_float(value, kind.name)
        case "char":
            return isinstance(value, str) and len(value) == 1 and is_text(value)
        case "time":
            if isinstance(value, datetime):
                return timestamps.is_writable(timestamps.from_datetime(value))
            return isinstance(value, str) and timestamps.from_text(value) is not None
    return isinstance(value, str) and is_text(value)


def is_text(value: str) -> bool:
    """Return True if a string is Unicode text, without lone surrogates."""
    try:
        return value.isascii() or value.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_float(value: float | int, name: str) -> bool:
    """Return True if a number (no truth value) stays finite in the float type, or is infinite or NaN itself."""
    if isinstance(value, bool):
        return False
    if isinstance(value, float) and not math.isfinite(value):
        return True
    return abs(value) <= (GREATEST_FLOAT32 if name == "float32" else sys.float_info.max)


GREATEST_FLOAT32 = 3.4028235677973362e38
"""Greatest number that does not round to infinity as a float32."""


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def to_python(value: Any, kind: Type) -> Any:
    """Return a valid value in the form that Arrow takes: datetimes, labels, floats."""
    if value is None:
        return None
    match kind:
        case Struct():
            return {field.name: to_python(value.get(field.name), field.type) for field in kind}
        case Array():
            return [to_python(item, kind.item) for item in value]
        case Enum():
            return value if isinstance(value, str) else kind.labels[value]
    if kind.kind == "time":
        return timestamps.to_datetime(_micros(value))
    return float(value) if kind.kind == "float" else value


def _micros(value: str | datetime) -> int:
    micros = timestamps.from_datetime(value) if isinstance(value, datetime) else timestamps.from_text(value)
    if micros is None:
        raise EventError([Violation("time", f"expected an RFC 3339 timestamp, not {show(value)}")])
    return micros


def event_time(event: Mapping[str, Any], schema: Schema | None = None) -> int | None:
    """Return an event's time in microseconds since 1970 UTC: `_time`, else the schema's event time; None if it has
    none.
    """
    value = event.get("_time")
    if value is None and schema is not None and schema.event_time is not None:
        value = event.get(schema.event_time)
    if isinstance(value, datetime):
        return timestamps.from_datetime(value)
    return timestamps.from_text(value) if isinstance(value, str) else None


_EXPECTED = {
    "bool": "true or false",
    "char": "a string of one character",
    "string": "a string",
    "time": "an RFC 3339 timestamp",
}


def _expected(kind: Type) -> str:
    match kind:
        case Struct():
            return "an object"
        case Array():
            return f"an array ({kind})"
        case Enum():
            return f"one of {', '.join(kind.labels)}"
    if kind.kind == "int":
        low, high = INTEGER_RANGES[kind.name]
        return f"a whole number from {low} to {high} ({kind.name})"
    return _EXPECTED.get(kind.kind, f"a number ({kind.name})")


def show(value: Any) -> str:
    """Return a value for a message, cut to a readable length."""
    try:
        shown = repr(value)
    except ValueError:  # Python does not write numbers of more than 4,300 digits
        return "a huge number"
    except RecursionError:
        return "a value that nests very deep"
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
