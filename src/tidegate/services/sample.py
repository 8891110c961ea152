"""Infers the schema, event time and key of a stream from sample events. For `tidegate init`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidegate.errors import SchemaError
from tidegate.model import timestamps
from tidegate.model.types import parse_type

MAX_ATTRIBUTES = 1_000
"""Samples with more attributes are refused: their keys are probably values."""
MAX_DISTINCT = 1_000
"""Distinct values that are counted for each attribute."""
MAX_DEPTH = 8
"""Objects that are nested deeper are text for the schema: they need a definition by hand."""

_TIME_NAMES = ("event_time", "time", "timestamp", "ts", "datetime", "date_time", "created_at", "date")
_KEY_NAMES = re.compile(r"(?i)(.*[_-])?(vid|id|key|device|sensor|vehicle|station|unit|uuid)|.*(Id|ID|_id)")
_TIME_WORD = re.compile(
    r"(?i)(.*[_-])?(t|time|timestamp|ts|datetime|date|epoch|at|seen|updated|created)|.*(Time|At|TS)"
)
_PATTERNS = (
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%a %b %d %H:%M:%S %Y",
    "%d %b %Y %H:%M:%S",
)
_EPOCHS = {"epoch_s": 1, "epoch_ms": 10**3, "epoch_us": 10**6, "epoch_ns": 10**9}
_EPOCH_RANGE_S = (946_684_800, 4_102_444_800)
"""2000 to 2100: numbers outside are no times."""
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?", re.DOTALL)
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(slots=True)
class _Attribute:
    """What the values of one attribute have in common."""

    present: int = 0
    kinds: set[str] = field(default_factory=set)
    """bool, int, float, text, object, array."""
    low: float | None = None
    high: float | None = None
    patterns: list[str] | None = None
    """Patterns of times that all texts so far fit; None: no text was seen."""
    is_iso: bool = True
    distinct: set[Any] = field(default_factory=set)
    example: str = ""
    fields: dict[str, _Attribute] = field(default_factory=dict)
    item: _Attribute | None = None


@dataclass(frozen=True, slots=True)
class InferredAttribute:
    """One attribute of the sample."""

    name: str
    type: Any
    """In the notation of schemas: a text, or a dict for a struct."""
    note: str
    """What the sample says about its values."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """The stream that fits a sample."""

    events: int
    attributes: tuple[InferredAttribute, ...]
    times: Mapping[str, str]
    """The formats of timestamps that are not RFC 3339, by dotted name."""
    event_time: str | None
    key: str | None
    reserved: tuple[str, ...]
    """Names that start with _, which a schema can't have."""
    number: str | None
    """An attribute with numbers, for an example of an aggregate."""


def infer(events: Iterable[Mapping[str, Any]], *, is_text: bool = False) -> Inferred:
    """Infer a stream from events. `is_text`: all values are texts, as in CSV. Raises SchemaError."""
    root, count = _Attribute(), 0
    budget = [MAX_ATTRIBUTES]
    for event in events:
        count += 1
        _add_fields(root, event, is_text, budget, 0)
    if not root.fields:
        raise SchemaError("the sample has no event with attributes")
    reserved = tuple(name for name in root.fields if name.startswith("_"))
    usable = {name: value for name, value in root.fields.items() if name not in reserved}
    times: dict[str, str] = {}
    attributes = [
        InferredAttribute(name, _with_optional(_type(value, name, (name,), times), value.present < count), note)
        for name, value in usable.items()
        for note in [_note(value, count)]
    ]
    timestamps_ = [found.name for found in attributes if found.type == "timestamp"]
    event_time = next((name for name in _TIME_NAMES if name in timestamps_), next(iter(timestamps_), None))
    number = next(
        (
            found.name
            for found in attributes
            if found.type in ("float64", "float64?", "int64", "int64?") and not _KEY_NAMES.fullmatch(found.name)
        ),
        None,
    )
    return Inferred(count, tuple(attributes), times, event_time, _key(attributes, usable, count), reserved, number)


def _add_fields(struct: _Attribute, event: Mapping[str, Any], is_text: bool, budget: list[int], depth: int) -> None:
    for name, value in event.items():
        if name not in struct.fields:
            budget[0] -= 1
            if budget[0] < 0:
                raise SchemaError(
                    f"the sample has more than {MAX_ATTRIBUTES} attributes; are some of their names values?"
                )
            struct.fields[name] = _Attribute()
        _add(struct.fields[name], value, is_text, budget, depth)


def _add(attribute: _Attribute, value: Any, is_text: bool, budget: list[int], depth: int) -> None:
    if value is None or value == "":  # an empty cell is a missing attribute
        return
    attribute.present += 1
    if is_text and isinstance(value, str):
        value = _from_cell(value)
    match value:
        case bool():
            attribute.kinds.add("bool")
        case int() | float():
            attribute.kinds.add("int" if isinstance(value, int) else "float")
            attribute.low = value if attribute.low is None else min(attribute.low, value)
            attribute.high = value if attribute.high is None else max(attribute.high, value)
        case str():
            attribute.kinds.add("text")
            _add_text(attribute, value)
        case Mapping() if depth < MAX_DEPTH:
            attribute.kinds.add("object")
            _add_fields(attribute, value, is_text, budget, depth + 1)
        case list() if depth < MAX_DEPTH:
            attribute.kinds.add("array")
            attribute.item = attribute.item or _Attribute()
            for item in value[:100]:
                _add(attribute.item, item, is_text, budget, depth + 1)
        case _:
            attribute.kinds.add("text")
            attribute.is_iso, attribute.patterns = False, []
    if isinstance(value, str | int) and len(attribute.distinct) < MAX_DISTINCT:
        attribute.distinct.add(value if isinstance(value, int) else value[:80])
    if not attribute.example and isinstance(value, str):
        attribute.example = value[:40]


def _from_cell(cell: str) -> Any:
    text = cell.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and not re.match(r"[+-]?0[0-9]", text) and len(text) < 40 and not text.isdecimal():
        return float(text)
    return cell


def _add_text(attribute: _Attribute, text: str) -> None:
    attribute.is_iso = attribute.is_iso and bool(_ISO.fullmatch(text)) and timestamps.from_text(text) is not None
    if attribute.patterns is None:
        attribute.patterns = list(_PATTERNS)
    attribute.patterns = [pattern for pattern in attribute.patterns if len(text) < 40 and _fits(text, pattern)]


def _fits(text: str, pattern: str) -> bool:
    try:
        datetime.strptime(text, pattern)  # noqa: DTZ007 - only its form counts
    except ValueError:
        return False
    return True


def _with_optional(kind: Any, is_optional: bool) -> Any:
    return f"{parse_type(kind)}?" if is_optional else kind


def _type(attribute: _Attribute, name: str, path: tuple[str, ...], times: dict[str, str] | None) -> Any:
    """Return the type in the notation of schemas, and note the format of a time that is not RFC 3339.

    `times` is None inside arrays, where sources convert no times.
    """
    kinds = attribute.kinds
    if kinds == {"bool"}:
        return "bool"
    if kinds and kinds <= {"int", "float"}:
        epoch = _epoch(attribute, name)
        if epoch is not None and times is not None:
            times[".".join(path)] = epoch
            return "timestamp"
        return _number_type(attribute)
    if kinds == {"text"}:
        if attribute.is_iso:
            return "timestamp"
        if attribute.patterns and times is not None:
            times[".".join(path)] = attribute.patterns[0]
            return "timestamp"
    if kinds == {"object"} and attribute.fields:
        return {
            inner: _with_optional(_type(value, inner, (*path, inner), times), value.present < attribute.present)
            for inner, value in attribute.fields.items()
        }
    if kinds == {"array"} and attribute.item is not None:
        return f"{parse_type(_type(attribute.item, name, (), None))}[]"
    return "string"


def _number_type(attribute: _Attribute) -> str:
    assert attribute.low is not None
    assert attribute.high is not None
    if "float" in attribute.kinds or attribute.low < -(2**63) or attribute.high >= 2**64:
        return "float64"
    if attribute.high < 2**63:
        return "int64"
    return "uint64" if attribute.low >= 0 else "float64"


def _epoch(attribute: _Attribute, name: str) -> str | None:
    if not _TIME_WORD.fullmatch(name) or attribute.low is None or attribute.high is None:
        return None
    low, high = _EPOCH_RANGE_S
    for unit, factor in _EPOCHS.items():
        if low * factor <= attribute.low and attribute.high < high * factor:
            return unit
    return None


def _note(attribute: _Attribute, count: int) -> str:
    notes = []
    if attribute.kinds and attribute.kinds <= {"int", "float"}:
        notes.append(f"{_shown(attribute.low)} to {_shown(attribute.high)}")
    elif attribute.kinds == {"text"}:
        many = "more than " if len(attribute.distinct) >= MAX_DISTINCT else ""
        values = f"{many}{len(attribute.distinct):,} value{'s' * (len(attribute.distinct) != 1)}"
        notes.append(f"{values}, such as {attribute.example!r}")
    elif len(attribute.kinds) > 1:
        notes.append(f"{', '.join(sorted(attribute.kinds))}: values of different kinds")
    if attribute.present < count:
        missing = 100 * (count - attribute.present) / count
        notes.append("missing in all events" if missing == 100 else f"missing in {missing:.2g} % of the events")
    return "; ".join(notes)


def _shown(number: float | None) -> str:
    return f"{number:.6g}" if isinstance(number, float) else str(number)


def _key(attributes: Iterable[InferredAttribute], values: Mapping[str, _Attribute], count: int) -> str | None:
    """Return the attribute that names the thing an event is about: always there, and with values that repeat."""
    candidates = [
        found.name
        for found in attributes
        if found.type in ("string", "int64") and 1 < len(values[found.name].distinct) <= max(1, count // 2)
    ]
    named = [name for name in candidates if _KEY_NAMES.fullmatch(name)]
    # Only texts without the name of a key: a number of 60 different speeds is not one.
    others = [name for name in candidates if values[name].kinds == {"text"}]
    return next(iter(named or others), None)
