"""The multi-level index of the improved tree: attribute, operator, predicate list (SDaaS, section 4.2.2).

Predicates that compare one attribute by one operator with literals of one kind are in one list. A verdict on one of
them decides others:

    speed ── <  ── [ < 30, < 50, < 60 ]      each implies all after it:
          │                                  true decides those after, false those before
          ├─ =  ── { = 30, = 50 }            true: all others are false
          └─ <> ── { <> 30, <> 50 }          false: all others are true

"False" is not the same as "not true": a missing value, or one of another kind, makes a predicate unknown. So a list has
literals of one kind only, which compare with the same values. Other predicates have no list.

If the attribute has a type, the position of an event's value among all literals of a list is looked up once, which
decides the whole list. Otherwise predicates are evaluated one by one as the walk reaches them, and each verdict decides
those that it implies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tidegate.filters.evaluate import comparable
from tidegate.filters.nodes import Between, Compare, ComputedValue, Literal, Node, Path, Relation
from tidegate.filters.normalize import opposite
from tidegate.matching.axis import Axis, kinds_of
from tidegate.matching.events import EventBatch
from tidegate.matching.rows import INCOMPARABLE, MISTYPED, NULL, UNDECIDED, value_range
from tidegate.model import timestamps

ListKey = tuple[Path, Relation, str]
"""Attribute, operator, kind of literal."""


@dataclass(frozen=True, slots=True, eq=False)
class PredicateSlot:
    """The list of a predicate and its position there; one object for all nodes of the tree with this predicate."""

    node: Node
    list: int
    position: int
    """Position in the list; in an ordered list each predicate implies the later ones."""


@dataclass(slots=True)
class PredicateIndex:
    """Every distinct predicate of a tree, in its list."""

    slots: dict[Node, PredicateSlot] = field(default_factory=dict)
    keys: list[ListKey | None] = field(default_factory=list)
    """What the predicates of each list share; None: a predicate without a list."""
    lengths: list[int] = field(default_factory=list)
    searches: list[_Search | None] = field(default_factory=list)

    @classmethod
    def of(cls, predicates: Iterable[Node]) -> PredicateIndex:
        """Build the lists of some predicates."""
        index = cls()
        lists: dict[ListKey, dict[Node, Any]] = {}
        for node in dict.fromkeys(predicates):
            listed = _listed(node)
            if listed is None:
                index._add(None, {node: 0})
            else:
                lists.setdefault(listed[0], {})[node] = listed[1]
        for key, values in lists.items():
            index._add(key, values)
        return index

    def _add(self, key: ListKey | None, values: dict[Node, Any]) -> None:
        # The strictest comes first: < 30 before < 50, but > 50 before > 30.
        downwards = key is not None and key[1] in (">", ">=")
        ordered = sorted(values, key=values.__getitem__, reverse=downwards)
        for position, node in enumerate(ordered):
            self.slots[node] = PredicateSlot(node, len(self.keys), position)
        self.searches.append(None if key is None else _Search.of(key, [values[node] for node in ordered]))
        self.keys.append(key)
        self.lengths.append(len(values))

    def unknown(self, number: int, events: EventBatch) -> ListVerdicts:
        """Return the verdicts of a list for a batch, with nothing decided yet."""
        key = self.keys[number]
        if key is None:
            return _Unlisted(events)
        search = self.searches[number]
        if key[1] in ("=", "<>"):
            return _Hashed(events, search, negated=key[1] == "<>")
        return _Ordered(events, search, self.lengths[number])


def split_between(node: Node) -> tuple[Node, ...]:
    """Return BETWEEN as two comparisons, so that both are in ordered lists."""
    if isinstance(node, Between) and not node.negated:
        return Compare(node.path, ">=", node.low, node.span), Compare(node.path, "<=", node.high, node.span)
    return (node,)


def _listed(node: Node) -> tuple[ListKey, Any] | None:
    """Return a predicate's list and its value there; None if a verdict on it decides no other."""
    match node:
        case Compare(path, relation, Literal() as literal) if not isinstance(path, ComputedValue):
            # Text that is a time compares with texts in one order and, without a schema, with times in another.
            if path.type is None and literal.kind == "string" and timestamps.from_text(str(literal.value)) is not None:
                return None
            return (path, relation, literal.kind), comparable(literal, path.type)
    return None


@dataclass(frozen=True, slots=True)
class _Search:
    """Finds the position of a typed attribute's value among the literals of a list."""

    axis: Axis
    table: Any
    """By code of the axis: the first true position of an ordered list, or the literal that is equal."""

    @classmethod
    def of(cls, key: ListKey, values: Sequence[Any]) -> _Search | None:
        """Build the table for the literals of a list, by position; None if only the predicates can decide."""
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
        elif relation in ("<", "<="):  # true for literals that the value has not reached: the later ones
            table = np.searchsorted(last, codes, side="right").astype(np.int32)
        else:  # true for literals that the value has reached: the later ones, because the largest come first
            table = (len(spans) - np.searchsorted(first[::-1], codes, side="right")).astype(np.int32)
        return cls(axis, table)

    def slots(self, events: EventBatch, incomparable: int, unsettled: int) -> Any:
        """Return the table's entry for each event; a mistyped value is left to the predicates."""
        table = self.table.copy()
        table[[NULL, INCOMPARABLE]], table[MISTYPED] = incomparable, unsettled
        return table[events.codes(self.axis)]


class ListVerdicts(Protocol):
    """The verdicts of one list for the events of a batch; undecided ones are evaluated on request."""

    def verdicts(self, slot: PredicateSlot, at: Any) -> tuple[Any, int]:
        """Return which of some events satisfy a predicate, and how many events were evaluated."""


class _Ordered:
    """A list in which each predicate implies all after it; two bounds per event hold the decided verdicts."""

    def __init__(self, events: EventBatch, search: _Search | None, length: int) -> None:
        self._events = events
        self._low = np.zeros(events.size, np.int32)
        """Predicates before this position are not true."""
        self._high = np.full(events.size, length, np.int32)
        """Predicates from this position on are true."""
        self._searched = 0
        self._is_settled = False
        if search is not None:
            positions = search.slots(events, incomparable=length, unsettled=-1)
            known = positions >= 0
            self._high[known] = self._low[known] = positions[known]
            self._searched = int(known.sum())
            self._is_settled = self._searched == events.size

    def verdicts(self, slot: PredicateSlot, at: Any) -> tuple[Any, int]:
        position = slot.position
        searched, self._searched = self._searched, 0
        true = self._high[at] <= position
        if self._is_settled:
            return true, searched
        unsettled = np.flatnonzero(~true & (self._low[at] <= position))
        if not len(unsettled):
            return true, searched
        evaluated = at[unsettled]
        holding = self._events.holds(slot.node, evaluated)
        self._high[evaluated[holding]] = position
        self._low[evaluated[~holding]] = position + 1
        true[unsettled] = holding
        return true, searched + len(evaluated)


_UNSETTLED, _INCOMPARABLE, _NONE = -1, -2, -3


class _Hashed:
    """A list of = or of <>: once an event equals one literal, all are decided."""

    def __init__(self, events: EventBatch, search: _Search | None, negated: bool) -> None:
        self._events, self._negated = events, negated
        self._equal = np.full(events.size, _UNSETTLED, np.int32)
        """Position of the literal that an event's value equals; `_NONE`: it equals none."""
        self._searched = 0
        if search is not None:
            self._equal = search.slots(events, _INCOMPARABLE, _UNSETTLED)
            self._searched = int((self._equal != _UNSETTLED).sum())
        self._is_settled = self._searched == events.size
        self._differs: dict[int, Any] = {}
        """For each evaluated position, which events differ from its literal."""

    def verdicts(self, slot: PredicateSlot, at: Any) -> tuple[Any, int]:
        position = slot.position
        searched, self._searched = self._searched, 0
        if self._is_settled:
            equal = self._equal[at]
            return (equal != position) & (equal != _INCOMPARABLE) if self._negated else equal == position, searched
        if position not in self._differs:
            self._differs[position] = np.zeros(self._events.size, dtype=bool)
        equal, differs = self._equal[at], self._differs[position][at]
        other = (equal >= 0) & (equal != position) | (equal == _NONE)
        true = differs | other if self._negated else equal == position
        unsettled = np.flatnonzero(~differs & (equal == _UNSETTLED))
        if not len(unsettled):
            return true, searched
        evaluated = at[unsettled]
        holding = self._events.holds(slot.node, evaluated)
        true[unsettled] = holding
        if self._negated:
            self._refute(slot, evaluated[~holding])
        else:
            self._equal[evaluated[holding]] = position
        self._differs[position][evaluated[holding if self._negated else ~holding]] = True
        return true, searched + len(evaluated)

    def _refute(self, slot: PredicateSlot, failed: Any) -> None:
        """Distinguish events that equal the literal of a <> from those that compare with no literal.

        The evaluation has three outcomes; `holds` returns only two of them.
        """
        if len(failed):
            assert isinstance(slot.node, Compare)
            same = self._events.holds(opposite(slot.node), failed)
            self._equal[failed] = np.where(same, slot.position, _INCOMPARABLE)


class _Unlisted:
    """A predicate without a list: evaluated once for the whole batch."""

    def __init__(self, events: EventBatch) -> None:
        self._events = events
        self._verdict: Any = None

    def verdicts(self, slot: PredicateSlot, at: Any) -> tuple[Any, int]:
        evaluated = 0
        if self._verdict is None:
            self._verdict, evaluated = self._events.holds(slot.node), self._events.size
        return self._verdict[at], evaluated
