"""Explanations of relatedness, as JSON values: how related terms are, why, and which terms are nearest."""

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

_MAX_SHARED_CONCEPTS = 5
"""Number of documents shown for two terms."""


def documents_of(semantics: Semantics | None) -> Relatedness | None:
    """Return the relatedness by documents that a semantics uses; None if it has no documents."""
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
    """Return everything known about a term in a theme; `to_themes` is the theme of the others, by default the same.

    Takes the lock of a `Shared` semantics.
    """
    with _locked(semantics):
        return _look(semantics, term, themes, others, themes if to_themes is None else to_themes, count)


def _locked(semantics: Semantics) -> AbstractContextManager[object]:
    """Return the lock of a shared semantics, as a context manager."""
    return semantics.lock if isinstance(semantics, Shared) else nullcontext()


def _look(
    semantics: Semantics,
    term: str,
    themes: Sequence[str],
    others: Sequence[str],
    theirs: Sequence[str],
    count: int,
) -> dict[str, Any]:
    description: dict[str, Any] = {
        "term": term,
        "themes": list(themes),
        "threshold": semantics.threshold,
        "related": [related(semantics, term, other, themes, theirs) for other in others],
    }
    by = documents_of(semantics)
    if by is None:
        return {**description, "words": [], "unknown": [], "documents": 0, "basis": 0, "concepts": [], "nearest": []}
    words = by.space.words(term)
    return {
        **description,
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
    """Return how related two terms are, each in its theme, and the documents that contribute most."""
    figure = semantics.relatedness([term], [other], frozenset(themes), frozenset(to_themes))
    by = documents_of(semantics)
    contributions = [] if by is None else shared(by, term, other, themes, to_themes, _MAX_SHARED_CONCEPTS)
    return {"to": other, "relatedness": float(figure[0, 0]), "concepts": _named("concept", "share", contributions)}


def described(filter_: Filter, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the description of a filter and an event; for a filter with ~ also its best mappings."""
    description = describe(filter_, event)
    if event is not None and filter_.tree.is_semantic:
        description["event"]["mappings"] = meant(filter_, event)
    return description


def meant(filter_: Filter, event: Mapping[str, Any], k: int = 3) -> list[dict[str, Any]]:
    """Return the best mappings of a filter with ~ to an event, with the relatedness and documents of each pair."""
    meaning = filter_.meaning
    if meaning is None or not filter_.tree.is_semantic:
        return []
    with _locked(meaning.semantics):
        return _meant(filter_, meaning, event, k)


def _meant(filter_: Filter, meaning: Meaning, event: Mapping[str, Any], k: int) -> list[dict[str, Any]]:
    values = dict(tuple_reader(filter_.schema)(event))
    of = sorted(meaning.themes | themes_of(event))
    return [
        {
            "degree": mapping.degree,
            "probability": mapping.probability,
            "pairs": [
                _pair(mapping, n, values[attribute], meaning.semantics, filter_.tree.themes, of)
                for n, attribute in enumerate(mapping.attributes)
            ],
        }
        for mapping in filter_.mappings(event, k)
    ]


def _pair(
    mapping: Meant, n: int, value: Any, semantics: Semantics, themes: Sequence[str], of: Sequence[str]
) -> dict[str, Any]:
    predicate, attribute = mapping.predicates[n], mapping.attributes[n]
    pair: dict[str, Any] = {
        "predicate": predicate.shown,
        "attribute": attribute,
        "value": value,
        "similarity": mapping.similarities[n],
        "probability": mapping.correspondences[n],
    }
    if predicate.soft_attribute:
        pair["by_name"] = related(semantics, predicate.name, readable(attribute), themes, of)
    if predicate.soft_value and isinstance(value, str):
        pair["by_value"] = related(semantics, predicate.text, text_of(value), themes, of)
    return pair


def _named(name: str, figure: str, pairs: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{name: text, figure: value} for text, value in pairs]
