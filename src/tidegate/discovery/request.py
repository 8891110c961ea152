"""A consumer's request, read from a document; all problems are reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tidegate.discovery.attributes import FAMILIES, WantedAttribute, family_of, value_range
from tidegate.discovery.index import MAX_WANTED
from tidegate.errors import DefinitionError, DiscoveryError, FilterError, SchemaError, did_you_mean
from tidegate.filters import Filter, sets
from tidegate.filters.sets import Cuts
from tidegate.model import timestamps
from tidegate.model.types import parse_type
from tidegate.services.findings import Findings, Spot
from tidegate.services.quality import METRICS, read_figure

MOST_RESULTS = 1_000
PARTS = ("coverage", "degree", "qos")
"""The components of a score."""
_KEYS = (
    *("attributes", "names", "coverage", "filter", "params", "categories", "themes"),
    *("qos", "weights", "limit", "explain"),
)
_NONE: Mapping[str, float] = MappingProxyType({})
_EQUAL: Mapping[str, float] = MappingProxyType(dict.fromkeys(PARTS, 1.0))


MOST_VALUES = 1_000
"""Values of one attribute that have to be possible."""


@dataclass(frozen=True, slots=True)
class Request:
    """The attributes that a consumer needs, a filter over properties, and the quality that matters."""

    attributes: tuple[WantedAttribute, ...] = ()
    names: str = "exact"
    """How names are compared: `exact`, `edits`, `meaning`, or another name matcher of the directory."""
    coverage: float = 0.5
    """Minimum share of the attributes that a result must have: the paper's Val."""
    filter: Filter | None = None
    """A filter over the properties of services."""
    categories: tuple[str, ...] = ()
    """A result must be in one of these categories."""
    themes: tuple[str, ...] = ()
    """A result must have one of these themes."""
    limits: Mapping[str, float] = field(default_factory=lambda: _NONE)
    """The worst acceptable value, by metric."""
    qos_weights: Mapping[str, float] = field(default_factory=lambda: _NONE)
    """The weight of each metric in the quality."""
    weights: Mapping[str, float] = field(default_factory=lambda: _EQUAL)
    """The weights of coverage, degree and quality in the score; components not requested do not count."""
    limit: int = 20
    explain: bool = False

    @classmethod
    def from_dict(cls, document: Any) -> Request:
        """Read a request. Raises `DiscoveryError` with all its problems.

        >>> Request.from_dict({"attributes": ["speed", {"name": "vid", "type": "string"}]}).attributes[1].family
        'text'
        >>> Request.from_dict({"atributes": ["speed"], "limit": 0})
        Traceback (most recent call last):
        tidegate.errors.DiscoveryError: atributes: unknown key 'atributes'; did you mean 'attributes'?; \
limit: expected 1 to 1,000 results, not 0
        """
        findings = Findings()
        try:
            return cls._read(document, findings)
        except DefinitionError as error:  # reading stops after a number of problems
            raise DiscoveryError(error.problems) from None

    @classmethod
    def _read(cls, document: Any, findings: Findings) -> Request:
        entries = Spot(document, (), findings).entries(_KEYS, 'a request, such as {"attributes": ["speed"]}')
        attributes = _attributes(entries["attributes"]) if "attributes" in entries else ()
        names = (
            entries["names"].text("how names are compared: exact, edits or meaning") if "names" in entries else "exact"
        )
        coverage = (
            entries["coverage"].number("a share from 0 to 1, such as 0.8", 0, 1) if "coverage" in entries else 0.5
        )
        filter_ = _filter(entries)
        categories = _few(entries["categories"], "a category, or a list of them") if "categories" in entries else ()
        themes = _few(entries["themes"], "a theme, or a list of themes") if "themes" in entries else ()
        limits, qos_weights = _qos(entries["qos"]) if "qos" in entries else (_NONE, _NONE)
        weights = _weights(entries["weights"], PARTS, _EQUAL) if "weights" in entries else _EQUAL
        limit = entries["limit"].whole(f"1 to {MOST_RESULTS:,} results", 1, MOST_RESULTS) if "limit" in entries else 20
        explain = entries["explain"].truth() if "explain" in entries else False
        if findings.problems:
            raise DiscoveryError(findings.problems)
        what = (attributes, names, coverage, filter_, categories, themes)
        return cls(*what, limits, qos_weights, weights, limit, explain)


def _few(spot: Spot, expected: str) -> tuple[str, ...]:
    if isinstance(spot.value, list) and len(spot.value) > MAX_WANTED:
        spot.report(f"expected at most {MAX_WANTED} of them, not {len(spot.value):,}")
        return ()
    return spot.texts(expected)


def _attributes(spot: Spot) -> tuple[WantedAttribute, ...]:
    """Read a list of names or objects, or a map of names to types or objects."""
    expected = 'attributes, such as ["speed", {"name": "vid", "type": "string"}]'
    if isinstance(spot.value, Mapping | list) and len(spot.value) > MAX_WANTED:
        spot.report(f"expected at most {MAX_WANTED} attributes, not {len(spot.value)}")
        return ()
    if isinstance(spot.value, Mapping):
        attributes = [_wanted(item, name) for name, item in spot.pairs(expected).items()]
    else:
        attributes = [_wanted(item, None) for item in spot.items(expected)]
    for n, item in enumerate(attributes):
        if item.name and any(item.name == other.name for other in attributes[:n]):
            spot.report(f"expected each attribute once, but {item.name!r} is repeated")
    return tuple(attributes)


def _wanted(spot: Spot, name: str | None) -> WantedAttribute:
    if not isinstance(spot.value, Mapping):
        if name is None:
            return WantedAttribute(spot.text("an attribute: its name, or {name, type, range, values}"))
        return WantedAttribute(name, None if spot.value is None else _family(spot))
    entries = spot.entries(("type", "range", "values") if name else ("name", "type", "range", "values"), "an attribute")
    if name is None:
        name = entries.get("name", spot.at("name", None)).text("the name of an attribute")
    family = _family(entries["type"]) if "type" in entries else None
    if "range" in entries and "values" in entries:
        spot.report("expected range or values, not both")
    values = _range(entries["range"], family) if "range" in entries else None
    return WantedAttribute(name, family, _values(entries["values"]) if "values" in entries else values)


def _family(spot: Spot) -> str:
    name = spot.text(f"a type, such as float64, or one of {', '.join(FAMILIES)}")
    if name in FAMILIES or not name:
        return name
    try:
        return family_of(parse_type(name.removesuffix("?")))
    except SchemaError as error:
        hint = did_you_mean(name, FAMILIES)
        spot.report(f"{error}{'' if 'did you mean' in str(error) else hint}")
        return FAMILIES[0]


def _range(spot: Spot, family: str | None) -> Cuts | None:
    expected = "the least and the greatest value, such as [0, 120]; null: no end"
    ends = spot.items(expected)
    if len(ends) != 2:
        if isinstance(spot.value, list | tuple):
            spot.refuse(expected)
        return None
    low, high = (_value(end, family) for end in ends)
    if low is None and high is None:
        spot.refuse(expected)
    elif low is not None and high is not None:
        if isinstance(low, str) is not isinstance(high, str):
            spot.refuse("two values of one type")
            return None
        if low > high:
            spot.refuse("the least value before the greatest")
    return value_range(low, high)


def _values(spot: Spot) -> Cuts | None:
    if isinstance(spot.value, list) and len(spot.value) > MOST_VALUES:
        spot.report(f"expected at most {MOST_VALUES:,} values, not {len(spot.value):,}")
        return None
    values = [_value(value, None) for value in spot.items("a list of values that have to be possible")]
    if not values or any(value is None for value in values) or len({isinstance(value, str) for value in values}) > 1:
        spot.refuse("values of one type, at least one")
        return None
    return sets.points(values)


def _value(spot: Spot, family: str | None) -> Any:
    value = spot.value
    if family == "time" and isinstance(value, str):
        moment = timestamps.from_text(value)
        if moment is None:
            spot.refuse("a moment such as 2026-01-05T00:00:00Z")
        return moment
    if value is not None and not isinstance(value, str | int | float):
        spot.refuse("a number, a text or null")
        return None
    if isinstance(value, float) and value != value:
        spot.refuse("a number")
        return None
    return value


def _filter(entries: Mapping[str, Spot]) -> Filter | None:
    if "filter" not in entries:
        if "params" in entries:
            entries["params"].report("expected no parameters, as there is no filter")
        return None
    text = entries["filter"].value
    if not isinstance(text, str):
        entries["filter"].refuse("a filter over properties, such as \"price < 5 AND region = 'north'\"")
        return None
    params = (
        [param.value for param in entries["params"].items("a list of values for %0, %1, ...")]
        if "params" in entries
        else []
    )
    try:
        filter_ = Filter(text, params=params, strict_params=True)
        filter_.require_evaluable()
    except FilterError as error:
        entries["filter"].report(str(error))
        return None
    return filter_ if text.strip() else None


def _qos(spot: Spot) -> tuple[Mapping[str, float], Mapping[str, float]]:
    entries = spot.entries(("limits", "weights"), 'quality, such as {"weights": {"latency": 2, "rate": 1}}')
    metrics = tuple(METRICS)
    limit_entries = (
        entries["limits"].entries(metrics, 'limits, such as {"latency": "fast"}') if "limits" in entries else {}
    )
    limits = MappingProxyType({name: read_figure(entry, METRICS[name]) for name, entry in limit_entries.items()})
    return limits, _weights(entries["weights"], metrics, _NONE) if "weights" in entries else _NONE


def _weights(spot: Spot, known: tuple[str, ...], otherwise: Mapping[str, float]) -> Mapping[str, float]:
    entries = spot.entries(known, f"weights by name: {', '.join(known)}")
    weights = {name: entry.number("a weight, 0 or more", 0, 1e9) for name, entry in entries.items()}
    together = {**otherwise, **weights}
    if spot.value == {} or (weights and not any(together.values())):
        spot.refuse("at least one weight above 0")
    return MappingProxyType(together)
