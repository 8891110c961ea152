"""Operators from their form in a document."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from tidegate.errors import did_you_mean
from tidegate.model import Schema
from tidegate.services.findings import Spot
from tidegate.services.operators import (
    Aggregate,
    Aggregation,
    Computed,
    CountWindow,
    Custom,
    Deduplicate,
    Emit,
    Enrich,
    Filter,
    Incremental,
    Join,
    Merge,
    Operator,
    Project,
    Sort,
    SortKey,
    Table,
    TimeWindow,
    Window,
)
from tidegate.services.schemas import read_schema

AGGREGATES = ("count", "sum", "avg", "min", "max")
_EVENTS = re.compile(r"([0-9]{1,15})\s*events?", re.ASCII)
_FORMATS = ("csv", "parquet")
IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""`module:function`, or `module:object.function`."""
FUNCTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
"""What a registered function may be called."""


def read_pipeline(spot: Spot) -> tuple[Operator, ...]:
    """Read a list of operators."""
    return tuple(read_operator(each) for each in spot.items("a list of operators, such as [merge]"))


def read_operator(spot: Spot) -> Operator:
    """Read one operator: a bare word, or a map of its name to its settings."""
    value = spot.value
    if isinstance(value, str):
        name, inner = value, spot.at(value, None)
        if name in READERS and name not in _BARE:
            spot.refuse(f"the settings of {name}, such as {_EXAMPLES[name]}")
            return Merge()
    elif isinstance(value, Mapping) and len(value) == 1:
        (name, inner) = next(iter(spot.pairs("").items()), ("", spot))
    else:
        spot.refuse(f"one operator, such as {_EXAMPLES['filter']} or merge")
        return Merge()
    if name not in READERS:
        spot.blame(f"unknown operator {name!r}{did_you_mean(name, READERS) or f'; expected one of {_NAMES}'}")
        return Merge()
    return READERS[name](inner)


def _filter(spot: Spot) -> Operator:
    if not isinstance(spot.value, Mapping):
        return Filter(spot.text("the text of a filter, such as 'speed > 60'"))
    found = spot.entries(("where", "params"), "a filter")
    params = found["params"].items("a list of values") if "params" in found else []
    return Filter(_need(found, "where", spot).text("the text of a filter"), tuple(map(_param, params)))


def _param(spot: Spot) -> str:
    if not isinstance(spot.value, str | int | float):
        spot.refuse("text, a number or a truth value")
    return str(spot.value).lower() if isinstance(spot.value, bool) else str(spot.value)


def _project(spot: Spot) -> Operator:
    value, keep, attributes = spot.value, False, spot
    if isinstance(value, Mapping) and isinstance(value.get("select"), Mapping) and set(value) <= {"select", "keep"}:
        found = spot.entries(("select", "keep"), "attributes")
        attributes, keep = found["select"], "keep" in found and found["keep"].truth()
    pairs = attributes.pairs("attributes with their expressions, such as {kmh: 'speed * 3.6'}")
    return Project(MappingProxyType({name: _computed(name, each) for name, each in pairs.items()}), keep)


def _computed(name: str, spot: Spot) -> Computed:
    if not isinstance(spot.value, Mapping):
        return Computed(_expression(spot))
    found = spot.entries(("value", "default", "type"), "an expression")
    own = name if re.fullmatch(r"[^\W\d]\w*", name) else '"' + name.replace('"', '""') + '"'
    default = found["default"].value if "default" in found else None
    if isinstance(default, list | Mapping):
        found["default"].refuse("a single value")
    return Computed(
        _expression(found["value"]) if "value" in found else own,
        default,
        found["type"].text("the name of a type, such as int32") if "type" in found else None,
    )


def _expression(spot: Spot) -> str:
    """Read an expression; a number or truth value stands for itself."""
    match spot.value:
        case bool():
            return str(spot.value).lower()
        case int() | float():
            return repr(spot.value)
    return spot.text("an expression, such as speed or 'speed * 3.6'")


def _sort(spot: Spot) -> Operator:
    found = spot.entries(("by", "window"), "what to sort by, and in which window")
    keys = _need(found, "by", spot).texts("attributes, such as [time, -speed]")
    return Sort(tuple(map(_sort_key, keys)), read_window(_need(found, "window", spot)))


def _sort_key(text: str) -> SortKey:
    return SortKey(text[1:], text[0] == "-") if text[:1] in ("-", "+") else SortKey(text)


def read_window(spot: Spot) -> Window:
    """Read a window by time or by count."""
    found = spot.entries(("length", "slide", "lateness"), "a window, such as {length: 60s, slide: 10s}")
    length = _need(found, "length", spot)
    slide = found.get("slide", length)
    if _events(length) is not None:
        return _count_window(length, slide, found)
    if not isinstance(length.value, str) or not re.search(r"(ms|s|m|h|d)\s*$", length.value):
        length.refuse("a length of time or a number of events, such as 60s or 1000 events")
        return CountWindow(1, 1)
    whole, step = length.seconds(), slide.seconds()
    if step > whole:
        slide.refuse(f"at most the window's length, {length.value}")
    return TimeWindow(whole, step, found["lateness"].seconds(zero=True) if "lateness" in found else 0.0)


def _count_window(length: Spot, slide: Spot, found: dict[str, Spot]) -> Window:
    whole, step = _events(length) or 0, _events(slide)
    if whole < 1:
        length.refuse("at least 1 event")
    if step is None or not 1 <= step <= max(whole, 1):
        slide.refuse(f"1 to {whole} events, as its length is {length.value}")
    if "lateness" in found:
        found["lateness"].blame("a window by count has no lateness: expected none")
    return CountWindow(whole, step or 1)


def _events(spot: Spot) -> int | None:
    found = _EVENTS.fullmatch(spot.value.strip()) if isinstance(spot.value, str) else None
    return int(found[1]) if found else None


def _aggregate(spot: Spot) -> Operator:
    found = spot.entries((*AGGREGATES, "of", "by", "window", "emit"), "what to aggregate, by what, in which window")
    return Aggregate(
        read_aggregations(found, spot),
        read_window(_need(found, "window", spot)),
        _names(found.get("by")),
        _emit(found, "final"),
    )


def _incremental(spot: Spot) -> Operator:
    found = spot.entries((*AGGREGATES, "of", "by", "window", "emit"), "what to aggregate, by what")
    window = read_window(found["window"]) if "window" in found else None
    if isinstance(window, CountWindow):
        found["window"].refuse("a window by time, such as {length: 60s}")
        window = None
    default: Emit = "updates" if window is None else "final"
    return Incremental(read_aggregations(found, spot), window, _names(found.get("by")), _emit(found, default))


def _emit(found: Mapping[str, Spot], default: Emit) -> Emit:
    return cast("Emit", found["emit"].choice(("final", "updates"))) if "emit" in found else default


def read_aggregations(found: Mapping[str, Spot], spot: Spot) -> tuple[Aggregation, ...]:
    """Read aggregates by function, or one by one under `of`."""
    made: list[Aggregation] = []
    for name, each in found.items():
        if name in AGGREGATES:
            made += _several(name, each) if isinstance(each.value, list | tuple) else _one(name, each)
        elif name == "of":
            for item in each.items("a list of aggregates, such as [{count: n}, {sum: {a: total}}]"):
                for function, inner in item.entries(AGGREGATES, "one aggregate, such as {count: n}").items():
                    made += _one(function, inner)
    if not made:
        spot.refuse("at least one of count, sum, avg, min and max")
    return tuple(made)


def _one(function: str, spot: Spot) -> list[Aggregation]:
    if isinstance(spot.value, Mapping):
        pairs = spot.pairs("")
        return [_aggregation(function, name, each.text("a name for it")) for name, each in pairs.items()]
    text = spot.text("a name for the count" if function == "count" else "an attribute, or {attribute: name}")
    if function == "count":
        return [_aggregation(function, None, text)]
    return [_aggregation(function, text, None if function in ("min", "max") else f"{function}_{text}")]


def _several(function: str, spot: Spot) -> list[Aggregation]:
    """Read a list: what has no name there is called after function and attribute."""
    made: list[Aggregation] = []
    for each in spot.items("a list"):
        if isinstance(each.value, str) and each.value and function != "count":
            made.append(_aggregation(function, each.value, f"{function}_{each.value}"))
        else:
            made += _one(function, each)
    return made


def _aggregation(function: Any, attribute: str | None, name: str | None) -> Aggregation:
    return Aggregation(function, attribute, name)


def _merge(spot: Spot) -> Operator:
    if spot.value not in (None, {}):
        spot.refuse("nothing: merge has no settings")
    return Merge()


def _join(spot: Spot) -> Operator:
    found = spot.entries(("on", "within", "lateness"), "a join, such as {on: cid, within: 30s}")
    lateness = found["lateness"].seconds(zero=True) if "lateness" in found else 0.0
    return Join(_names(found.get("on")), _need(found, "within", spot).seconds(zero=True), lateness)


def _deduplicate(spot: Spot) -> Operator:
    if spot.value is None:
        return Deduplicate()
    found = spot.entries(("by", "within"), "settings, such as {by: [vid], within: 10m}")
    by = _names(found.get("by"))
    return Deduplicate(by, found["within"].seconds()) if "within" in found else Deduplicate(by)


def _enrich(spot: Spot) -> Operator:
    found = spot.entries(
        ("table", "jdbc", "format", "on", "schema", "required"), "a table, such as {table: cameras.csv, on: cid}"
    )
    schema = read_schema({"schema": found["schema"]}, found["schema"]) if "schema" in found else None
    if "table" in found and isinstance(found["table"].value, Mapping):
        table = _connected_table(found, schema)
    elif "jdbc" in found:
        inner = found["jdbc"].entries(("url", "table"), "a table of a database, {url: ..., table: ...}")
        url, name = (_need(inner, key, found["jdbc"]).text(key) for key in ("url", "table"))
        table = Table(None, "jdbc", schema, url, name)
        if "table" in found:
            found["table"].blame("expected table or jdbc, not both")
    else:
        path = _need(found, "table", spot).text("the path of a file, such as cameras.csv")
        format_ = found["format"].choice(_FORMATS) if "format" in found else None
        if path and format_ is None and not path.endswith(tuple(f".{each}" for each in _FORMATS)):
            found["table"].refuse("a file that ends in .csv or .parquet, or a format")
        table = Table(path, cast("Any", format_), schema)
    return Enrich(table, _names(_need(found, "on", spot)), "required" in found and found["required"].truth())


def _connected_table(found: Mapping[str, Spot], schema: Schema | None) -> Table:
    """Read a table of a database that the profile has a connection to."""
    spot = found["table"]
    inner = spot.entries(("connection", "table"), "a table of a connection, {connection: ..., table: ...}")
    connection, name = (_need(inner, key, spot).text(key) for key in ("connection", "table"))
    for key in ("jdbc", "format"):
        if key in found:
            found[key].blame(f"expected {key} or a table of a connection, not both")
    return Table(None, "jdbc", schema, None, name, connection)


def _custom(spot: Spot) -> Operator:
    found = spot.entries(
        ("function", "schema", "event_time", "options", "by", "window"), "a function and the schema of what it gives"
    )
    function = _need(found, "function", spot)
    text = function.text("a function: a name that the profile registers, or module:function")
    if text and not IMPORT_PATH.fullmatch(text) and not FUNCTION_NAME.fullmatch(text):
        function.refuse("a function: a name that the profile registers, or module:function")
    schema = read_schema(
        {key: each for key, each in found.items() if key in ("schema", "event_time")}, _need(found, "schema", spot)
    )
    options = found["options"].pairs("options by name") if "options" in found else {}
    return Custom(
        text,
        schema,
        MappingProxyType({name: each.value for name, each in options.items()}),
        _names(found.get("by")),
        read_window(found["window"]) if "window" in found else None,
    )


def _names(spot: Spot | None) -> tuple[str, ...]:
    return () if spot is None else spot.texts("an attribute, or a list of attributes")


def _need(found: Mapping[str, Spot], key: str, spot: Spot) -> Spot:
    """Give what a key holds; what misses is told once, by whoever reads it."""
    return found[key] if key in found else spot.at(key, None)


READERS: dict[str, Callable[[Spot], Operator]] = {
    "filter": _filter,
    "project": _project,
    "sort": _sort,
    "aggregate": _aggregate,
    "incremental": _incremental,
    "merge": _merge,
    "join": _join,
    "deduplicate": _deduplicate,
    "enrich": _enrich,
    "custom": _custom,
}
_NAMES = ", ".join(READERS)
_BARE = ("merge", "deduplicate")
_EXAMPLES = {
    "filter": "filter: 'speed > 60'",
    "project": "project: {cid: cid, kmh: 'speed * 3.6'}",
    "sort": "sort: {by: [time], window: {length: 10s}}",
    "aggregate": "aggregate: {count: flow, by: [cid], window: {length: 60s}}",
    "incremental": "incremental: {count: total, by: [cid]}",
    "join": "join: {on: cid, within: 30s}",
    "enrich": "enrich: {table: cameras.csv, on: cid}",
    "custom": "custom: {function: 'module:function', schema: {...}}",
}
