"""How well a service's properties fit a request's filter, and why.

The paper has three classes: a service fits fully, is uncertain (its degree is below 1, but above the thresholds of the
filter), or does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.filters import Filter, evaluate, explain, fuzzy
from tidegate.filters.nodes import Group, Item, paths, predicates
from tidegate.filters.render import path_text, predicate
from tidegate.filters.values import raw_reader

Match = Literal["full", "uncertain", "none"]

_WHOLE = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Reason:
    """The result of one predicate, or of one item of a fuzzy group, for a service."""

    predicate: str
    values: Mapping[str, Any]
    """The properties that the predicate read; None: the service does not have the property."""
    degree: float | None
    """Degree, 0 to 1; None: unknown."""
    least: float
    """Minimum degree: the threshold of an item, 1 for other predicates."""
    weight: float
    holds: bool


def match_of(matches: bool, degree: float) -> Match:
    """Return the class of a service, given whether it matches and its degree."""
    if not matches:
        return "none"
    return "full" if degree >= _WHOLE else "uncertain"


def reasons(filter_: Filter, properties: Mapping[str, Any]) -> tuple[Reason, ...]:
    """Return the result of each predicate for a service; fuzzy groups item by item.

    >>> [reason.degree for reason in reasons(Filter("FUZZY(price IS Z(0, 10), region = 'north')"), {"price": 5})]
    [0.5, None]
    """
    results: list[Reason] = []
    groups = (node for node in predicates(filter_.pushed) if isinstance(node, Group))
    for group in dict.fromkeys(groups):
        limits = fuzzy.thresholds(group)
        for n, item in enumerate(group.items):
            results.append(_item(item, properties, limits.betas[n], limits.weights[n]))
    for verdict in explain.verdicts(filter_, properties):
        if verdict.degree is None and not verdict.predicate.startswith(("FUZZY", "NOT FUZZY")):
            degree = None if verdict.truth is None else float(verdict.truth)
            results.append(Reason(verdict.predicate, verdict.values, degree, 1.0, 1.0, verdict.truth is True))
    return tuple(results)


def _item(item: Item, properties: Mapping[str, Any], minimum: float, weight: float) -> Reason:
    degree = evaluate.item_grade(item)(properties)
    values = {path_text(path): raw_reader(path)(properties) for path in paths(item.predicate)}
    holds = degree is not None and degree >= minimum - 1e-9
    return Reason("NOT " * item.negated + predicate(item.predicate), values, degree, minimum, weight, holds)


def properties_of(filter_: Filter) -> tuple[str, ...]:
    """Return the distinct properties that a filter reads."""
    names = (str(path.parts[0]) for node in predicates(filter_.tree.root) for path in paths(node))
    return tuple(dict.fromkeys(names))
