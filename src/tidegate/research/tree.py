"""The matching tree with shared prefixes (Aguilera et al.).

A conjunct is a path from the root: its predicates in the order of their texts, so that conjuncts with the same
beginning share it. All events of a batch descend together; only those that satisfy a predicate continue below it:

    root ── speed > 60 ── vid = 'B17' ── (r1)
                     └── vid = 'C2'  ── (r2)
         └─ vid = 'B17' ── (r3)

Written to be read, as a reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from tidegate.filters.nodes import Node
from tidegate.filters.render import render_node
from tidegate.matching.events import EventBatch
from tidegate.matching.index import IndexEntry, LazySnapshots, Owners, explain_entry, matches_of_pairs
from tidegate.matching.result import Matches
from tidegate.matching.scan import sort_pairs

PredicateKey = TypeVar("PredicateKey")


@dataclass(slots=True)
class TreeBranch(Generic[PredicateKey]):
    """A node of the tree: the predicates below it, and the entries that end here."""

    below: dict[PredicateKey, TreeBranch[PredicateKey]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)

    def grow(self, terms: Iterable[PredicateKey], number: int) -> None:
        """Add a conjunct below this node."""
        node = self
        for term in terms:
            node = node.below.setdefault(term, TreeBranch())
        node.ends.append(number)

    def size(self) -> int:
        """Return the number of predicates below this node."""
        return sum(self.widths())

    def widths(self) -> list[int]:
        """Return the number of predicates on each level below this node."""
        widths = []
        level = list(self.below.values())
        while level:
            widths.append(len(level))
            level = [below for branch in level for below in branch.below.values()]
        return widths


class TreeIndex:
    """Follows each event from the root through the predicates that it satisfies. A match takes no lock."""

    def __init__(self) -> None:
        self._snapshots = LazySnapshots(_build_tree)

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Add, remove and reassign entries in one step; the next match rebuilds the tree."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: EventBatch) -> Matches:
        """Return the matches of a batch."""
        entries, root = self._snapshots.now()
        verdicts: dict[Node, Any] = {}
        pieces: list[tuple[Any, Any]] = []
        pending = [(root, np.arange(events.size))]
        while pending:
            branch, at = pending.pop()
            for number in branch.ends:
                pieces.append((at, np.full(len(at), number, np.int64)))
            for node, below in branch.below.items():
                if node not in verdicts:
                    verdicts[node] = events.holds(node)
                passing = at[verdicts[node][at]]
                if len(passing):
                    pending.append((below, passing))
        return matches_of_pairs(events, *sort_pairs(pieces), entries.__getitem__)

    def explain(self, number: int, events: EventBatch | None) -> dict[str, Any]:
        """Return how many of some events an entry matches."""
        return explain_entry(self._snapshots.now()[0][number], events)

    def close(self) -> None:
        """Do nothing: there are no threads or processes."""

    def describe(self) -> dict[str, Any]:
        """Return the engine's name and sizes."""
        entries, root = self._snapshots.now()
        return {"engine": "tree", "filters": len(entries), "predicates": root.size()}


def _build_tree(entries: Mapping[int, IndexEntry]) -> TreeBranch[Node]:
    root: TreeBranch[Node] = TreeBranch()
    for number, entry in entries.items():
        for terms in entry.alternatives():
            root.grow(sorted(dict.fromkeys(terms), key=render_node), number)
    return root
