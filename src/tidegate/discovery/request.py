"""What a consumer asks for, read from a document: every problem at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tidegate.discovery.attributes import FAMILIES, Wanted, family_of, value_range
from tidegate.discovery.index import MOST_WANTED
from tidegate.errors import DefinitionError, DiscoveryError, FilterError, SchemaError, did_you_mean
from tidegate.filters import Filter, sets
from tidegate.filters.sets import Cuts
from tidegate.model import timestamps
from tidegate.model.types import parse_type
from tidegate.services.findings import Findings, Spot
from tidegate.services.quality import METRICS, read_figure

MOST_RESULTS = 1_000
PARTS = ("coverage", "degree", "qos")
"""What a score is made of."""
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
    """What attributes a consumer needs, how precisely, and what quality matters."""

    attributes: tuple[Wanted, ...] = ()
    names: str = "exact"
    """How names are compared: `exact`, `edits`, `meaning`, or another that the directory knows."""
    coverage: float = 0.5
    """The least share of the attributes that an answer has: the paper's Val."""
    filter: Filter | None = None
    """Over the properties of services."""
    categories: tuple[str, ...] = ()
    """An answer is in one of them."""
    themes: tuple[str, ...] = ()
    """An answer has one of them."""
    limits: Mapping[str, float] = field(default_factory=lambda: _NONE)
    """By metric: what an answer is at least as good as."""
    qos_weights: Mapping[str, float] = field(default_factory=lambda: _NONE)
    """By metric: what matters how much."""
    weights: Mapping[str, float] = field(default_factory=lambda: _EQUAL)
    """How much coverage, degree and quality weigh in the score, among those that were asked for."""
    limit: int = 20
    explain: bool = False

    @classmethod
    def from_dict(cls, document: Any) -> Request:
        """Read a request; a `DiscoveryError` has every problem of it.

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
        except DefinitionError as error:  # there are so many problems that it was given up
            raise DiscoveryError(error.problems) from None

    @classmethod
    def _read(cls, document: Any, findings: Findings) -> Request:
        found = Spot(document, (), findings).entries(_KEYS, 'a request, such as {"attributes": ["speed"]}')
        attributes = _attributes(found["attributes"]) if "attributes" in found else ()
        names = found["names"].text("how names are compared: exact, edits or meaning") if "names" in found else "exact"
        coverage = found["coverage"].number("a share from 0 to 1, such as 0.8", 0, 1) if "coverage" in found else 0.5
        filter_ = _filter(found)
        categories = _few(found["categories"], "a category, or a list of them") if "categories" in found else ()
        themes = _few(found["themes"], "a theme, or a list of themes") if "themes" in found else ()
        limits, qos_weights = _qos(found["qos"]) if "qos" in found else (_NONE, _NONE)
        weights = _weights(found["weights"], PARTS, _EQUAL) if "weights" in found else _EQUAL
        limit = found["limit"].whole(f"1 to {MOST_RESULTS:,} results", 1, MOST_RESULTS) if "limit" in found else 20
        explain = found["explain"].truth() if "explain" in found else False
        if findings.problems:
            raise DiscoveryError(findings.problems)
        what = (attributes, names, coverage, filter_, categories, themes)
        return cls(*what, limits, qos_weights, weights, limit, explain)


def _few(spot: Spot, expected: str) -> tuple[str, ...]:
    if isinstance(spot.value, list) and len(spot.value) > MOST_WANTED:
        spot.blame(f"expected at most {MOST_WANTED} of them, not {len(spot.value):,}")
        return ()
    return spot.texts(expected)


def _attributes(spot: Spot) -> tuple[Wanted, ...]:
    """A list of names or objects, or a map of names to types or objects."""
    expected = 'attributes, such as ["speed", {"name": "vid", "type": "string"}]'
    if isinstance(spot.value, Mapping | list) and len(spot.value) > MOST_WANTED:
        spot.blame(f"expected at most {MOST_WANTED} attributes, not {len(spot.value)}")
        return ()
    if isinstance(spot.value, Mapping):
        found = [_wanted(each, name) for name, each in spot.pairs(expected).items()]
    else:
        found = [_wanted(each, None) for each in spot.items(expected)]
    for n, each in enumerate(found):
        if each.name and any(each.name == other.name for other in found[:n]):
            spot.blame(f"expected each attribute once, and {each.name!r} is there twice")
    return tuple(found)


def _wanted(spot: Spot, name: str | None) -> Wanted:
    if not isinstance(spot.value, Mapping):
        if name is None:
            return Wanted(spot.text("an attribute: its name, or {name, type, range, values}"))
        return Wanted(name, None if spot.value is None else _family(spot))
    found = spot.entries(("type", "range", "values") if name else ("name", "type", "range", "values"), "an attribute")
    if name is None:
        name = found.get("name", spot.at("name", None)).text("the name of an attribute")
    family = _family(found["type"]) if "type" in found else None
    if "range" in found and "values" in found:
        spot.blame("expected range or values, not both")
    values = _range(found["range"], family) if "range" in found else None
    return Wanted(name, family, _values(found["values"]) if "values" in found else values)


def _family(spot: Spot) -> str:
    given = spot.text(f"a type, such as float64, or one of {', '.join(FAMILIES)}")
    if given in FAMILIES or not given:
        return given
    try:
        return family_of(parse_type(given.removesuffix("?")))
    except SchemaError as error:
        hint = did_you_mean(given, FAMILIES)
        spot.blame(f"{error}{'' if 'did you mean' in str(error) else hint}")
        return FAMILIES[0]


def _range(spot: Spot, family: str | None) -> Cuts | None:
    expected = "the least and the greatest value, such as [0, 120]; null: no end"
    ends = spot.items(expected)
    if len(ends) != 2:
        if isinstance(spot.value, list | tuple):
            spot.refuse(expected)
        return None
    low, high = (_value(each, family) for each in ends)
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
        spot.blame(f"expected at most {MOST_VALUES:,} values, not {len(spot.value):,}")
        return None
    found = [_value(each, None) for each in spot.items("a list of values that have to be possible")]
    if not found or any(each is None for each in found) or len({isinstance(each, str) for each in found}) > 1:
        spot.refuse("values of one type, at least one")
        return None
    return sets.points(found)


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


def _filter(found: Mapping[str, Spot]) -> Filter | None:
    if "filter" not in found:
        if "params" in found:
            found["params"].blame("expected no parameters, as there is no filter")
        return None
    text = found["filter"].value
    if not isinstance(text, str):
        found["filter"].refuse("a filter over properties, such as \"price < 5 AND region = 'north'\"")
        return None
    params = (
        [each.value for each in found["params"].items("a list of values for %0, %1, ...")] if "params" in found else []
    )
    try:
        made = Filter(text, params=params, strict_params=True)
        made.require_evaluable()
    except FilterError as error:
        found["filter"].blame(str(error))
        return None
    return made if text.strip() else None


def _qos(spot: Spot) -> tuple[Mapping[str, float], Mapping[str, float]]:
    found = spot.entries(("limits", "weights"), 'quality, such as {"weights": {"latency": 2, "rate": 1}}')
    known = tuple(METRICS)
    given = found["limits"].entries(known, 'limits, such as {"latency": "fast"}') if "limits" in found else {}
    limits = MappingProxyType({name: read_figure(each, METRICS[name]) for name, each in given.items()})
    return limits, _weights(found["weights"], known, _NONE) if "weights" in found else _NONE


def _weights(spot: Spot, known: tuple[str, ...], otherwise: Mapping[str, float]) -> Mapping[str, float]:
    given = spot.entries(known, f"weights by name: {', '.join(known)}")
    found = {name: each.number("a weight, 0 or more", 0, 1e9) for name, each in given.items()}
    together = {**otherwise, **found}
    if spot.value == {} or (found and not any(together.values())):
        spot.refuse("at least one weight above 0: with none nothing matters")
    return MappingProxyType(together)
