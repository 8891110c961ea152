"""How a value in an event is read: as the number, text, truth value or moment that compares.

An event may hold Python's values, numpy's, decimals, or what nobody expected;
what does not compare is None, and so unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from ctypes import c_float
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from tidegate.filters.nodes import Path
from tidegate.model import timestamps
from tidegate.model.types import Enum, Type

Event = Mapping[str, Any]
Read = Callable[[Event], Any]


class Moment(int):
    """A moment in an event without a schema: compares with moments only."""


KINDS = frozenset({bool, int, float, str, Moment})


LARGEST_EXACT = 2**53
"""Up to here, on both sides of zero, every whole number is a float."""


def raw_reader(path: Path) -> Read:
    """Give the value at a path as it is in the event; None where there is none."""
    if len(path.parts) == 1:
        name = str(path.parts[0])
        return lambda event: event.get(name)
    parts = path.parts
    if len(parts) == 2 and isinstance(parts[1], str):
        outer, inner = str(parts[0]), parts[1]

        def read_inner(event: Event) -> Any:
            value = event.get(outer)
            return value.get(inner) if value.__class__ is dict or isinstance(value, Mapping) else None

        return read_inner

    def read(event: Event) -> Any:
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


def reader(path: Path) -> Read:
    """Give the value at a path as it compares: a number, text, truth value or moment."""
    raw = raw_reader(path)
    convert = converter(path.type)
    return lambda event: None if (value := raw(event)) is None else convert(value)


def converter(kind: Type | None) -> Callable[[Any], Any]:
    """How a value of a type becomes one that compares; None where it is no such value."""
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
    """Whether values of a type compare as they are."""
    return kind is None or (kind.kind in ("bool", "int", "float", "string", "char") and str(kind) != "float32")


_AS_THEY_ARE = frozenset({bool, int, float, str})


def plain(value: Any) -> Any:
    """A value as one of the kinds that compare, or None."""
    if value.__class__ in _AS_THEY_ARE:
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
    """A whole decimal as an int, another as the nearest float; a huge one is as good as infinite."""
    if not value.is_finite():
        return None if value.is_nan() else math.inf if value > 0 else -math.inf
    if value.adjusted() > 400:
        return math.inf if value > 0 else -math.inf
    return int(value) if value == value.to_integral_value() else float(value)


def _from_numpy(value: Any) -> Any:
    """A numpy scalar as Python's own."""
    if value.dtype.kind == "M":
        value = value.astype("datetime64[us]")
    found = value.item()
    if found.__class__ in _AS_THEY_ARE or isinstance(found, datetime):
        return plain(found)
    return float(found) if value.dtype.kind == "f" else None


def is_missing(value: Any) -> bool:
    """Whether a value is null: none at all, or a number that is none."""
    if value is None:
        return True
    if value.__class__ is Decimal:
        return bool(value.is_nan())
    if value.__class__ is float or getattr(value, "ndim", None) == 0:
        return bool(value != value)
    return False


def _base(value: Any) -> Any:
    """A value of a subclass (an IntEnum, numpy's float64) as its base class."""
    for base in (int, float, str):
        if isinstance(value, base):
            return base(value)
    return None


def _no_time(value: Any) -> Any:
    found = plain(value)
    return None if found.__class__ is Moment else found


def _other_text(value: Any) -> Any:
    found = plain(value)
    return found if found.__class__ is str else None


def _enum_number(value: Any) -> int | None:
    found = plain(value)
    return found if found.__class__ is int else None


def nearest_float(value: int | float) -> float:
    """The float nearest to a number; infinite where it is beyond all of them."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def nearest_float32(value: int | float) -> float:
    """The float32 nearest to a number."""
    return c_float(nearest_float(value)).value


def _float32(value: Any) -> float | None:
    found = plain(value)
    return nearest_float32(found) if found.__class__ in (int, float) and found == found else None


def _moment(value: Any) -> int | None:
    if isinstance(value, str):
        return timestamps.from_text(value)
    found = plain(value)
    return int(found) if found.__class__ is Moment else None


def number_reader(path: Path) -> Callable[[Event], float | None]:
    """Give the number at a path as a float; None where there is none."""
    read = reader(path)

    def number(event: Event) -> float | None:
        value = read(event)
        if value.__class__ is float:
            return value if value == value else None
        return nearest_float(value) if value.__class__ is int else None

    return number


def text_reader(path: Path) -> Callable[[Event], str | None]:
    """Give the text at a path; None where there is none."""
    read = reader(path)
    return lambda event: value if (value := read(event)).__class__ is str else None
