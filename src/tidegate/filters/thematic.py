"""A conjunct by meaning against an event: the paper's matcher, one event at a time.

    predicates and tuples ──relatedness, each side in its theme──▶ similarities ──mapping.py──▶ the best mappings

The similarity of a predicate and a tuple is that of their attributes times that of their values. A side with `~` is
compared by meaning, one without must be equal. Where predicates compete, one that fits a tuple less well than another
that is subscribed to is less similar to it (`competed`). The degree of an event is that of its best mapping; it matches
when there is a mapping and the degree reaches the threshold.
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
from tidegate.filters.values import Moment, is_missing, nearest_float32, plain, raw_reader
from tidegate.model.schema import Schema
from tidegate.model.types import Enum, Struct, Type

Array = np.ndarray[Any, np.dtype[Any]]
Scalar = bool | int | float | str
Tuple = tuple[str, Scalar]
"""An attribute of an event, by its path, and its value."""

MOST_PREDICATES = 16
"""Of a conjunct: all its mappings are summed up, which takes time and memory by powers of two."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """`attribute~ = value~`, either ~ or none."""

    attribute: str
    value: Scalar
    soft_attribute: bool = False
    soft_value: bool = False

    @property
    def name(self) -> str:
        """The attribute as words."""
        return readable(self.attribute)

    @property
    def shown(self) -> str:
        """As a filter has it."""
        return f"{self.attribute}{'~' * self.soft_attribute} = {self.value!r}{'~' * self.soft_value}"

    @property
    def text(self) -> str:
        """The value as the text whose meaning counts."""
        return text_of(self.value)


@dataclass(frozen=True, slots=True)
class Thematic:
    """A conjunct by meaning: predicates that all want a tuple, and the theme they are meant in."""

    predicates: tuple[Predicate, ...]
    themes: frozenset[str] = frozenset()
    threshold: float = 0.0
    """The least degree. Even at 0 a match has a mapping: an event that lacks what is asked for is none."""
    taken: frozenset[str] = frozenset()
    """Attributes that an equality beside these predicates is about: no tuple is meant twice."""

    def __post_init__(self) -> None:
        if len(self.predicates) > MOST_PREDICATES:
            raise MatcherError(
                f"expected at most {MOST_PREDICATES} predicates to be matched by meaning together, "
                f"not {len(self.predicates)}"
            )
        if not 0 <= self.threshold <= 1:
            raise MatcherError(f"expected a threshold from 0 to 1, not {self.threshold!r}")

    def reached(self, degree: float) -> bool:
        """Whether a degree makes a match."""
        return degree > 0 and degree >= self.threshold - SLACK


Rivals = tuple[Predicate, ...]
"""All that is subscribed to in one theme, each once: where predicates compete, they do with these."""

SAME = 12.0
"""The evidence that what is the same counts with; none counts with more."""

ALIKE = 1e-6
"""Predicates whose evidence differs by less mean the same: they are no rivals."""

COMPANY, CROWD = 21, 1.5
"""So many rivals leave the odds of a relatedness as they are; of more of them, one is sooner meant, by this power."""
FEWEST, MOST = 13, 256
"""Rivals that count at least, so that a lone filter still finds what means nearly the same; and at most."""


def rivals_among(several: Iterable[Thematic]) -> Rivals:
    """The predicates of some conjuncts."""
    return tuple({_key(predicate): predicate for each in several for predicate in each.predicates}.values())


def _key(predicate: Predicate) -> tuple[Predicate, str]:
    return predicate, predicate.text  # True is no 1


def competed(by_name: Array, by_value: Array, rivalry: float) -> Array:
    """How similar predicates are to tuples by the relatedness of their names and values: a row a rival.

    The *evidence* of a relatedness x is ln(x / (1 - x)), that of a pair the sum over name and value. `Eire` is somewhat
    related to `Spain`, yet where somebody asks for `Ireland`, that is what is meant: a predicate has the chance that
    its lead over the best of the others gives it, 1 / (1 + e^-lead). Name and value count together, so that an
    attribute tells which sense of a value is meant. As only the best other counts, not how many there are, and none
    that has the same evidence, predicates that mean the same hardly take from each other.

    And the more is asked for, the likelier it is that what is met is among it: see `company`.
    """
    if not rivalry or not by_name.size:
        return np.asarray(by_name * by_value)
    odds = company(len(by_name))
    similar = in_company(by_name, odds) * in_company(by_value, odds)
    return np.asarray(similar * _chances(evidence_of(by_name) + evidence_of(by_value), rivalry))


def company(rivals: int) -> float:
    """By how much the odds that a term means another grow with how many predicates there are.

    A word that is a little like the one thing that is asked for seldom means it; where a hundred things are, most words
    mean the one that they are most like. So one threshold does for few and for many.
    """
    return float((min(max(rivals, FEWEST), MOST) / COMPANY) ** CROWD)


def in_company(relatedness: Array, odds: Array | float) -> Array:
    """Relatedness whose odds are multiplied; 0 and 1 stay what they are."""
    more = relatedness * odds
    return np.asarray(more / (more + (1 - relatedness)))


def _chances(evidence: Array, rivalry: float) -> Array:
    """Of each predicate that it is the one that is meant, and not the best of the others."""
    most = evidence.max(axis=0)
    first = evidence >= most - ALIKE
    second = np.where(first, -np.inf, evidence).max(axis=0)
    with np.errstate(invalid="ignore", over="ignore"):  # nobody is anything like it: whatever is said, it is times 0
        lead = evidence - np.where(first, second, most)
        return np.asarray(np.nan_to_num(1 / (1 + np.exp(-rivalry * lead))))


def evidence_of(relatedness: Array) -> Array:
    """The logarithm of the odds, at most `SAME`; infinitely little where nothing is related."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(np.log(relatedness) - np.log1p(-relatedness), SAME))


@dataclass(frozen=True, slots=True)
class Meant:
    """A mapping with the names of what it maps to."""

    attributes: tuple[str, ...]
    """What each predicate is taken to mean in the event."""
    mapping: mapping.Mapping
    predicates: tuple[Predicate, ...] = field(default=(), compare=False)
    """What is asked for, in the same order."""

    @property
    def degree(self) -> float:
        """How well the event fits, from 0 to 1."""
        return self.mapping.degree

    @property
    def probability(self) -> float:
        """That it is this mapping that is meant, and not another."""
        return self.mapping.probability

    @property
    def similarities(self) -> tuple[float, ...]:
        """Of each predicate and what it is taken to mean."""
        return self.mapping.similarities

    @property
    def correspondences(self) -> tuple[float, ...]:
        """Of each predicate: that it means this attribute, and not another one."""
        return self.mapping.correspondences


def match(
    semantics: Semantics, wanted: Thematic, event: Mapping[str, Any], themes: Iterable[str] = (), k: int = 1
) -> list[Meant]:
    """The `k` best mappings of an event that reach the threshold, the best first; none: it does not match.

    `themes` are those of the event's service, to which the event adds its own `_themes`.
    """
    found = mappings(semantics, wanted, list(tuples_of(event)), frozenset(themes) | themes_of(event), k)
    return [each for each in found if wanted.reached(each.degree)]


def mappings(
    semantics: Semantics,
    wanted: Thematic,
    tuples: Sequence[Tuple],
    themes: frozenset[str],
    k: int = 1,
    rivals: Rivals | None = None,
) -> list[Meant]:
    """The `k` best mappings to the tuples of an event, whatever the threshold, the best first."""
    found = mapping.best_mappings(similarities(semantics, wanted, tuples, themes, rivals), k)
    return [Meant(tuple(tuples[column][0] for column in each.tuples), each, wanted.predicates) for each in found]


def degree(
    semantics: Semantics, wanted: Thematic, tuples: Sequence[Tuple], themes: frozenset[str], rivals: Rivals
) -> float:
    """The degree of the best mapping; 0 where there is none."""
    return mapping.best_degree(similarities(semantics, wanted, tuples, themes, rivals))


def similarities(
    semantics: Semantics,
    wanted: Thematic,
    tuples: Sequence[Tuple],
    themes: Iterable[str],
    rivals: Rivals | None = None,
) -> Array:
    """The combined similarity matrix: a row a predicate, a column a tuple. `rivals` hold the predicates themselves."""
    rivals = rivals if rivals is not None and semantics.rivalry else rivals_among([wanted])
    of = frozenset(themes)
    names = [each.name for each in rivals if each.soft_attribute]
    by_name = _figures(semantics, names, [readable(attribute) for attribute, _ in tuples], wanted.themes, of)
    asked = [each.text for each in rivals if each.soft_value]
    texts = [value for _, value in tuples if isinstance(value, str)]
    by_text = _figures(semantics, asked, texts, wanted.themes, of)
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
    found = competed(of_names, of_values, semantics.rivalry)[[place[_key(each)] for each in wanted.predicates]]
    found[:, [attribute in wanted.taken for attribute, _ in tuples]] = 0.0
    return found


def _figures(
    semantics: Semantics, subscribed: Iterable[str], terms: Iterable[str], theme: frozenset[str], of: frozenset[str]
) -> dict[tuple[str, str], float]:
    """How related each subscribed term is to each term of an event."""
    asked, distinct = list(dict.fromkeys(subscribed)), list(dict.fromkeys(terms))
    if not asked or not distinct:
        return {}
    found = checked(semantics.relatedness(asked, distinct, theme, of))
    return {(one, other): float(found[n, m]) for n, one in enumerate(asked) for m, other in enumerate(distinct)}


def checked(relatedness: Array) -> Array:
    """What somebody says who knows words: from 0 to 1, and 0 where it is no number."""
    return np.clip(np.nan_to_num(np.asarray(relatedness, np.float64)), 0.0, 1.0)


def equals(predicate: Predicate, value: Scalar) -> bool:
    """Whether a value is the predicate's own, where nothing is to be understood.

    A value that is no text has no meaning beside itself: by ~ it is what a text writes out, `'5'` or `'true'`.
    """
    if not predicate.soft_value:
        return isinstance(predicate.value, str) == isinstance(value, str) and predicate.value == value
    if isinstance(value, bool):
        return predicate.text.strip().casefold() == text_of(value)
    return number_of(predicate.text) == value


NUMBER = re.compile(r"[+-]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,3})?", re.ASCII)


def number_of(text: str) -> int | float | None:
    """The number that a text writes out; None: it is none.

    >>> number_of("5"), number_of(" 5.50 "), number_of("room 5")
    (5, 5.5, None)
    """
    text = text.strip()
    if not NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


# Tuples ------------------------------------------------------------------------


def tuples_of(event: Mapping[str, Any], prefix: str = "") -> Iterator[Tuple]:
    """The attributes of an event with their values; those of a nested one by their path, `pos.x`.

    What is reserved, null, NaN, a moment or a list is no tuple: nothing is meant by it that a predicate could equal;
    nor is what has no text for a name.
    """
    for name, value in event.items():
        if not isinstance(name, str) or (not prefix and name.startswith("_")):
            continue
        if isinstance(value, Mapping):
            yield from tuples_of(value, f"{prefix}{name}.")
        elif (found := _scalar(value)) is not None:
            yield prefix + name, found


def tuple_reader(schema: Schema | None) -> Callable[[Mapping[str, Any]], list[Tuple]]:
    """How the tuples of an event are read: with a schema those of its attributes, an enum's value as its label."""
    if schema is None:
        return lambda event: list(tuples_of(event))
    readers = [(name, raw_reader(path), path.type) for name, path in tuple_paths(schema)]

    def read(event: Mapping[str, Any]) -> list[Tuple]:
        found = ((name, typed(raw(event), kind)) for name, raw, kind in readers)
        return [(name, value) for name, value in found if value is not None]

    return read


def tuple_paths(schema: Schema) -> list[tuple[str, Path]]:
    """The attributes of a schema that are tuples, by name: texts, labels, numbers and truth values."""
    return list(_leaves(schema.root, ()))


_MEANT = frozenset({"string", "char", "enum", "bool", "int", "float"})


def _leaves(struct: Struct, outer: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for each in struct:
        parts = (*outer, each.name)
        if isinstance(each.type, Struct):
            yield from _leaves(each.type, parts)
        elif each.type.kind in _MEANT:
            yield ".".join(parts), Path(parts, each.type)


def typed(value: Any, kind: Type | None) -> Scalar | None:
    """A value of a typed attribute as that of a tuple; None: it is none, or not of its type."""
    found = _scalar(value)
    if found is None or kind is None:
        return found
    if isinstance(kind, Enum):
        if isinstance(found, str):
            return found if found in kind.labels else None
        whole = isinstance(found, int) and not isinstance(found, bool) and 0 <= found < len(kind.labels)
        return kind.labels[int(found)] if whole else None
    if isinstance(found, str) != (kind.kind in ("string", "char")):
        return None
    if isinstance(found, str | bool) or str(kind) != "float32":
        return found
    return nearest_float32(found)


def _scalar(value: Any) -> Scalar | None:
    if value.__class__ is not str:
        value = None if is_missing(value) else plain(value)
    return None if isinstance(value, Moment) else value


def themes_of(event: Mapping[str, Any]) -> frozenset[str]:
    """An event's own theme tags: a list of them, or a single one; what is no text is none."""
    return tags_in(event.get("_themes"))


def tags_in(given: Any) -> frozenset[str]:
    """The tags of what stands under `_themes`."""
    if isinstance(given, str):
        return frozenset((given,))
    several = isinstance(given, list | tuple | set | frozenset | np.ndarray)
    return frozenset(tag for tag in given if isinstance(tag, str)) if several else frozenset()


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BREAK = re.compile(r"[._\W]+")


def readable(attribute: str) -> str:
    """An attribute's name as words.

    >>> readable("pos.measurementUnit"), readable("wind_speed")
    ('pos measurement Unit', 'wind speed')
    """
    return _BREAK.sub(" ", _HUMP.sub(" ", attribute))


def text_of(value: Scalar) -> str:
    """A value as the text whose meaning counts; a number without what does not change it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
