"""The improved matching tree of SDaaS (section 4.2).

A tree with shared prefixes, as in `tree`, whose conjuncts are sorted by attribute, and an index over its predicates
(`predicate_lists`): the verdict on one predicate decides others anywhere in the tree:

    root ── latitude > 32 ── speed < 50 ── (r2)     latitude > 34 true decides latitude > 32,
         └─ latitude > 34 ── speed > 55 ── (r3)     latitude > 32 false decides latitude > 34

All events of a batch descend together. Algorithm 1 of the paper is `build_tree`, algorithm 2 is `walk`. With several
workers, each walks a part of the tree (definition 9, `partition`). The paper adds a conjunct to the existing tree; here
the first match after a change builds a new tree, because readers take no lock.

Written to be read, as a reference: use `columnar` in production.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import exp, log
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.filters.nodes import And, Compare, Node, Not, Or, paths
from tidegate.filters.render import operand, path_text, render_node
from tidegate.matching.events import ArrowEvents, DictEvents, EventBatch
from tidegate.matching.index import IndexEntry, LazySnapshots, Owners, explain_entry, matches_of_pairs
from tidegate.matching.result import Matches
from tidegate.matching.scan import sort_pairs
from tidegate.research.partition import By, check_by, split
from tidegate.research.predicate_lists import ListVerdicts, PredicateIndex, PredicateSlot, split_between
from tidegate.research.tree import TreeBranch
from tidegate.research.workers import MatchWorkers

Numbered = tuple[int, tuple[Node, ...]]
"""The number of an entry, and the sorted predicates of one of its conjuncts."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Definition 8: a root and its predicate lists."""

    root: TreeBranch[PredicateSlot]
    index: PredicateIndex


@dataclass(frozen=True, slots=True)
class WalkCost:
    """The cost of a walk, summed over all events."""

    visits: int
    """Predicates that events reached."""
    verifications: int
    """Predicates that were evaluated; a predicate without a list counts for the whole batch, and a lookup in a list as
    one.
    """
    settled: int
    """Visits whose verdict was already known."""


def conjuncts(entries: Mapping[int, IndexEntry]) -> list[Numbered]:
    """Return every conjunct of every entry; its predicates are sorted by attribute, operator and value."""
    numbered = []
    for number, entry in entries.items():
        for terms in entry.alternatives():
            halves = dict.fromkeys(half for term in terms for half in split_between(term))
            numbered.append((number, tuple(sorted(halves, key=_order))))
    return numbered


def _order(node: Node) -> tuple[bool, str, str, str]:
    match node:
        case And() | Or() | Not():  # a factored OR is expensive, so it comes last
            return True, "", "", render_node(node)
        case Compare(path, relation, other):
            return False, path_text(path), relation, operand(other, path.type)
    return False, path_text(paths(node)[0]), type(node).__name__, render_node(node)


def build_tree(rows: Iterable[Numbered]) -> Tree:
    """Build a tree from conjuncts (algorithm 1)."""
    rows = list(rows)
    index = PredicateIndex.of(term for _, terms in rows for term in terms)
    root: TreeBranch[PredicateSlot] = TreeBranch()
    for number, terms in rows:
        root.grow((index.slots[term] for term in terms), number)
    return Tree(root, index)


def walk(tree: Tree, events: EventBatch) -> tuple[list[tuple[Any, Any]], WalkCost]:
    """Walk all events of a batch down a tree (algorithm 2); return pieces of pairs, and the cost."""
    verdicts_by_list: dict[int, ListVerdicts] = {}
    pieces: list[tuple[Any, Any]] = []
    visits = verifications = settled = 0
    pending = [(tree.root, np.arange(events.size))]
    while pending:
        branch, at = pending.pop()
        for number in branch.ends:
            pieces.append((at, np.full(len(at), number, np.int64)))
        for slot, below in branch.below.items():
            if slot.list not in verdicts_by_list:
                verdicts_by_list[slot.list] = tree.index.unknown(slot.list, events)
            true, evaluated = verdicts_by_list[slot.list].verdicts(slot, at)
            visits += len(at)
            verifications += evaluated
            settled += max(0, len(at) - evaluated)
            passing = at[true]
            if len(passing):
                pending.append((below, passing))
    return pieces, WalkCost(visits, verifications, settled)


@dataclass(frozen=True, slots=True)
class _BuiltTree:
    """A tree, and its pickled parts for workers; no parts if the tree is walked in this process."""

    tree: Tree
    parts: tuple[bytes, ...]


class ImprovedTreeIndex:
    """Walks the improved tree, in this process or in worker processes.

    Workers start at the first match and take one batch at a time: concurrent matches wait for each other.
    """

    def __init__(self, workers: int = 1, by: By = "predicates") -> None:
        check_by(by)
        self._snapshots = LazySnapshots(partial(_build, workers=workers, by=by))
        self._count, self._by = workers, by
        self._workers = MatchWorkers(_unpacked_part, _walked)

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Add, remove and reassign entries in one step; the next match rebuilds the tree."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: EventBatch) -> Matches:
        """Return the matches of a batch. Raises `MatcherError` if a worker dies."""
        entries, built = self._snapshots.now()
        if self._count == 1:
            pieces, _ = walk(built.tree, events)
        else:
            pieces = self._workers.ask(built.parts, _packed(events))
        return matches_of_pairs(events, *sort_pairs(pieces), entries.__getitem__)

    def work(self, events: EventBatch) -> WalkCost:
        """Return the cost of matching a batch in one process."""
        return walk(self._snapshots.now()[1].tree, events)[1]

    def explain(self, number: int, events: EventBatch | None) -> dict[str, Any]:
        """Return how many of some events an entry matches."""
        return explain_entry(self._snapshots.now()[0][number], events)

    def describe(self) -> dict[str, Any]:
        """Return the engine's name and sizes."""
        entries, built = self._snapshots.now()
        index = built.tree.index
        return {
            "engine": "improved-tree",
            "filters": len(entries),
            "predicates": built.tree.root.size(),
            "distinct": len(index.slots),
            "lists": sum(key is not None for key in index.keys),
            "workers": self._count,
            "split": self._by,
        }

    def close(self) -> None:
        """Stop the workers; the next match starts them again."""
        self._workers.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self._count, self._by, self._snapshots)


def _restored(workers: int, by: By, snapshots: LazySnapshots[_BuiltTree]) -> ImprovedTreeIndex:
    index = ImprovedTreeIndex(workers, by)
    index._snapshots = snapshots
    return index


def _build(entries: Mapping[int, IndexEntry], workers: int, by: By) -> _BuiltTree:
    tree = build_tree(conjuncts(entries))
    if workers == 1:
        return _BuiltTree(tree, ())
    parts = split(tree.root, workers, by)
    rows = [[(number, tuple(slot.node for slot in path)) for number, path in part] for part in parts]
    return _BuiltTree(tree, tuple(map(pickle.dumps, rows)))


# In the workers ------------------------------------------------------------------


def _packed(events: EventBatch) -> bytes | list[Mapping[str, Any]]:
    """Return a batch in the form that is sent to workers."""
    if isinstance(events, ArrowEvents):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, events.batch.schema) as writer:
            writer.write_batch(events.batch)
        packed: bytes = sink.getvalue().to_pybytes()
        return packed
    assert isinstance(events, DictEvents)
    return list(events.rows)


def _unpacked(packed: bytes | list[Mapping[str, Any]]) -> EventBatch:
    if isinstance(packed, bytes):
        return ArrowEvents(pa.ipc.open_stream(packed).read_next_batch())
    return DictEvents(packed)


def _unpacked_part(part: bytes) -> Tree:
    return build_tree(pickle.loads(part))


def _walked(tree: Tree, packed: bytes | list[Mapping[str, Any]]) -> tuple[Any, Any]:
    return sort_pairs(walk(tree, _unpacked(packed))[0])


# Cost model ------------------------------------------------------------------------


def cost_bound(conditions: int, values: int, attributes: int, visit_s: float, verify_s: float) -> float:
    """Return an upper bound of the expected seconds for one event in a subtree (formula 2).

    Valid for conjuncts of equalities over `attributes` attributes with `values` equally likely values each; the subtree
    has `conditions` conjuncts. A visit takes `visit_s`, a verification `verify_s`. Counts the predicates that an event
    satisfies on its path, not the siblings that reject it.

    The paper prints ln K in lambda, but its proof needs (V(K+1))^(1-lambda) = K+1, which is ln(K+1). This uses the
    proved form.

    >>> round(cost_bound(1_000, values=10, attributes=4, visit_s=1.0, verify_s=0.0))
    671
    """
    spread = log(values) + log(attributes + 1)
    grows = 1 - log(values) / spread
    visits = 2 * (attributes + 1) * exp(grows * log(conditions)) * spread
    verifications = (attributes + 1) * exp(grows * log(conditions + 1)) * spread
    return visits * visit_s + verifications * verify_s
