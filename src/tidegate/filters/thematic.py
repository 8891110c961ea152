"""Matches the predicates with ~ of one conjunct against one event, as in the thematic-matching paper.

    predicates and tuples ──relatedness, each side in its theme──▶ similarities ──mapping.py──▶ the best mappings

The similarity of a predicate and a tuple is the similarity of their attributes times the similarity of their values. A
side with `~` is compared by relatedness, a side without must be equal. If predicates compete, a predicate that fits a
tuple less well than another subscribed predicate has a lower similarity to it (`competed`). The degree of an event is
the degree of its best mapping. The event matches if a mapping exists and its degree reaches the threshold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidegate.errors import MatcherError
from tidegate.filters import mapping
from tidegate.filters.meaning import Semantics
from tidegate.filters.membership import SLACK
from tidegate.filters.nodes import Path
from tidegate.filters.values import Moment, is_missing, plain, raw_reader
from tidegate.filters.vectors import NumpyArray
from tidegate.model.numbers import nearest_float32
from tidegate.model.schema import Schema
from tidegate.model.types import Enum, Struct, Type

TupleValue = bool | int | float | str
Tuple = tuple[str, TupleValue]
"""Path and value of an attribute."""

MAX_PREDICATES = 16
"""Maximum number of predicates with ~ in a conjunct: summing over all mappings takes 2^n time and memory."""


@dataclass(frozen=True, slots=True)
class ThematicPredicate:
    """`attribute~ = value~`; each of the two sides may have a ~ or not."""

    attribute: str
    value: TupleValue
    soft_attribute: bool = False
    soft_value: bool = False

    @property
    def name(self) -> str:
        """The attribute as words."""
        return readable(self.attribute)

    @property
    def shown(self) -> str:
        """The predicate as a filter writes it."""
        return f"{self.attribute}{'~' * self.soft_attribute} = {self.value!r}{'~' * self.soft_value}"

    @property
    def text(self) -> str:
        """The value as text, for a comparison by relatedness."""
        return text_of(self.value)


@dataclass(frozen=True, slots=True)
class Thematic:
    """The predicates with ~ of one conjunct, which all need a tuple, and their theme."""

    predicates: tuple[ThematicPredicate, ...]
    themes: frozenset[str] = frozenset()
    threshold: float = 0.0
    """Minimum degree. Even at 0 a match needs a mapping, so each predicate needs a tuple."""
    taken: frozenset[str] = frozenset()
    """Attributes that an equality of the same conjunct names; no predicate with ~ is mapped to them."""

    def __post_init__(self) -> None:
        if len(self.predicates) > MAX_PREDICATES:
            raise MatcherError(
                f"expected at most {MAX_PREDICATES} predicates to be matched by meaning together, "
                f"not {len(self.predicates)}"
            )
        if not 0 <= self.threshold <= 1:
            raise MatcherError(f"expected a threshold from 0 to 1, not {self.threshold!r}")

    def reached(self, degree: float) -> bool:
        """Return True if a degree is a match."""
        return degree > 0 and degree >= self.threshold - SLACK


Rivals = tuple[ThematicPredicate, ...]
"""All distinct predicates that are subscribed to in one theme; predicates compete with these."""

MAX_EVIDENCE = 12.0
"""Evidence of equal terms, and the maximum of all evidence."""

SAME_EVIDENCE = 1e-6
"""Predicates whose evidence differs by less have the same meaning and are no rivals."""

NEUTRAL_RIVALS, RIVALS_EXPONENT = 21, 1.5
"""The number of rivals at which `company` is 1, and the exponent by which it grows with their number."""
MIN_RIVALS, MAX_RIVALS = 13, 256
"""Minimum number of rivals that count, so that a single filter still finds close synonyms; and the maximum."""


def rivals_among(several: Iterable[Thematic]) -> Rivals:
    """Return the distinct predicates of some conjuncts."""
    return tuple({_key(predicate): predicate for thematic in several for predicate in thematic.predicates}.values())


def _key(predicate: ThematicPredicate) -> tuple[ThematicPredicate, str]:
    return predicate, predicate.text  # keep True and 1 apart


def competed(by_name: NumpyArray, by_value: NumpyArray, rivalry: float) -> NumpyArray:
    """Return how similar predicates are to tuples, given the relatedness of their names and values; one row per rival.

    The *evidence* of a relatedness x is ln(x / (1 - x)); the evidence of a pair is the sum over name and value. `Eire`
    is somewhat related to `Spain`, but if another subscription asks for `Ireland`, that one is meant. So a predicate's
    similarity is multiplied by the probability that its lead over the best other predicate gives it, 1 / (1 + e^-lead).
    Name and value count together, so that the attribute tells which sense of a value is meant. Only the best other
    predicate counts, and none with the same evidence, so predicates with the same meaning hardly take from each other.

    The more predicates there are, the more likely one of them is meant: see `company`.
    """
    if not rivalry or not by_name.size:
        return np.asarray(by_name * by_value)
    odds = company(len(by_name))
    similar = in_company(by_name, odds) * in_company(by_value, odds)
    return np.asarray(similar * _chances(evidence_of(by_name) + evidence_of(by_value), rivalry))


def company(rivals: int) -> float:
    """Return the factor by which the odds of a relatedness grow with the number of rivals.

    If there is one predicate, a word that is a little related to it seldom means it. If there are a hundred, most words
    mean the one that they are most related to. So the same threshold works for few and for many predicates.
    """
    return float((min(max(rivals, MIN_RIVALS), MAX_RIVALS) / NEUTRAL_RIVALS) ** RIVALS_EXPONENT)


def in_company(relatedness: NumpyArray, odds: NumpyArray | float) -> NumpyArray:
    """Return relatedness with its odds multiplied; 0 and 1 do not change."""
    more = relatedness * odds
    return np.asarray(more / (more + (1 - relatedness)))


def _chances(evidence: NumpyArray, rivalry: float) -> NumpyArray:
    """Return the probability that each predicate is meant, and not the best of the others."""
    best = evidence.max(axis=0)
    first = evidence >= best - SAME_EVIDENCE
    second = np.where(first, -np.inf, evidence).max(axis=0)
    with np.errstate(invalid="ignore", over="ignore"):  # no predicate is related: the result is multiplied by 0
        lead = evidence - np.where(first, second, best)
        return np.asarray(np.nan_to_num(1 / (1 + np.exp(-rivalry * lead))))


def evidence_of(relatedness: NumpyArray) -> NumpyArray:
    """Return the logarithm of the odds, at most `MAX_EVIDENCE`; minus infinity for a relatedness of 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(np.log(relatedness) - np.log1p(-relatedness), MAX_EVIDENCE))


@dataclass(frozen=True, slots=True)
class Meant:
    """A mapping with the names of the attributes that it maps to."""

    attributes: tuple[str, ...]
    """The attribute that each predicate is mapped to."""
    mapping: mapping.Mapping
    predicates: tuple[ThematicPredicate, ...] = field(default=(), compare=False)
    """The predicates, in the same order."""

    @property
    def degree(self) -> float:
        """Degree of the event, 0 to 1."""
        return self.mapping.degree

    @property
    def probability(self) -> float:
        """Probability of this mapping among all mappings."""
        return self.mapping.probability

    @property
    def similarities(self) -> tuple[float, ...]:
        """Similarity of each predicate to its tuple."""
        return self.mapping.similarities

    @property
    def correspondences(self) -> tuple[float, ...]:
        """Probability, for each predicate, of its attribute among all attributes."""
        return self.mapping.correspondences


def match(
    semantics: Semantics, wanted: Thematic, event: Mapping[str, Any], themes: Iterable[str] = (), k: int = 1
) -> list[Meant]:
    """Return the `k` best mappings of an event that reach the threshold, best first; empty if it does not match.

    `themes` are the tags of the event's service; the event's own `_themes` are added.
    """
    best = mappings(semantics, wanted, list(tuples_of(event)), frozenset(themes) | themes_of(event), k)
    return [mapping_ for mapping_ in best if wanted.reached(mapping_.degree)]


def mappings(
    semantics: Semantics,
    wanted: Thematic,
    tuples: Sequence[Tuple],
    themes: frozenset[str],
    k: int = 1,
    rivals: Rivals | None = None,
) -> list[Meant]:
    """Return the `k` best mappings to the tuples of an event, best first, also below the threshold."""
    best = mapping.best_mappings(similarities(semantics, wanted, tuples, themes, rivals), k)
    return [
        Meant(tuple(tuples[column][0] for column in mapping_.tuples), mapping_, wanted.predicates) for mapping_ in best
    ]


def degree(
    semantics: Semantics, wanted: Thematic, tuples: Sequence[Tuple], themes: frozenset[str], rivals: Rivals
) -> float:
    """Return the degree of the best mapping; 0 if there is none."""
    return mapping.best_degree(similarities(semantics, wanted, tuples, themes, rivals))


def similarities(
    semantics: Semantics,
    wanted: Thematic,
    tuples: Sequence[Tuple],
    themes: Iterable[str],
    rivals: Rivals | None = None,
) -> NumpyArray:
    """Return the similarity matrix: one row per predicate, one column per tuple.

    `rivals` includes the predicates of `wanted`; None: they have no other rivals.
    """
    rivals = rivals if rivals is not None and semantics.rivalry else rivals_among([wanted])
    of = frozenset(themes)
    names = [predicate.name for predicate in rivals if predicate.soft_attribute]
    by_name = _figures(semantics, names, [readable(attribute) for attribute, _ in tuples], wanted.themes, of)
    value_texts = [predicate.text for predicate in rivals if predicate.soft_value]
    texts = [value for _, value in tuples if isinstance(value, str)]
    by_text = _figures(semantics, value_texts, texts, wanted.themes, of)
    of_names, of_values = np.zeros((2, len(rivals), len(tuples)))
    for row, predicate in enumerate(rivals):
        for column, (attribute, value) in enumerate(tuples):
            of_names[row, column] = (
                by_name[predicate.name, readable(attribute)]
                if predicate.soft_attribute
                else predicate.attribute == attribute
            )
            of_values[row, column] = (
                by_text[predicate.text, value]
                if predicate.soft_value and isinstance(value, str)
                else equals(predicate, value)
            )
    place = {_key(predicate): row for row, predicate in enumerate(rivals)}
    matrix = competed(of_names, of_values, semantics.rivalry)[
        [place[_key(predicate)] for predicate in wanted.predicates]
    ]
    matrix[:, [attribute in wanted.taken for attribute, _ in tuples]] = 0.0
    return matrix


def _figures(
    semantics: Semantics, subscribed: Iterable[str], terms: Iterable[str], theme: frozenset[str], of: frozenset[str]
) -> dict[tuple[str, str], float]:
    """Return how related each subscribed term is to each term of an event."""
    distinct_subscribed, distinct = list(dict.fromkeys(subscribed)), list(dict.fromkeys(terms))
    if not distinct_subscribed or not distinct:
        return {}
    matrix = checked(semantics.relatedness(distinct_subscribed, distinct, theme, of))
    return {
        (one, other): float(matrix[n, m])
        for n, one in enumerate(distinct_subscribed)
        for m, other in enumerate(distinct)
    }


def checked(relatedness: NumpyArray) -> NumpyArray:
    """Return the answer of a `Semantics`, clipped to 0 to 1, with NaN as 0."""
    return np.clip(np.nan_to_num(np.asarray(relatedness, np.float64)), 0.0, 1.0)


def equals(predicate: ThematicPredicate, value: TupleValue) -> bool:
    """Return True if a value equals the predicate's value, without relatedness.

    A number or truth value has no relatedness: with ~ it equals the text that writes it out, `'5'` or `'true'`.
    """
    if not predicate.soft_value:
        return isinstance(predicate.value, str) == isinstance(value, str) and predicate.value == value
    if isinstance(value, bool):
        return predicate.text.strip().casefold() == text_of(value)
    return number_of(predicate.text) == value


NUMBER = re.compile(r"[+-]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,3})?", re.ASCII)


def number_of(text: str) -> int | float | None:
    """Return the number that a text writes out; None if it writes none.

    >>> number_of("5"), number_of(" 5.50 "), number_of("room 5")
    (5, 5.5, None)
    """
    text = text.strip()
    if not NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


# Tuples ------------------------------------------------------------------------


def tuples_of(event: Mapping[str, Any], prefix: str = "") -> Iterator[Tuple]:
    """Yield the attributes of an event with their values; nested ones by their path, `pos.x`.

    Skipped are reserved attributes, values that are null, NaN, times or lists, and names that are no strings.
    """
    for name, value in event.items():
        if not isinstance(name, str) or (not prefix and name.startswith("_")):
            continue
        if isinstance(value, Mapping):
            yield from tuples_of(value, f"{prefix}{name}.")
        elif (scalar := _scalar(value)) is not None:
            yield prefix + name, scalar


def tuple_reader(schema: Schema | None) -> Callable[[Mapping[str, Any]], list[Tuple]]:
    """Return a function that reads the tuples of an event; with a schema only its attributes, and enum values as
    labels.
    """
    if schema is None:
        return lambda event: list(tuples_of(event))
    readers = [(name, raw_reader(path), path.type) for name, path in tuple_paths(schema)]

    def read(event: Mapping[str, Any]) -> list[Tuple]:
        values = ((name, typed(raw(event), kind)) for name, raw, kind in readers)
        return [(name, value) for name, value in values if value is not None]

    return read


def tuple_paths(schema: Schema) -> list[tuple[str, Path]]:
    """Return name and path of the attributes of a schema that are tuples: strings, enums, numbers and booleans."""
    return list(_leaves(schema.root, ()))


_TUPLE_KINDS = frozenset({"string", "char", "enum", "bool", "int", "float"})


def _leaves(struct: Struct, outer: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for attribute in struct:
        parts = (*outer, attribute.name)
        if isinstance(attribute.type, Struct):
            yield from _leaves(attribute.type, parts)
        elif attribute.type.kind in _TUPLE_KINDS:
            yield ".".join(parts), Path(parts, attribute.type)


def typed(value: Any, kind: Type | None) -> TupleValue | None:
    """Return the value of a typed attribute as a tuple's value; None if it is missing or not of its type."""
    scalar = _scalar(value)
    if scalar is None or kind is None:
        return scalar
    if isinstance(kind, Enum):
        if isinstance(scalar, str):
            return scalar if scalar in kind.labels else None
        whole = isinstance(scalar, int) and not isinstance(scalar, bool) and 0 <= scalar < len(kind.labels)
        return kind.labels[int(scalar)] if whole else None
    if isinstance(scalar, str) != (kind.kind in ("string", "char")):
        return None
    if isinstance(scalar, str | bool) or str(kind) != "float32":
        return scalar
    return nearest_float32(scalar)


def _scalar(value: Any) -> TupleValue | None:
    if value.__class__ is not str:
        value = None if is_missing(value) else plain(value)
    return None if isinstance(value, Moment) else value


def themes_of(event: Mapping[str, Any]) -> frozenset[str]:
    """Return an event's own theme tags: a list of strings or a single string; other values are ignored."""
    return tags_in(event.get("_themes"))


def tags_in(value: Any) -> frozenset[str]:
    """Return the tags in the value of `_themes`."""
    if isinstance(value, str):
        return frozenset((value,))
    several = isinstance(value, list | tuple | set | frozenset | np.ndarray)
    return frozenset(tag for tag in value if isinstance(tag, str)) if several else frozenset()


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BREAK = re.compile(r"[._\W]+")


def readable(attribute: str) -> str:
    """Return the name of an attribute as words.

    >>> readable("pos.measurementUnit"), readable("wind_speed")
    ('pos measurement Unit', 'wind speed')
    """
    return _BREAK.sub(" ", _HUMP.sub(" ", attribute))


def text_of(value: TupleValue) -> str:
    """Return a value as text, for a comparison by relatedness; 5.0 becomes '5'."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
