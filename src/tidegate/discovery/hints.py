"""Hints for a request that finds nothing, or names something that no service has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from tidegate.discovery.answer import Hint
from tidegate.discovery.attributes import WantedAttribute
from tidegate.discovery.fits import properties_of
from tidegate.discovery.names import NameMatcher
from tidegate.discovery.request import Request
from tidegate.discovery.service_table import ServiceTable
from tidegate.errors import did_you_mean

_STEPS = {
    "present": "is present: all are lost",
    "attributes": "has enough of the attributes",
    "categories": "is in one of the categories",
    "themes": "has one of the themes",
    "limits": "keeps the limit, by its measured value or else its promise",
    "filter": "matches the filter",
}


def hints_for(
    table: ServiceTable, request: Request, alike: NameMatcher, left: Mapping[str, int], now: float
) -> Iterator[Hint]:
    """Yield every hint for a request; `left` has the number of services left after each step."""
    names = table.index.dictionary.names
    for n, attribute in enumerate(request.attributes):
        message = _attribute_hint(attribute, names, alike)
        if message:
            yield Hint(f"attributes[{n}]", message)
    for kind, words in (("categories", request.categories), ("themes", request.themes)):
        for n, word in enumerate(words):
            if word not in table.tags[kind]:
                yield Hint(f"{kind}[{n}]", f"no service has {word!r}{_there(word, table.tags[kind])}")
    properties = table.properties.names()
    for name in properties_of(request.filter) if request.filter is not None else ():
        if name not in properties:
            yield Hint("filter", f"no service has a property {name!r}{_there(name, properties)}")
    for name in dict.fromkeys((*request.limits, *request.qos_weights)):
        if _is_unknown(table, name, now):
            path = "qos.limits" if name in request.limits else "qos.weights"
            yield Hint(f"{path}.{name}", f"no service has a promised or measured {name}")
    for (_, before), (step, after) in pairwise(left.items()):
        if before and not after:
            yield Hint(
                f"qos.{step}" if "." in step else step,
                f"none of {before:,} remaining services {_STEPS[step.partition('.')[0]]}",
            )


def _is_unknown(table: ServiceTable, metric: str, now: float) -> bool:
    """Return True if no service has a value for a metric; refreshes the figures only if none seems to."""
    slots = table.slots()
    if not np.isnan(table.figures.of(slots, metric)).all():
        return False
    table.refresh(slots, now)
    return bool(np.isnan(table.figures.of(slots, metric)).all())


def _there(word: str, known: Iterable[str]) -> str:
    """Return the end of a hint: the probable correction, or the names that exist."""
    names = sorted(known)
    hint = did_you_mean(word, names)
    if hint:
        return hint
    more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    return f"; there are {', '.join(names[:8])}{more}" if names else "; none has any"


def _attribute_hint(attribute: WantedAttribute, known: Mapping[str, set[tuple[str, str]]], alike: NameMatcher) -> str:
    meant = [name for name in alike(attribute.name, known) if name in known]
    if not meant:
        return f"no service has an attribute {attribute.name!r}{_there(attribute.name, known)}"
    families = sorted({family for name in meant for _, family in known[name]})
    if attribute.family is not None and attribute.family not in families:
        return f"no service has {attribute.name} as {attribute.family}; it is {' or '.join(families)}"
    return ""
