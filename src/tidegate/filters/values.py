"""Reads values of events in comparable form: as a number, a text, a truth value or a moment.

An event may hold values of Python or numpy, decimals, or anything else. A value that does not compare is read as None,
which makes predicates unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from tidegate.filters.nodes import ComputedValue, Path
from tidegate.model import timestamps
from tidegate.model.numbers import nearest_float, nearest_float32
from tidegate.model.types import Enum, Type

EventDict = Mapping[str, Any]
ValueReader = Callable[[EventDict], Any]


class Moment(int):
    """A time in an event without a schema. Compares with times only."""


KINDS = frozenset({bool, int, float, str, Moment})


LARGEST_EXACT = 2**53
"""Largest integer up to which, on both sides of zero, a float64 holds every integer."""


def raw_reader(path: Path) -> ValueReader:
    """Return a function that reads the unconverted value at a path; it returns None if there is none."""
    if isinstance(path, ComputedValue):
        return _compute_reader(path)
    if len(path.parts) == 1:
        name = str(path.parts[0])
        return lambda event: event.get(name)
    parts = path.parts
    if len(parts) == 2 and isinstance(parts[1], str):
        outer, inner = str(parts[0]), parts[1]

        def read_inner(event: EventDict) -> Any:
            value = event.get(outer)
            return value.get(inner) if value.__class__ is dict or isinstance(value, Mapping) else None

        return read_inner

    def read(event: EventDict) -> Any:
        value: Any = event
        for part in parts:
            if isinstance(part, str):
                if value.__class__ is not dict and not isinstance(value, Mapping):
                    return None
                value = value.get(part)
            elif isinstance(value, list | tuple) and part < len(value):
                value = value[part]
            else:
                return None
        return value

    return read


def reader(path: Path) -> ValueReader:
    """Return a function that reads the value at a path in comparable form; it returns None if there is none."""
    if isinstance(path, ComputedValue):
        return _compute_reader(path)
    raw = raw_reader(path)
    convert = converter(path.type)
    return lambda event: None if (value := raw(event)) is None else convert(value)


def _compute_reader(path: ComputedValue) -> ValueReader:
    from tidegate.filters.computed import compute_reader  # it reads fields with this module

    return compute_reader(path)


def converter(kind: Type | None) -> Callable[[Any], Any]:
    """Return a function that converts a value of a type to comparable form; it returns None for a value of another
    type.
    """
    if isinstance(kind, Enum):
        positions: dict[Any, int] = {label: n for n, label in enumerate(kind.labels)}
        return lambda value: positions.get(value) if isinstance(value, str) else _enum_number(value)
    match kind.kind if kind is not None else None:
        case "time":
            return _moment
        case "float" if str(kind) == "float32":
            return _float32
        case "string" | "char":
            return lambda value: value if value.__class__ is str else _other_text(value)
    return plain if kind is None else _no_time


def is_plain(kind: Type | None) -> bool:
    """Return True if values of a type compare without conversion."""
    return kind is None or (kind.kind in ("bool", "int", "float", "string", "char") and str(kind) != "float32")


_PLAIN_CLASSES = frozenset({bool, int, float, str})


def plain(value: Any) -> Any:
    """Return a value as one of the comparable classes, or None."""
    if value.__class__ in _PLAIN_CLASSES:
        return value
    if isinstance(value, datetime):
        return Moment(timestamps.from_datetime(value))
    if isinstance(value, date):
        return Moment(timestamps.from_datetime(datetime(value.year, value.month, value.day)))  # noqa: DTZ001
    if isinstance(value, Decimal):
        return _from_decimal(value)
    if getattr(value, "ndim", None) == 0:
        return _from_numpy(value)
    return _base(value) if isinstance(value, int | float | str) else None


def _from_decimal(value: Decimal) -> int | float | None:
    """Return an integral decimal as an int, another as the nearest float, a huge one as infinity."""
    if not value.is_finite():
        return None if value.is_nan() else math.inf if value > 0 else -math.inf
    if value.adjusted() > 400:
        return math.inf if value > 0 else -math.inf
    return int(value) if value == value.to_integral_value() else float(value)


def _from_numpy(value: Any) -> Any:
    """Return a numpy scalar as a Python value."""
    if value.dtype.kind == "M":
        value = value.astype("datetime64[us]")
    scalar = value.item()
    if scalar.__class__ in _PLAIN_CLASSES or isinstance(scalar, datetime):
        return plain(scalar)
    return float(scalar) if value.dtype.kind == "f" else None


def is_missing(value: Any) -> bool:
    """Return True if a value is null: None or NaN."""
    if value is None:
        return True
    if value.__class__ is Decimal:
        return bool(value.is_nan())
    if value.__class__ is float or getattr(value, "ndim", None) == 0:
        return bool(value != value)
    return False


def _base(value: Any) -> Any:
    """Return a value of a subclass (an IntEnum, numpy's float64) as a value of its base class."""
    for base in (int, float, str):
        if isinstance(value, base):
            return base(value)
    return None


def _no_time(value: Any) -> Any:
    scalar = plain(value)
    return None if scalar.__class__ is Moment else scalar


def _other_text(value: Any) -> Any:
    scalar = plain(value)
    return scalar if scalar.__class__ is str else None


def _enum_number(value: Any) -> int | None:
    scalar = plain(value)
    return scalar if scalar.__class__ is int else None


def _float32(value: Any) -> float | None:
    scalar = plain(value)
    return nearest_float32(scalar) if scalar.__class__ in (int, float) and scalar == scalar else None


def _moment(value: Any) -> int | None:
    if isinstance(value, str):
        return timestamps.from_text(value)
    scalar = plain(value)
    return int(scalar) if scalar.__class__ is Moment else None


def number_reader(path: Path) -> Callable[[EventDict], float | None]:
    """Return a function that reads the number at a path as a float; it returns None if there is none."""
    read = reader(path)

    def number(event: EventDict) -> float | None:
        value = read(event)
        if value.__class__ is float:
            return value if value == value else None
        return nearest_float(value) if value.__class__ is int else None

    return number


def text_reader(path: Path) -> Callable[[EventDict], str | None]:
    """Return a function that reads the text at a path; it returns None if there is none."""
    read = reader(path)
    return lambda event: value if (value := read(event)).__class__ is str else None
