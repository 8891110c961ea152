"""The matching tree with shared prefixes (Aguilera et al.).

A conjunct is a path from the root: its predicates in the order of their text,
so that conjuncts that begin alike share their beginning. Events go down
together; only those that satisfy a predicate go on below it:

    root ── speed > 60 ── vid = 'B17' ── (r1)
                     └── vid = 'C2'  ── (r2)
         └─ vid = 'B17' ── (r3)

Readable, and a reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from tidegate.filters.nodes import Node
from tidegate.filters.render import render_node
from tidegate.matching.events import Events
from tidegate.matching.index import IndexEntry, LazySnapshots, Owners, explain_entry, matches_of_pairs
from tidegate.matching.result import Matches
from tidegate.matching.scan import sort_pairs

Key = TypeVar("Key")


@dataclass(slots=True)
class Branch(Generic[Key]):
    """A node of the tree: the predicates below it, and the entries that end here."""

    below: dict[Key, Branch[Key]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)

    def grow(self, terms: Iterable[Key], number: int) -> None:
        """Add a conjunct below this node."""
        here = self
        for term in terms:
            here = here.below.setdefault(term, Branch())
        here.ends.append(number)

    def size(self) -> int:
        """How many predicates stand below this node."""
        return sum(self.widths())

    def widths(self) -> list[int]:
        """How many predicates stand on each level below this node."""
        found = []
        level = list(self.below.values())
        while level:
            found.append(len(level))
            level = [below for branch in level for below in branch.below.values()]
        return found


class TreeIndex:
    """Follows each event from the root through the predicates that it satisfies."""

    def __init__(self) -> None:
        self._snapshots = LazySnapshots(_grown)

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Put and drop entries, and change the owners of others, in one step; the next match grows the tree anew."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: Events) -> Matches:
        """Match a batch."""
        entries, root = self._snapshots.now()
        verdicts: dict[Node, Any] = {}
        pieces: list[tuple[Any, Any]] = []
        pending = [(root, np.arange(events.size))]
        while pending:
            branch, here = pending.pop()
            for number in branch.ends:
                pieces.append((here, np.full(len(here), number, np.int64)))
            for node, below in branch.below.items():
                if node not in verdicts:
                    verdicts[node] = events.holds(node)
                on = here[verdicts[node][here]]
                if len(on):
                    pending.append((below, on))
        return matches_of_pairs(events, *sort_pairs(pieces), entries.__getitem__)

    def explain(self, number: int, events: Events | None) -> dict[str, Any]:
        """Say what an entry takes of some events."""
        return explain_entry(self._snapshots.now()[0][number], events)

    def close(self) -> None:
        """Nothing is held."""

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""
        entries, root = self._snapshots.now()
        return {"engine": "tree", "filters": len(entries), "predicates": root.size()}


def _grown(entries: Mapping[int, IndexEntry]) -> Branch[Node]:
    root: Branch[Node] = Branch()
    for number, entry in entries.items():
        for terms in entry.alternatives():
            root.grow(sorted(dict.fromkeys(terms), key=render_node), number)
    return root
