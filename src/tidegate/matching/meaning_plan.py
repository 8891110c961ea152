"""All filters with ~ as numbers: predicates, conjuncts, and what is left of each alternative.

    filters ──▶ alternatives ──▶ conjuncts ──▶ predicates ──▶ a name and a value, each in the filter's theme

What is the same is there once. A plan never changes; what it meets in events is remembered by `meaning_rows`.
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
    Predicate,
    Rivals,
    Scalar,
    Thematic,
    checked,
    company,
    equals,
    number_of,
    readable,
)
from tidegate.matching.index import Entry
from tidegate.matching.tuples import Numbers

Theme = frozenset[str]


@dataclass(frozen=True, slots=True)
class Names:
    """The names that are asked for in one theme: what is meant, then what must be equal."""

    theme: Theme
    subscribed: tuple[str, ...]
    """All that is meant in this theme."""
    soft: Any
    """Of each name its place among them; -1: it must be equal."""
    hard: tuple[str, ...]
    taken: tuple[frozenset[str], ...]
    """Attributes that are no match for a name, whatever they mean."""

    def figures(self, semantics: Semantics, attributes: Sequence[str], of: Theme) -> Any:
        """How similar each name is to some attributes: a line an attribute."""
        found = np.zeros((len(attributes), len(self.soft)))
        meant = self.soft >= 0
        if meant.any():
            words = list(map(readable, attributes))
            distinct = list(dict.fromkeys(words))
            places = {word: n for n, word in enumerate(distinct)}
            matrix = checked(semantics.relatedness(self.subscribed, distinct, self.theme, of))
            found[:, meant] = matrix[self.soft[meant]].T[[places[word] for word in words]]
        for n in np.flatnonzero(~meant).tolist():
            found[:, n] = [attribute == self.hard[n] for attribute in attributes]
        for n, taken in enumerate(self.taken):
            if taken:
                found[[attribute in taken for attribute in attributes], n] = 0.0
        return found


@dataclass(frozen=True, slots=True)
class Values:
    """The values that are asked for in one theme."""

    theme: Theme
    subscribed: tuple[str, ...]
    soft: Any
    """Of each value its place among them; -1: it must be equal."""
    wanted: tuple[Predicate, ...]
    """A predicate with each value."""
    by_text: Mapping[str, Sequence[int]]
    """The values that must be equal to a text."""

    def figures(self, semantics: Semantics, given: Sequence[Scalar], of: Theme) -> Any:
        """How similar each value is to some of events: a line a value of events."""
        found = np.zeros((len(given), len(self.soft)))
        texts = {n: value for n, value in enumerate(given) if isinstance(value, str)}
        meant = np.flatnonzero(self.soft >= 0)
        if texts and len(meant):
            matrix = checked(semantics.relatedness(self.subscribed, list(texts.values()), self.theme, of))
            found[np.ix_(np.array(list(texts)), meant)] = matrix[self.soft[meant]].T
        for line, value in enumerate(given):
            if isinstance(value, str):
                found[line, self.by_text.get(value, ())] = 1.0
            else:
                found[line] = [equals(predicate, value) for predicate in self.wanted]
        return found


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for, in the form that the kernels read."""

    names: tuple[Names, ...]
    values: tuple[Values, ...]
    numbers: Numbers | None
    """The numbers that predicates ask for; None: no value but text can be meant."""
    first_of_name: Any
    """Predicates are ordered by name: where those of each begin."""
    theme_of_name: Any
    """Rivals are those of the same theme."""
    company_of_name: Any
    """By how much odds grow with how many rivals there are in the theme of each name."""
    company_of_value: Any
    value_of: Any
    bound: Any
    """Of each predicate the least similarity that can be part of a match; infinite: it is but a rival of others."""
    name_bound: Any
    conjunct_start: Any
    predicate: Any
    """The predicates of each conjunct."""
    need: Any
    """The least product of a conjunct's similarities."""
    lone: Mapping[str, int]
    """The conjuncts whose degrees the rest of filters reads, by the name of the attribute."""
    hard: Mapping[str, str]
    """Of those the field without ~ that must be there."""
    alternative_start: Any
    alternative_of: Any
    """The alternatives of each conjunct."""
    number: Any
    """Of each alternative the number of its filter."""
    rest: Any
    """Of each alternative the place of what is left of it; -1: nothing is."""
    rests: tuple[Node, ...]
    free: tuple[int, ...]
    """Alternatives that nothing is meant by."""
    repeated: bool
    """Whether a filter has several alternatives, so that an event may match it twice."""
    graded: frozenset[int]
    """Filters whose alternatives have degrees that no mapping tells."""

    @property
    def conjuncts(self) -> int:
        """How many there are."""
        return len(self.need)

    def hopes(self, most: Any) -> tuple[Any, Any]:
        """Which conjuncts can be reached by tuples that are at most so similar to each predicate, and by which.

        The least similarity of each predicate that can still be part of a match: what the others of its conjunct
        can't make up for is hopeless. Infinite where no conjunct of it can be reached.
        """
        starts, sizes = self.conjunct_start[:-1], np.diff(self.conjunct_start)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs, least = np.log(most)[self.predicate], np.log(self.need)
            whole = np.add.reduceat(logs, starts) if len(starts) else least
            alive = (whole > -np.inf) & (whole >= least - SLACK)
            of_pairs = np.repeat(alive, sizes)
            wanted = np.exp(np.repeat(least - whole, sizes) + logs)[of_pairs]
        bound = np.full(len(self.bound), np.inf)
        np.minimum.at(bound, self.predicate[of_pairs], wanted * (1 - SLACK))
        return alive, bound

    def listed(self, met: Any, alive: Any) -> Listing:
        """List each conjunct that can be reached under its predicate that is met least often, the first of them."""
        sizes = np.diff(self.conjunct_start)
        conjunct = np.repeat(np.arange(self.conjuncts), sizes)
        predicate = self.predicate[np.lexsort((met[self.predicate], conjunct))]
        some = np.flatnonzero(alive)
        start, of = grouped(predicate[self.conjunct_start[some]], some, len(self.bound))
        return Listing(start, of.astype(np.int32), predicate)


class Listing(NamedTuple):
    """Where to look for conjuncts."""

    start: Any
    conjunct: Any
    """Those that are listed under each predicate."""
    predicate: Any
    """The predicates of each conjunct, the rarest first."""


def plan_of(entries: Mapping[int, Entry], rivals: Mapping[Theme, Rivals]) -> Plan:
    """Make a plan of some filters. `rivals` are what else they compete with: nothing where predicates do not."""
    conjuncts: dict[Thematic, int] = {}
    lone: dict[str, int] = {}
    alternatives: list[tuple[int, int, int]] = []
    rests: dict[Node, int] = {}
    graded = set()
    for number, entry in entries.items():
        parts = entry.filter.by_meaning.parts
        for name, wanted in parts.lone.items():
            lone[name] = conjuncts.setdefault(wanted, len(conjuncts))
        for each in parts.alternatives:
            meant = -1 if each.thematic is None else conjuncts.setdefault(each.thematic, len(conjuncts))
            left = -1 if each.rest == EVERYTHING else rests.setdefault(each.rest, len(rests))
            alternatives.append((number, meant, left))
        if any(map(_is_graded, parts.alternatives)):
            graded.add(number)
    numbers, conjunct, rest = np.array(alternatives, np.int64).reshape(-1, 3).T
    starts, of = grouped(conjunct[conjunct >= 0], np.flatnonzero(conjunct >= 0), len(conjuncts))
    alone = dict(_lone(lone, conjuncts))
    numbered = _predicates(conjuncts, rivals, alone.values())
    return Plan(
        **numbered,
        lone=lone,
        hard={name: each.attribute for name, each in alone.items() if not each.soft_attribute},
        alternative_start=starts,
        alternative_of=of,
        number=numbers,
        rest=rest,
        rests=tuple(rests),
        free=tuple(np.flatnonzero(conjunct < 0).tolist()),
        repeated=len(alternatives) > len(entries),
        graded=frozenset(graded),
    )


def _lone(lone: Mapping[str, int], conjuncts: Iterable[Thematic]) -> Iterable[tuple[str, Predicate]]:
    each = list(conjuncts)
    return ((name, each[number].predicates[0]) for name, number in lone.items())


def _is_graded(each: Alternative) -> bool:
    return any(isinstance(node, Group) for node in predicates(each.rest))


def _predicates(
    conjuncts: Mapping[Thematic, int], rivals: Mapping[Theme, Rivals], lone: Iterable[Predicate]
) -> dict[str, Any]:
    """Number names, values and predicates; those of the same theme and name side by side."""
    name_keys: dict[tuple[Any, ...], int] = {}
    value_keys: dict[tuple[Any, ...], tuple[int, Predicate]] = {}
    keys: dict[tuple[int, int], int] = {}
    bounds: list[float] = []
    of: list[list[int]] = []
    need: list[float] = []
    by_theme: dict[Theme, list[tuple[Predicate, frozenset[str]]]] = {}
    for each in conjuncts:
        by_theme.setdefault(each.themes, []).extend((p, each.taken) for p in each.predicates)
    ordered = sorted(by_theme, key=sorted)
    for theme in ordered:  # names and values of a theme get numbers that follow each other
        for p, taken in [*by_theme[theme], *((p, _NOTHING) for p in rivals.get(theme, ()))]:
            name_keys.setdefault(_name_key(theme, p, taken), len(name_keys))
            value_keys.setdefault(_value_key(theme, p), (len(value_keys), p))
    for each in conjuncts:
        least = max(each.threshold - SLACK, 0.0) ** len(each.predicates)
        need.append(least)
        mine = []
        for p in each.predicates:
            key = name_keys[_name_key(each.themes, p, each.taken)], value_keys[_value_key(each.themes, p)][0]
            number = keys.setdefault(key, len(keys))
            if number == len(bounds):
                bounds.append(least)
            bounds[number] = min(bounds[number], least)
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
    bound = np.array(bounds)[order] * (1 - 1e-12)  # rounding must not lose what just reaches it
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
        "theme_of_name": np.repeat(np.arange(len(names)), [len(each.soft) for each in names]),
        "company_of_name": np.repeat(odds, [len(each.soft) for each in names]),
        "company_of_value": np.repeat(odds, [len(each.soft) for each in values]),
        "value_of": pairs[order, 1],
        "bound": bound,
        "name_bound": np.array([bound[a:b].min() for a, b in pairwise(first.tolist())]),
        "conjunct_start": np.append(0, np.cumsum([len(mine) for mine in of], dtype=np.int64)),
        "predicate": flat,
        "need": np.array(need) * (1 - 1e-12),
    }


_NOTHING: frozenset[str] = frozenset()


def _name_key(theme: Theme, p: Predicate, taken: frozenset[str]) -> tuple[Any, ...]:
    return theme, p.soft_attribute, p.name if p.soft_attribute else p.attribute, taken


def _value_key(theme: Theme, p: Predicate) -> tuple[Any, ...]:
    return theme, p.soft_value, p.text if p.soft_value else (isinstance(p.value, str), p.value)


def _names(theme: Theme, keys: Iterable[tuple[Any, ...]]) -> Names:
    mine = [key for key in keys if key[0] == theme]
    subscribed, soft = _meant(mine)
    return Names(theme, subscribed, soft, tuple(key[2] for key in mine), tuple(key[3] for key in mine))


def _meant(keys: Sequence[tuple[Any, ...]]) -> tuple[tuple[str, ...], Any]:
    """What is meant, each once, and of each key its place there; -1: it must be equal."""
    places: dict[str, int] = {}
    soft = np.array([places.setdefault(key[2], len(places)) if key[1] else -1 for key in keys], np.int64)
    return tuple(places), soft


def _values(theme: Theme, keys: Mapping[tuple[Any, ...], tuple[int, Predicate]]) -> Values:
    mine = [(key, p) for key, (_, p) in keys.items() if key[0] == theme]
    subscribed, soft = _meant([key for key, _ in mine])
    by_text: dict[str, list[int]] = {}
    for n, (_, p) in enumerate(mine):
        if not p.soft_value and isinstance(p.value, str):
            by_text.setdefault(p.value, []).append(n)
    return Values(theme, subscribed, soft, tuple(p for _, p in mine), by_text)


def _numbers(wanted: Sequence[Predicate], named: bool) -> Numbers | None:
    """The numbers that are asked for; `named`: whether it matters that a field is there at all."""
    found: set[int | float] = set()
    for p in wanted:
        number = number_of(p.text) if p.soft_value else None if isinstance(p.value, str) else p.value
        if number is not None:
            found.add(int(number) if isinstance(number, bool) else number)
    truths = any(p.soft_value and p.text.strip().casefold() in ("true", "false") for p in wanted)
    return frozenset(found) if found or truths or named else None


def grouped(group: Any, member: Any, groups: int) -> tuple[Any, Any]:
    """Members by group, and where those of each begin."""
    order = np.argsort(group, kind="stable")
    return np.searchsorted(group[order], np.arange(groups + 1)), member[order]
