"""All filters with ~ as arrays of numbers: predicates, conjuncts, and the rest of each alternative.

    filters ──▶ alternatives ──▶ conjuncts ──▶ predicates ──▶ a name and a value, each in the filter's theme

Equal names, predicates and conjuncts share a number. A plan is immutable; `meaning_rows` caches its results for the
tuples of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tidegate.filters.by_meaning import Alternative
from tidegate.filters.meaning import Semantics
from tidegate.filters.membership import SLACK
from tidegate.filters.nodes import EVERYTHING, Group, Node, predicates
from tidegate.filters.thematic import (
    Rivals,
    Thematic,
    ThematicPredicate,
    TupleValue,
    checked,
    company,
    equals,
    number_of,
    readable,
)
from tidegate.matching.index import IndexEntry
from tidegate.matching.tuples import WantedNumbers

Theme = frozenset[str]


@dataclass(frozen=True, slots=True)
class SubscribedNames:
    """The attribute names of predicates in one theme: those with ~, and those that must be equal."""

    theme: Theme
    subscribed: tuple[str, ...]
    """Distinct names with ~ of this theme."""
    soft: Any
    """Index of each name among them; -1: the name must be equal."""
    hard: tuple[str, ...]
    taken: tuple[frozenset[str], ...]
    """Attributes that a name must not match, because an exact predicate of the same conjunct names them."""

    def figures(self, semantics: Semantics, attributes: Sequence[str], of: Theme) -> Any:
        """Return the similarity of each name to some attributes, one line per attribute."""
        similarities = np.zeros((len(attributes), len(self.soft)))
        meant = self.soft >= 0
        if meant.any():
            words = list(map(readable, attributes))
            distinct = list(dict.fromkeys(words))
            places = {word: n for n, word in enumerate(distinct)}
            matrix = checked(semantics.relatedness(self.subscribed, distinct, self.theme, of))
            similarities[:, meant] = matrix[self.soft[meant]].T[[places[word] for word in words]]
        for n in np.flatnonzero(~meant).tolist():
            similarities[:, n] = [attribute == self.hard[n] for attribute in attributes]
        for n, excluded in enumerate(self.taken):
            if excluded:
                similarities[[attribute in excluded for attribute in attributes], n] = 0.0
        return similarities


@dataclass(frozen=True, slots=True)
class SubscribedValues:
    """The values of predicates in one theme."""

    theme: Theme
    subscribed: tuple[str, ...]
    soft: Any
    """Index of each value among the distinct values with ~; -1: the value must be equal."""
    wanted: tuple[ThematicPredicate, ...]
    """One predicate with each value."""
    by_text: Mapping[str, Sequence[int]]
    """The values that must equal a text, by text."""

    def figures(self, semantics: Semantics, values: Sequence[TupleValue], of: Theme) -> Any:
        """Return the similarity of each value to some values of events, one line per value of events."""
        similarities = np.zeros((len(values), len(self.soft)))
        texts = {n: value for n, value in enumerate(values) if isinstance(value, str)}
        meant = np.flatnonzero(self.soft >= 0)
        if texts and len(meant):
            matrix = checked(semantics.relatedness(self.subscribed, list(texts.values()), self.theme, of))
            similarities[np.ix_(np.array(list(texts)), meant)] = matrix[self.soft[meant]].T
        for line, value in enumerate(values):
            if isinstance(value, str):
                similarities[line, self.by_text.get(value, ())] = 1.0
            else:
                similarities[line] = [equals(predicate, value) for predicate in self.wanted]
        return similarities


@dataclass(frozen=True, slots=True)
class MeaningPlan:
    """The filters in the form that the kernels read."""

    names: tuple[SubscribedNames, ...]
    values: tuple[SubscribedValues, ...]
    numbers: WantedNumbers | None
    """Numbers that predicates compare with; None: only texts can match."""
    first_of_name: Any
    """Index of the first predicate of each name; predicates are ordered by name."""
    theme_of_name: Any
    """Predicates of the same theme are rivals."""
    company_of_name: Any
    """Factor on the odds of each name, by the number of rivals in its theme."""
    company_of_value: Any
    value_of: Any
    bound: Any
    """Minimum similarity of each predicate that can be part of a match; infinite for a predicate that is only a rival.
    """
    name_bound: Any
    conjunct_start: Any
    predicate: Any
    """Predicates of each conjunct."""
    need: Any
    """Minimum product of a conjunct's similarities."""
    lone: Mapping[str, int]
    """Conjuncts whose degree the rest of a filter reads, by the name of the attribute that carries it."""
    hard: Mapping[str, str]
    """For each of those, the field without ~ that must be present."""
    alternative_start: Any
    alternative_of: Any
    """Alternatives of each conjunct."""
    number: Any
    """Filter number of each alternative."""
    rest: Any
    """Index of the rest of each alternative in `rests`; -1: none."""
    rests: tuple[Node, ...]
    free: tuple[int, ...]
    """Alternatives without predicates with ~."""
    repeated: bool
    """True if a filter has several alternatives, so that an event may match it twice."""
    graded: frozenset[int]
    """Filters with fuzzy groups, whose degree does not follow from a mapping alone."""

    @property
    def conjuncts(self) -> int:
        """Number of conjuncts."""
        return len(self.need)

    def reachable(self, best: Any) -> tuple[Any, Any]:
        """Return which conjuncts can be reached, and tighter bounds, given each predicate's best similarity to any
        tuple.

        The second array is the minimum similarity of each predicate that can still be part of a match: below it, the
        other predicates of its conjuncts can't make up for it. Infinite if none of its conjuncts can be reached.
        """
        starts, sizes = self.conjunct_start[:-1], np.diff(self.conjunct_start)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs, needed = np.log(best)[self.predicate], np.log(self.need)
            whole = np.add.reduceat(logs, starts) if len(starts) else needed
            alive = (whole > -np.inf) & (whole >= needed - SLACK)
            of_pairs = np.repeat(alive, sizes)
            bounds = np.exp(np.repeat(needed - whole, sizes) + logs)[of_pairs]
        bound = np.full(len(self.bound), np.inf)
        np.minimum.at(bound, self.predicate[of_pairs], bounds * (1 - SLACK))
        return alive, bound

    def list_conjuncts(self, met: Any, alive: Any) -> ConjunctListing:
        """List each reachable conjunct under its rarest predicate."""
        sizes = np.diff(self.conjunct_start)
        conjunct = np.repeat(np.arange(self.conjuncts), sizes)
        predicate = self.predicate[np.lexsort((met[self.predicate], conjunct))]
        some = np.flatnonzero(alive)
        start, of = grouped(predicate[self.conjunct_start[some]], some, len(self.bound))
        return ConjunctListing(start, of.astype(np.int32), predicate)


class ConjunctListing(NamedTuple):
    """Where the kernel finds the conjuncts of a predicate."""

    start: Any
    conjunct: Any
    """Conjuncts listed under each predicate."""
    predicate: Any
    """Predicates of each conjunct, the rarest first."""


def plan_of(entries: Mapping[int, IndexEntry], rivals: Mapping[Theme, Rivals]) -> MeaningPlan:
    """Return the plan of some filters.

    `rivals` has the predicates that they compete with; it is empty if predicates do not compete.
    """
    conjuncts: dict[Thematic, int] = {}
    lone: dict[str, int] = {}
    alternatives: list[tuple[int, int, int]] = []
    rests: dict[Node, int] = {}
    graded = set()
    for number, entry in entries.items():
        parts = entry.filter.by_meaning.parts
        for name, conjunct_of_predicate in parts.lone.items():
            lone[name] = conjuncts.setdefault(conjunct_of_predicate, len(conjuncts))
        for alternative in parts.alternatives:
            meant = -1 if alternative.thematic is None else conjuncts.setdefault(alternative.thematic, len(conjuncts))
            left = -1 if alternative.rest == EVERYTHING else rests.setdefault(alternative.rest, len(rests))
            alternatives.append((number, meant, left))
        if any(map(_is_graded, parts.alternatives)):
            graded.add(number)
    numbers, conjunct, rest = np.array(alternatives, np.int64).reshape(-1, 3).T
    starts, of = grouped(conjunct[conjunct >= 0], np.flatnonzero(conjunct >= 0), len(conjuncts))
    alone = dict(_lone(lone, conjuncts))
    numbered = _predicates(conjuncts, rivals, alone.values())
    return MeaningPlan(
        **numbered,
        lone=lone,
        hard={name: predicate.attribute for name, predicate in alone.items() if not predicate.soft_attribute},
        alternative_start=starts,
        alternative_of=of,
        number=numbers,
        rest=rest,
        rests=tuple(rests),
        free=tuple(np.flatnonzero(conjunct < 0).tolist()),
        repeated=len(alternatives) > len(entries),
        graded=frozenset(graded),
    )


def _lone(lone: Mapping[str, int], conjuncts: Iterable[Thematic]) -> Iterable[tuple[str, ThematicPredicate]]:
    all_conjuncts = list(conjuncts)
    return ((name, all_conjuncts[number].predicates[0]) for name, number in lone.items())


def _is_graded(alternative: Alternative) -> bool:
    return any(isinstance(node, Group) for node in predicates(alternative.rest))


def _predicates(
    conjuncts: Mapping[Thematic, int], rivals: Mapping[Theme, Rivals], lone: Iterable[ThematicPredicate]
) -> dict[str, Any]:
    """Number names, values and predicates; return the fields of the plan that describe them."""
    ordered, name_keys, value_keys = _number_terms(conjuncts, rivals)
    keys: dict[tuple[int, int], int] = {}
    bounds: list[float] = []
    of: list[list[int]] = []
    need: list[float] = []
    for conjunct in conjuncts:
        needed = max(conjunct.threshold - SLACK, 0.0) ** len(conjunct.predicates)
        need.append(needed)
        mine = []
        for p in conjunct.predicates:
            key = (
                name_keys[_name_key(conjunct.themes, p, conjunct.taken)],
                value_keys[_value_key(conjunct.themes, p)][0],
            )
            number = keys.setdefault(key, len(keys))
            if number == len(bounds):
                bounds.append(needed)
            bounds[number] = min(bounds[number], needed)
            mine.append(number)
        of.append(mine)
    for theme in ordered:
        for p in rivals.get(theme, ()):
            key = name_keys[_name_key(theme, p, _NOTHING)], value_keys[_value_key(theme, p)][0]
            if keys.setdefault(key, len(keys)) == len(bounds):
                bounds.append(np.inf)
    pairs = np.array(list(keys), np.int64).reshape(-1, 2)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    bound = np.array(bounds)[order] * (1 - 1e-12)  # rounding must not lose a similarity that just reaches it
    first = np.searchsorted(pairs[order, 0], np.arange(len(name_keys) + 1))
    flat = place[[number for mine in of for number in mine]].astype(np.int32)
    names = tuple(_names(theme, name_keys) for theme in ordered)
    values = tuple(_values(theme, value_keys) for theme in ordered)
    odds = np.array([company(len(rivals.get(theme, ()))) for theme in ordered])
    return {
        "names": names,
        "values": values,
        "numbers": _numbers([p for _, p in value_keys.values()], any(not p.soft_attribute for p in lone)),
        "first_of_name": first,
        "theme_of_name": np.repeat(np.arange(len(names)), [len(names_of_theme.soft) for names_of_theme in names]),
        "company_of_name": np.repeat(odds, [len(names_of_theme.soft) for names_of_theme in names]),
        "company_of_value": np.repeat(odds, [len(values_of_theme.soft) for values_of_theme in values]),
        "value_of": pairs[order, 1],
        "bound": bound,
        "name_bound": np.array([bound[a:b].min() for a, b in pairwise(first.tolist())]),
        "conjunct_start": np.append(0, np.cumsum([len(mine) for mine in of], dtype=np.int64)),
        "predicate": flat,
        "need": np.array(need) * (1 - 1e-12),
    }


_NOTHING: frozenset[str] = frozenset()

_NameKeys = dict[tuple[Any, ...], int]
_ValueKeys = dict[tuple[Any, ...], tuple[int, ThematicPredicate]]


def _number_terms(
    conjuncts: Iterable[Thematic], rivals: Mapping[Theme, Rivals]
) -> tuple[list[Theme], _NameKeys, _ValueKeys]:
    """Return all themes in order, and the numbers of names and values; those of one theme are consecutive."""
    name_keys: _NameKeys = {}
    value_keys: _ValueKeys = {}
    by_theme: dict[Theme, list[tuple[ThematicPredicate, frozenset[str]]]] = {}
    for conjunct in conjuncts:
        by_theme.setdefault(conjunct.themes, []).extend((p, conjunct.taken) for p in conjunct.predicates)
    ordered = sorted(by_theme, key=sorted)
    for theme in ordered:
        for p, excluded in [*by_theme[theme], *((p, _NOTHING) for p in rivals.get(theme, ()))]:
            name_keys.setdefault(_name_key(theme, p, excluded), len(name_keys))
            value_keys.setdefault(_value_key(theme, p), (len(value_keys), p))
    return ordered, name_keys, value_keys


def _name_key(theme: Theme, p: ThematicPredicate, excluded: frozenset[str]) -> tuple[Any, ...]:
    return theme, p.soft_attribute, p.name if p.soft_attribute else p.attribute, excluded


def _value_key(theme: Theme, p: ThematicPredicate) -> tuple[Any, ...]:
    return theme, p.soft_value, p.text if p.soft_value else (isinstance(p.value, str), p.value)


def _names(theme: Theme, keys: Iterable[tuple[Any, ...]]) -> SubscribedNames:
    mine = [key for key in keys if key[0] == theme]
    subscribed, soft = _meant(mine)
    return SubscribedNames(theme, subscribed, soft, tuple(key[2] for key in mine), tuple(key[3] for key in mine))


def _meant(keys: Sequence[tuple[Any, ...]]) -> tuple[tuple[str, ...], Any]:
    """Return the distinct names or values with ~, and the index of each key among them (-1: must be equal)."""
    places: dict[str, int] = {}
    soft = np.array([places.setdefault(key[2], len(places)) if key[1] else -1 for key in keys], np.int64)
    return tuple(places), soft


def _values(theme: Theme, keys: Mapping[tuple[Any, ...], tuple[int, ThematicPredicate]]) -> SubscribedValues:
    mine = [(key, p) for key, (_, p) in keys.items() if key[0] == theme]
    subscribed, soft = _meant([key for key, _ in mine])
    by_text: dict[str, list[int]] = {}
    for n, (_, p) in enumerate(mine):
        if not p.soft_value and isinstance(p.value, str):
            by_text.setdefault(p.value, []).append(n)
    return SubscribedValues(theme, subscribed, soft, tuple(p for _, p in mine), by_text)


def _numbers(predicates: Sequence[ThematicPredicate], named: bool) -> WantedNumbers | None:
    """Return the numbers that predicates compare with; `named`: the presence of a field matters."""
    numbers: set[int | float] = set()
    for p in predicates:
        number = number_of(p.text) if p.soft_value else None if isinstance(p.value, str) else p.value
        if number is not None:
            numbers.add(int(number) if isinstance(number, bool) else number)
    truths = any(p.soft_value and p.text.strip().casefold() in ("true", "false") for p in predicates)
    return frozenset(numbers) if numbers or truths or named else None


def grouped(group: Any, member: Any, groups: int) -> tuple[Any, Any]:
    """Return the offsets of each group, and the members ordered by group."""
    order = np.argsort(group, kind="stable")
    return np.searchsorted(group[order], np.arange(groups + 1)), member[order]
