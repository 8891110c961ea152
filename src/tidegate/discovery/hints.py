"""What may be wrong with a request, as the services are: what was meant, what there is, what left nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from tidegate.discovery.answer import Hint
from tidegate.discovery.attributes import Wanted
from tidegate.discovery.fits import properties_of
from tidegate.discovery.holdings import Holdings
from tidegate.discovery.names import Alike
from tidegate.discovery.request import Request
from tidegate.errors import did_you_mean

_STEPS = {
    "present": "is there: all are lost",
    "attributes": "has enough of the attributes",
    "categories": "is in one of the categories",
    "themes": "has one of the themes",
    "limits": "keeps the limit, by what is measured or else promised",
    "filter": "matches the filter",
}


def hints_for(held: Holdings, request: Request, alike: Alike, left: Mapping[str, int], now: float) -> Iterator[Hint]:
    """Give every hint; `left` says how many services were left after each step."""
    known = held.index.dictionary.names
    for n, wanted in enumerate(request.attributes):
        said = _attribute_hint(wanted, known, alike)
        if said:
            yield Hint(f"attributes[{n}]", said)
    for kind, words in (("categories", request.categories), ("themes", request.themes)):
        for n, word in enumerate(words):
            if word not in held.tags[kind]:
                yield Hint(f"{kind}[{n}]", f"no service has {word!r}{_there(word, held.tags[kind])}")
    properties = held.properties.names()
    for name in properties_of(request.filter) if request.filter is not None else ():
        if name not in properties:
            yield Hint("filter", f"no service has a property {name!r}{_there(name, properties)}")
    for name in dict.fromkeys((*request.limits, *request.qos_weights)):
        if _is_unknown(held, name, now):
            path = "qos.limits" if name in request.limits else "qos.weights"
            yield Hint(f"{path}.{name}", f"no service promises its {name}, and of none it is measured")
    for (_, before), (step, after) in pairwise(left.items()):
        if before and not after:
            yield Hint(
                f"qos.{step}" if "." in step else step,
                f"of {before:,} services that were left none {_STEPS[step.partition('.')[0]]}",
            )


def _is_unknown(held: Holdings, metric: str, now: float) -> bool:
    """Whether no service has a figure; they are brought up to date only where none seems to."""
    places = held.places()
    if not np.isnan(held.figures.of(places, metric)).all():
        return False
    held.refresh(places, now)
    return bool(np.isnan(held.figures.of(places, metric)).all())


def _there(word: str, known: Iterable[str]) -> str:
    """The end of a hint: what was meant, or what there is."""
    names = sorted(known)
    hint = did_you_mean(word, names)
    if hint:
        return hint
    more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    return f"; there are {', '.join(names[:8])}{more}" if names else "; none has any"


def _attribute_hint(wanted: Wanted, known: Mapping[str, set[tuple[str, str]]], alike: Alike) -> str:
    meant = [name for name in alike(wanted.name, known) if name in known]
    if not meant:
        return f"no service has an attribute {wanted.name!r}{_there(wanted.name, known)}"
    families = sorted({family for name in meant for _, family in known[name]})
    if wanted.family is not None and wanted.family not in families:
        return f"no service has {wanted.name} as {wanted.family}; it is {' or '.join(families)}"
    return ""
