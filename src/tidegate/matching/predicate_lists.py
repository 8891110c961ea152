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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tidegate.filters.evaluate import comparable
from tidegate.filters.nodes import Between, Compare, Literal, Node, Path, Relation
from tidegate.filters.normalize import opposite
from tidegate.matching.events import Events
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
        for position, node in enumerate(sorted(values, key=values.__getitem__, reverse=downwards)):
            self.places[node] = Place(node, len(self.keys), position)
        self.keys.append(key)
        self.lengths.append(len(values))

    def unknown(self, number: int, events: Events) -> Known:
        """Give a list of which nothing is known yet for a batch."""
        key = self.keys[number]
        if key is None:
            return _Alone(events)
        if key[1] in ("=", "<>"):
            return _Hashed(events, negated=key[1] == "<>")
        return _Ordered(events, self.lengths[number])


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


class Known(Protocol):
    """What is known of one list for the events of a batch."""

    def verdicts(self, place: Place, here: Any) -> tuple[Any, int]:
        """Say which of some events satisfy a predicate, and how many events had to be asked."""


class _Ordered:
    """A list in which each predicate implies all after it: two bounds an event say what is known."""

    def __init__(self, events: Events, length: int) -> None:
        self._events = events
        self._low = np.zeros(events.size, np.int32)
        """Not true before this position."""
        self._high = np.full(events.size, length, np.int32)
        """True from this position on."""

    def verdicts(self, place: Place, here: Any) -> tuple[Any, int]:
        position = place.position
        true = self._high[here] <= position
        unsettled = np.flatnonzero(~true & (self._low[here] <= position))
        if not len(unsettled):
            return true, 0
        asked = here[unsettled]
        held = self._events.holds(place.node, asked)
        self._high[asked[held]] = position
        self._low[asked[~held]] = position + 1
        true[unsettled] = held
        return true, len(asked)


_UNSETTLED, _INCOMPARABLE = -1, -2


class _Hashed:
    """A list of = or of <>: as soon as an event equals one of the literals, all are settled."""

    def __init__(self, events: Events, negated: bool) -> None:
        self._events, self._negated = events, negated
        self._equal = np.full(events.size, _UNSETTLED, np.int32)
        """The position of the literal that an event's value equals."""
        self._differs: dict[int, Any] = {}
        """For each position that was asked: which events were found not to equal it, no more."""

    def verdicts(self, place: Place, here: Any) -> tuple[Any, int]:
        position = place.position
        if position not in self._differs:
            self._differs[position] = np.zeros(self._events.size, dtype=bool)
        equal, differs = self._equal[here], self._differs[position][here]
        true = differs | (equal >= 0) & (equal != position) if self._negated else equal == position
        unsettled = np.flatnonzero(~differs & (equal == _UNSETTLED))
        if not len(unsettled):
            return true, 0
        asked = here[unsettled]
        held = self._events.holds(place.node, asked)
        true[unsettled] = held
        if self._negated:
            self._refute(place, asked[~held])
        else:
            self._equal[asked[held]] = position
        self._differs[position][asked[held if self._negated else ~held]] = True
        return true, len(asked)

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
