"""The multi-level index of the improved tree: attribute, operator, predicate list (SDaaS, section 4.2.2).

Predicates that compare one attribute by one operator with literals of one kind
stand in one list, and a verdict on one of them settles others:

    speed ── <  ── [ < 30, < 50, < 60 ]      each implies all after it:
          │                                  true settles those after, false those before
          ├─ =  ── { = 30, = 50 }            true: all others are false
          └─ <> ── { <> 30, <> 50 }          false: all others are true

"False" is not "not true": a value that is missing, or of another kind, makes
a predicate unknown. So a list holds literals of one kind only, which compare
with the same values; what has no such list stands alone.

Where the attribute has a type, an event's place among all literals of a list is
looked up once, and settles them all. Else they are verified one by one, as the
walk comes to them, and each verdict settles what it implies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tidegate.filters.evaluate import comparable
from tidegate.filters.nodes import Between, Compare, Literal, Node, Path, Relation
from tidegate.filters.normalize import opposite
from tidegate.matching.axis import Axis, kinds_of
from tidegate.matching.events import Events
from tidegate.matching.rows import INCOMPARABLE, MISTYPED, NULL, UNDECIDED, value_range
from tidegate.model import timestamps

ListKey = tuple[Path, Relation, str]
"""Attribute, operator, kind of literal."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a predicate stands: one object for all nodes of the tree that ask the same."""

    node: Node
    list: int
    position: int
    """In its list; of two in an ordered list the earlier implies the later."""


@dataclass(slots=True)
class PredicateIndex:
    """Every distinct predicate of a tree, in its list."""

    places: dict[Node, Place] = field(default_factory=dict)
    keys: list[ListKey | None] = field(default_factory=list)
    """For each list what its predicates share; None: a predicate that stands alone."""
    lengths: list[int] = field(default_factory=list)
    searches: list[_Search | None] = field(default_factory=list)

    @classmethod
    def of(cls, predicates: Iterable[Node]) -> PredicateIndex:
        """Put each predicate into its list."""
        made = cls()
        lists: dict[ListKey, dict[Node, Any]] = {}
        for node in dict.fromkeys(predicates):
            listed = _listed(node)
            if listed is None:
                made._add(None, {node: 0})
            else:
                lists.setdefault(listed[0], {})[node] = listed[1]
        for key, values in lists.items():
            made._add(key, values)
        return made

    def _add(self, key: ListKey | None, values: dict[Node, Any]) -> None:
        # The tightest first: < 30 before < 50, but > 50 before > 30.
        downwards = key is not None and key[1] in (">", ">=")
        ordered = sorted(values, key=values.__getitem__, reverse=downwards)
        for position, node in enumerate(ordered):
            self.places[node] = Place(node, len(self.keys), position)
        self.searches.append(None if key is None else _Search.of(key, [values[node] for node in ordered]))
        self.keys.append(key)
        self.lengths.append(len(values))

    def unknown(self, number: int, events: Events) -> Known:
        """Give a list of which nothing is known yet for a batch."""
        key = self.keys[number]
        if key is None:
            return _Alone(events)
        search = self.searches[number]
        if key[1] in ("=", "<>"):
            return _Hashed(events, search, negated=key[1] == "<>")
        return _Ordered(events, search, self.lengths[number])


def split_between(node: Node) -> tuple[Node, ...]:
    """Give BETWEEN as the two comparisons that it is, so that both enter an ordered list."""
    if isinstance(node, Between) and not node.negated:
        return Compare(node.path, ">=", node.low, node.span), Compare(node.path, "<=", node.high, node.span)
    return (node,)


def _listed(node: Node) -> tuple[ListKey, Any] | None:
    """Give a predicate's list and its value there; None where no verdict on it says anything of another."""
    match node:
        case Compare(path, relation, Literal() as literal):
            # Text that reads as a time meets texts by one order and, without a schema, moments by another.
            if path.type is None and literal.kind == "string" and timestamps.from_text(str(literal.value)) is not None:
                return None
            return (path, relation, literal.kind), comparable(literal, path.type)
    return None


@dataclass(frozen=True, slots=True)
class _Search:
    """Where the values of a typed attribute stand among the literals of a list."""

    axis: Axis
    table: Any
    """For each code of the axis: of an ordered list from which position on it is true; else which literal it equals."""

    @classmethod
    def of(cls, key: ListKey, values: Sequence[Any]) -> _Search | None:
        """Order the literals of a list, given by position; None where only the predicates themselves can tell."""
        path, relation, _ = key
        kinds = kinds_of(path)
        if path.type is None or not kinds:
            return None
        spans = [value_range(kinds[0], "=" if relation == "<>" else relation, value) for value in values]
        if any(end is UNDECIDED for span in spans for end in span):
            return None
        lows, highs = np.empty(len(spans), object), np.empty(len(spans), object)
        lows[:], highs[:] = [low for low, _ in spans], [high for _, high in spans]
        axis = Axis.of(path, np.full(len(spans), kinds[0]), lows, highs)
        first, last = axis.codes_of(np.full(len(spans), kinds[0]), lows, highs)
        codes = np.arange(axis.size)
        if relation in ("=", "<>"):
            table = np.full(axis.size, _NONE, np.int32)
            for position in range(len(spans)):
                table[first[position] : last[position]] = position
        elif relation in ("<", "<="):  # true of the literals that it has not reached: the later ones
            table = np.searchsorted(last, codes, side="right").astype(np.int32)
        else:  # true of the literals that it has reached: the later ones, since the largest come first
            table = (len(spans) - np.searchsorted(first[::-1], codes, side="right")).astype(np.int32)
        return cls(axis, table)

    def places(self, events: Events, incomparable: int, unsettled: int) -> Any:
        """What the table says of each event; an odd value is left to the predicates."""
        table = self.table.copy()
        table[[NULL, INCOMPARABLE]], table[MISTYPED] = incomparable, unsettled
        return table[events.codes(self.axis)]


class Known(Protocol):
    """What is known of one list for the events of a batch."""

    def verdicts(self, place: Place, here: Any) -> tuple[Any, int]:
        """Say which of some events satisfy a predicate, and how many events had to be asked."""


class _Ordered:
    """A list in which each predicate implies all after it: two bounds an event say what is known."""

    def __init__(self, events: Events, search: _Search | None, length: int) -> None:
        self._events = events
        self._low = np.zeros(events.size, np.int32)
        """Not true before this position."""
        self._high = np.full(events.size, length, np.int32)
        """True from this position on."""
        self._searched = 0
        self._is_settled = False
        if search is not None:
            places = search.places(events, incomparable=length, unsettled=-1)
            known = places >= 0
            self._high[known] = self._low[known] = places[known]
            self._searched = int(known.sum())
            self._is_settled = self._searched == events.size

    def verdicts(self, place: Place, here: Any) -> tuple[Any, int]:
        position = place.position
        searched, self._searched = self._searched, 0
        true = self._high[here] <= position
        if self._is_settled:
            return true, searched
        unsettled = np.flatnonzero(~true & (self._low[here] <= position))
        if not len(unsettled):
            return true, searched
        asked = here[unsettled]
        held = self._events.holds(place.node, asked)
        self._high[asked[held]] = position
        self._low[asked[~held]] = position + 1
        true[unsettled] = held
        return true, searched + len(asked)


_UNSETTLED, _INCOMPARABLE, _NONE = -1, -2, -3


class _Hashed:
    """A list of = or of <>: as soon as an event equals one of the literals, all are settled."""

    def __init__(self, events: Events, search: _Search | None, negated: bool) -> None:
        self._events, self._negated = events, negated
        self._equal = np.full(events.size, _UNSETTLED, np.int32)
        """The position of the literal that an event's value equals; `_NONE`: it equals none of them."""
        self._searched = 0
        if search is not None:
            self._equal = search.places(events, _INCOMPARABLE, _UNSETTLED)
            self._searched = int((self._equal != _UNSETTLED).sum())
        self._is_settled = self._searched == events.size
        self._differs: dict[int, Any] = {}
        """For each position that was asked: which events were found not to equal it, no more."""

    def verdicts(self, place: Place, here: Any) -> tuple[Any, int]:
        position = place.position
        searched, self._searched = self._searched, 0
        if self._is_settled:
            equal = self._equal[here]
            return (equal != position) & (equal != _INCOMPARABLE) if self._negated else equal == position, searched
        if position not in self._differs:
            self._differs[position] = np.zeros(self._events.size, dtype=bool)
        equal, differs = self._equal[here], self._differs[position][here]
        other = (equal >= 0) & (equal != position) | (equal == _NONE)
        true = differs | other if self._negated else equal == position
        unsettled = np.flatnonzero(~differs & (equal == _UNSETTLED))
        if not len(unsettled):
            return true, searched
        asked = here[unsettled]
        held = self._events.holds(place.node, asked)
        true[unsettled] = held
        if self._negated:
            self._refute(place, asked[~held])
        else:
            self._equal[asked[held]] = position
        self._differs[position][asked[held if self._negated else ~held]] = True
        return true, searched + len(asked)

    def _refute(self, place: Place, failed: Any) -> None:
        """Tell events that equal the literal of a <> from those that can't be compared with it, nor with any other.

        One verification with three outcomes; `holds` tells only two.
        """
        if len(failed):
            assert isinstance(place.node, Compare)
            same = self._events.holds(opposite(place.node), failed)
            self._equal[failed] = np.where(same, place.position, _INCOMPARABLE)


class _Alone:
    """A predicate that settles no other: asked once, of the whole batch."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._verdict: Any = None

    def verdicts(self, place: Place, here: Any) -> tuple[Any, int]:
        asked = 0
        if self._verdict is None:
            self._verdict, asked = self._events.holds(place.node), self._events.size
        return self._verdict[here], asked
