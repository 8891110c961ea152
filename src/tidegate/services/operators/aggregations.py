"""The aggregates of `aggregate` and `incremental`: `{count: n, avg: {speed: mean}, percentile: {speed: 0.95}}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from tidegate.model import Field, Schema
from tidegate.model.types import Array, Scalar, Struct, Type
from tidegate.services.findings import Findings, Spot
from tidegate.services.operators.inference import attribute
from tidegate.services.operators.settings import Settings

AggregateFunction = Literal[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "first",
    "last",
    "distinct",
    "approx_distinct",
    "stddev",
    "percentile",
    "collect",
]
AGGREGATES: tuple[str, ...] = get_args(AggregateFunction)
_EXPECTED = f"at least one of {', '.join(AGGREGATES)}"
_SHARE = "a share above 0 and below 1, such as 0.95"


@dataclass(frozen=True)
class Aggregation:
    """One aggregate of an attribute, and the name of its result."""

    function: AggregateFunction
    attribute: str | None
    """None: count events (`count` only)."""
    name: str | None
    """None (`min` and `max` only): the whole event that holds the extreme."""
    share: float | None = None
    """`percentile` only: the share of values at or below the result, above 0 and below 1."""

    @property
    def stored_name(self) -> str:
        """The name under which a state keeps the aggregate: the name of the result may change.

        >>> Aggregation("sum", "speed", "total").stored_name
        'sum(speed)'
        """
        whole = " event" if self.name is None else ""
        return f"{self.function}({self.attribute or '*'}){whole}"


def default_name(function: str, attribute: str, share: float | None = None) -> str:
    """Return the name of an aggregate that a service file does not name.

    >>> default_name("sum", "speed"), default_name("percentile", "speed", 0.95), default_name("percentile", "x", 0.999)
    ('sum_speed', 'p95_speed', 'p99_9_x')
    """
    if share is None:
        return f"{function}_{attribute}"
    percent = "".join(letter if letter.isalnum() else "_" for letter in f"{share * 100:.10g}")
    return f"p{percent}_{attribute}"


# Reading ---------------------------------------------------------------------


def read_aggregations(settings: Mapping[str, Spot], spot: Spot) -> tuple[Aggregation, ...]:
    """Read aggregates by function, or one by one under `of`."""
    aggregations: list[Aggregation] = []
    for key, value in settings.items():
        if key in AGGREGATES:
            aggregations += _read_list(key, value) if isinstance(value.value, list | tuple) else _read_one(key, value)
        elif key == "of":
            for item in value.items("a list of aggregates, such as [{count: n}, {sum: {a: total}}]"):
                for function, inner in item.entries(AGGREGATES, "one aggregate, such as {count: n}").items():
                    aggregations += _read_one(function, inner)
    if not aggregations:
        spot.refuse(_EXPECTED)
    return tuple(aggregations)


def _read_one(function: str, spot: Spot) -> list[Aggregation]:
    if function == "percentile":
        return _read_percentiles(spot)
    if isinstance(spot.value, Mapping):
        return [
            _aggregation(function, name, name_spot.text("a name for it")) for name, name_spot in spot.pairs("").items()
        ]
    text = spot.text("a name for the count" if function == "count" else "an attribute, or {attribute: name}")
    if function == "count":
        return [_aggregation(function, None, text)]
    return [_aggregation(function, text, None if function in ("min", "max") else default_name(function, text))]


def _read_list(function: str, spot: Spot) -> list[Aggregation]:
    """Read a list of aggregates. An attribute alone gets the default name, also for `min` and `max`."""
    aggregations: list[Aggregation] = []
    for item in spot.items("a list"):
        if isinstance(item.value, str) and item.value and function not in ("count", "percentile"):
            aggregations.append(_aggregation(function, item.value, default_name(function, item.value)))
        else:
            aggregations += _read_one(function, item)
    return aggregations


def _read_percentiles(spot: Spot) -> list[Aggregation]:
    """Read `{attribute: share}`, or `{attribute: {name: share, ...}}`."""
    aggregations: list[Aggregation] = []
    for name, share_spot in spot.pairs(
        "attributes with a share, such as {speed: 0.95} or {speed: {median: 0.5}}"
    ).items():
        if isinstance(share_spot.value, Mapping):
            shares = share_spot.pairs("").items()
            aggregations += [Aggregation("percentile", name, key, _read_share(share)) for key, share in shares]
        else:
            share = _read_share(share_spot)
            aggregations.append(Aggregation("percentile", name, default_name("percentile", name, share), share))
    return aggregations


def _read_share(spot: Spot) -> float:
    share = spot.number(_SHARE, 0, 1, above=True)
    if share == 1 and spot.value == 1 and not isinstance(spot.value, bool):
        spot.refuse(_SHARE)
    return share


def _aggregation(function: str, attribute: str | None, name: str | None) -> Aggregation:
    return Aggregation(cast("AggregateFunction", function), attribute, name)


# Writing ---------------------------------------------------------------------


def write_aggregations(aggregations: tuple[Aggregation, ...]) -> Settings:
    """Return aggregates by function if that reads back in the same order, else one by one under `of`."""
    compact: Settings = {}
    for aggregation in aggregations:
        compact.setdefault(aggregation.function, []).append(_write_one(aggregation))
    compact = {function: values[0] if len(values) == 1 else values for function, values in compact.items()}
    if _read_back(compact) == aggregations:
        return compact
    return {"of": [{aggregation.function: _write_one(aggregation)} for aggregation in aggregations]}


def _write_one(aggregation: Aggregation) -> Any:
    function, name = aggregation.function, aggregation.name
    if aggregation.attribute is None:
        return name
    has_default_name = name == default_name(function, aggregation.attribute, aggregation.share)
    if aggregation.share is not None:
        return {aggregation.attribute: aggregation.share if has_default_name else {name: aggregation.share}}
    if name is None or (has_default_name and function not in ("count", "min", "max")):
        return aggregation.attribute
    return {aggregation.attribute: name}


def _read_back(document: Settings) -> tuple[Aggregation, ...]:
    spot = Spot(document, (), Findings())
    return read_aggregations(spot.pairs("aggregates"), spot)


# Schema inference ------------------------------------------------------------


def add_whole_event(
    aggregations: tuple[Aggregation, ...], schema: Schema, fields: dict[str, Field], spot: Spot
) -> bool:
    """Add all attributes of the input if an aggregate returns a whole event; return True if one does.

    Attributes are optional if the attribute of the extreme is: a window may have no event with a value.
    """
    wholes = [
        aggregation
        for aggregation in aggregations
        if aggregation.name is None and aggregation.function in ("min", "max")
    ]
    for extra in wholes[1:]:
        one, other = (f"{whole.function} of {whole.attribute}" for whole in (extra, wholes[0]))
        spot.at(extra.function, None).report(
            f"{one} and {other} can't both return a whole event: name one, "
            f"{{{extra.function}: {{{extra.attribute}: {extra.function}_{extra.attribute}}}}}"
        )
    if wholes:
        extreme = attribute(wholes[0].attribute or "", schema, spot.at(wholes[0].function, None))
        for field in schema.root:
            is_key = field.name in fields
            is_required = field.required and (is_key or (extreme is not None and extreme.required))
            fields[field.name] = Field(field.name, field.type, is_required)
    return bool(wholes)


def result_field(aggregation: Aggregation, schema: Schema, spot: Spot) -> Field | None:
    """Return the output attribute of an aggregate with a name; None without a name, or after reporting a problem."""
    kind = _result_type(aggregation, schema, spot)
    if kind is None or aggregation.name is None:
        return None
    is_required = aggregation.function in ("count", "distinct", "approx_distinct", "collect")
    return Field(aggregation.name, kind, is_required)


def _result_type(aggregation: Aggregation, schema: Schema, spot: Spot) -> Type | None:
    function, name = aggregation.function, aggregation.attribute
    if aggregation.name is None and function not in ("min", "max"):
        spot.report(f"{function} needs a name")
    if (aggregation.share is None) == (function == "percentile"):
        spot.report(f"percentile needs {_SHARE}" if function == "percentile" else f"{function} has no share")
    elif aggregation.share is not None and not 0 < aggregation.share < 1:
        spot.report(f"expected {_SHARE}, not {aggregation.share}")
    if name is None:
        if function == "count":
            return Scalar("int64")
        spot.report(f"{function} needs an attribute")
        return None
    field = attribute(name, schema, spot)
    return None if field is None else _type_of(function, field, spot)


def _type_of(function: AggregateFunction, field: Field, spot: Spot) -> Type | None:
    kind = field.type
    match function:
        case "count":
            return Scalar("int64")
        case "first" | "last":
            return kind
        case "collect":
            return Array(kind)
    if isinstance(kind, Array | Struct):
        spot.report(f"expected an attribute with a single value; {field.name} is {kind}")
        return None
    match function:
        case "min" | "max":
            return kind
        case "distinct" | "approx_distinct":
            return Scalar("int64")
        case "sum" | "avg" | "stddev" | "percentile":
            if kind.kind not in ("int", "float"):
                spot.report(f"{function} expected a number; {field.name} is {kind}")
                return None
            return Scalar("int64" if function == "sum" and kind.kind == "int" else "float64")
