"""What is shown of terms: how related they are and by what, what they mean, what is near to them. As JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tidegate.filters import Filter
from tidegate.filters.explain import describe
from tidegate.filters.meaning import Meaning, Semantics
from tidegate.filters.thematic import Meant, readable, text_of, themes_of, tuple_reader
from tidegate.semantics.competition import Best
from tidegate.semantics.measures import Alone
from tidegate.semantics.neighbours import concepts, nearest, shared
from tidegate.semantics.relatedness import Relatedness
from tidegate.semantics.shared import Shared
from tidegate.semantics.space import Space

_SHARED = 5
"""Concepts that are shown of two terms."""


def documents_of(semantics: Semantics | None) -> Relatedness | None:
    """What knows terms by documents; None: this knows no documents."""
    if isinstance(semantics, Shared):
        return documents_of(semantics.semantics)
    if isinstance(semantics, Relatedness):
        return semantics
    if isinstance(semantics, Space):
        return documents_of(semantics.semantics)
    return semantics.documents if isinstance(semantics, Best | Alone) else None


def look(
    semantics: Semantics,
    term: str,
    themes: Sequence[str] = (),
    others: Sequence[str] = (),
    *,
    to_themes: Sequence[str] | None = None,
    count: int = 10,
) -> dict[str, Any]:
    """All that is shown of a term in a theme; `to_themes` is that of the others, the same where nobody says."""
    with _held(semantics):
        return _look(semantics, term, themes, others, themes if to_themes is None else to_themes, count)


def _held(semantics: Semantics) -> AbstractContextManager[object]:
    """What is shared is looked into by one thread at a time."""
    return semantics.lock if isinstance(semantics, Shared) else nullcontext()


def _look(
    semantics: Semantics,
    term: str,
    themes: Sequence[str],
    others: Sequence[str],
    theirs: Sequence[str],
    count: int,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "term": term,
        "themes": list(themes),
        "threshold": semantics.threshold,
        "related": [related(semantics, term, each, themes, theirs) for each in others],
    }
    by = documents_of(semantics)
    if by is None:
        return {**found, "words": [], "unknown": [], "documents": 0, "basis": 0, "concepts": [], "nearest": []}
    words = by.space.words(term)
    return {
        **found,
        "words": words,
        "unknown": [word for word in words if not len(by.term_vector(word, themes))],
        "documents": by.space.size,
        "basis": by.basis(themes).size,
        "concepts": _named("concept", "weight", concepts(by, term, themes, count)),
        "nearest": _named("term", "relatedness", nearest(by, term, themes, count)),
    }


def related(
    semantics: Semantics, term: str, other: str, themes: Sequence[str] = (), to_themes: Sequence[str] = ()
) -> dict[str, Any]:
    """How related two terms are, each in its theme, and the documents that say it."""
    figure = semantics.relatedness([term], [other], frozenset(themes), frozenset(to_themes))
    by = documents_of(semantics)
    found = [] if by is None else shared(by, term, other, themes, to_themes, _SHARED)
    return {"to": other, "relatedness": float(figure[0, 0]), "concepts": _named("concept", "share", found)}


def described(filter_: Filter, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All that can be said of a filter and an event, and of one with ~ by which mappings."""
    found = describe(filter_, event)
    if event is not None and filter_.tree.is_semantic:
        found["event"]["mappings"] = meant(filter_, event)
    return found


def meant(filter_: Filter, event: Mapping[str, Any], k: int = 3) -> list[dict[str, Any]]:
    """The best mappings of a filter with ~ to an event: which predicate means what, how related, by which concepts."""
    meaning = filter_.meaning
    if meaning is None or not filter_.tree.is_semantic:
        return []
    with _held(meaning.semantics):
        return _meant(filter_, meaning, event, k)


def _meant(filter_: Filter, meaning: Meaning, event: Mapping[str, Any], k: int) -> list[dict[str, Any]]:
    values = dict(tuple_reader(filter_.schema)(event))
    of = sorted(meaning.themes | themes_of(event))
    return [
        {
            "degree": each.degree,
            "probability": each.probability,
            "pairs": [
                _pair(each, n, values[attribute], meaning.semantics, filter_.tree.themes, of)
                for n, attribute in enumerate(each.attributes)
            ],
        }
        for each in filter_.mappings(event, k)
    ]


def _pair(
    found: Meant, n: int, value: Any, semantics: Semantics, themes: Sequence[str], of: Sequence[str]
) -> dict[str, Any]:
    predicate, attribute = found.predicates[n], found.attributes[n]
    told: dict[str, Any] = {
        "predicate": predicate.shown,
        "attribute": attribute,
        "value": value,
        "similarity": found.similarities[n],
        "probability": found.correspondences[n],
    }
    if predicate.soft_attribute:
        told["by_name"] = related(semantics, predicate.name, readable(attribute), themes, of)
    if predicate.soft_value and isinstance(value, str):
        told["by_value"] = related(semantics, predicate.text, text_of(value), themes, of)
    return told


def _named(name: str, figure: str, pairs: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{name: text, figure: value} for text, value in pairs]
