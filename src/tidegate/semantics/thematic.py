"""A filter by meaning against an event: the paper's matcher, one event at a time.

    predicates and tuples ──relatedness, each side in its theme──▶ similarities ──mapping.py──▶ the best mappings

The similarity of a predicate and a tuple is that of their attributes times that of their values. A side with `~` is
compared by meaning, one without must be equal. The degree of an event is that of its best mapping; it matches when
there is a mapping and the degree reaches the threshold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.errors import MatcherError
from tidegate.semantics import mapping
from tidegate.semantics.relatedness import Relatedness
from tidegate.semantics.storage import Array

Scalar = bool | int | float | str

MOST_PREDICATES = 16
"""Of a conjunct: all its mappings are summed up, which takes time and memory by powers of two."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """`attribute~ = value~`, either ~ or none."""

    attribute: str
    value: Scalar
    soft_attribute: bool = False
    soft_value: bool = False


@dataclass(frozen=True, slots=True)
class Thematic:
    """A conjunct by meaning: predicates that all want a tuple, and the theme they are meant in."""

    predicates: tuple[Predicate, ...]
    themes: frozenset[str] = frozenset()
    threshold: float = 0.0
    """The least degree. Even at 0 a match has a mapping: an event that lacks what is asked for is none."""

    def __post_init__(self) -> None:
        if len(self.predicates) > MOST_PREDICATES:
            raise MatcherError(
                f"expected at most {MOST_PREDICATES} predicates to be matched by meaning together, "
                f"not {len(self.predicates)}"
            )
        if not 0 <= self.threshold <= 1:
            raise MatcherError(f"expected a threshold from 0 to 1, not {self.threshold!r}")


@dataclass(frozen=True, slots=True)
class Meant:
    """A mapping with the names of what it maps to."""

    attributes: tuple[str, ...]
    """What each predicate is taken to mean in the event."""
    mapping: mapping.Mapping

    @property
    def degree(self) -> float:
        """How well the event fits, from 0 to 1."""
        return self.mapping.degree

    @property
    def probability(self) -> float:
        """That it is this mapping that is meant, and not another."""
        return self.mapping.probability


def match(
    related: Relatedness, wanted: Thematic, event: Mapping[str, Any], themes: Iterable[str] = (), k: int = 1
) -> list[Meant]:
    """The `k` best mappings of an event that reach the threshold, the best first; none: it does not match.

    `themes` are those of the event's service, to which the event adds its own `_themes`.
    """
    tuples = list(tuples_of(event))
    matrix = similarities(related, wanted, tuples, frozenset(themes) | themes_of(event))
    found = mapping.best_mappings(matrix, k)
    return [
        Meant(tuple(tuples[column][0] for column in each.tuples), each)
        for each in found
        if each.degree >= wanted.threshold
    ]


def similarities(
    related: Relatedness, wanted: Thematic, tuples: Sequence[tuple[str, Scalar]], themes: Iterable[str]
) -> Array:
    """The combined similarity matrix: a row a predicate, a column a tuple."""
    themes = frozenset(themes)
    matrix = np.zeros((len(wanted.predicates), len(tuples)))
    for row, predicate in enumerate(wanted.predicates):
        for column, (attribute, value) in enumerate(tuples):
            matrix[row, column] = _similarity(related, predicate, wanted.themes, attribute, value, themes)
    return matrix


def _similarity(
    related: Relatedness, predicate: Predicate, theme: frozenset[str], attribute: str, value: Scalar, of: frozenset[str]
) -> float:
    if predicate.soft_attribute:
        by_name = related(readable(predicate.attribute), readable(attribute), theme, of)
    else:
        by_name = float(predicate.attribute == attribute)
    if not by_name:
        return 0.0
    if not predicate.soft_value:
        return by_name * (isinstance(predicate.value, str) == isinstance(value, str) and predicate.value == value)
    return by_name * related(text_of(predicate.value), text_of(value), theme, of)


def tuples_of(event: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Scalar]]:
    """The attributes of an event with their values; those of a nested one by their path, `pos.x`.

    What is reserved, null, NaN or a list is no tuple: nothing is meant by it that a predicate could equal.
    """
    for name, value in event.items():
        if not prefix and name.startswith("_"):
            continue
        if isinstance(value, Mapping):
            yield from tuples_of(value, f"{prefix}{name}.")
        elif isinstance(value, str | bool | int) or (isinstance(value, float) and not math.isnan(value)):
            yield prefix + name, value


def themes_of(event: Mapping[str, Any]) -> frozenset[str]:
    """An event's own theme tags; what is no text is none."""
    tags = event.get("_themes")
    return frozenset(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list | tuple) else frozenset()


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def readable(attribute: str) -> str:
    """An attribute's name as words.

    >>> readable("pos.measurementUnit"), readable("wind_speed")
    ('pos measurement Unit', 'wind speed')
    """
    return re.sub(r"[._\W]+", " ", _HUMP.sub(" ", attribute))


def text_of(value: Scalar) -> str:
    """A value as the text whose meaning counts; a number without what does not change it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
