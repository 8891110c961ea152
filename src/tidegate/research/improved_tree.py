"""The improved matching tree of SDaaS (section 4.2).

A tree with shared prefixes, as in `tree`, whose conjuncts are ordered by
attribute, and an index over its predicates (`predicate_lists`) that lets one
verdict settle others wherever they stand:

    root ── latitude > 32 ── speed < 50 ── (r2)     latitude > 34 true settles latitude > 32,
         └─ latitude > 34 ── speed > 55 ── (r3)     latitude > 32 false settles latitude > 34

Events go down together. Algorithm 1 of the paper is `grown`; algorithm 2 is
`walk`, and with several workers each walks a part of the tree (definition 9,
`partition`). The paper adds a conjunct to the standing tree; here the first
match after a change grows it anew, because readers take no lock.

Readable, and a reference: `columnar` is the engine to use.
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
from tidegate.matching.events import ArrowEvents, DictEvents, Events
from tidegate.matching.index import IndexEntry, LazySnapshots, Owners, explain_entry, matches_of_pairs
from tidegate.matching.result import Matches
from tidegate.matching.scan import sort_pairs
from tidegate.research.partition import By, check_by, split
from tidegate.research.predicate_lists import Known, Place, PredicateIndex, split_between
from tidegate.research.tree import Branch
from tidegate.research.workers import Workers

Numbered = tuple[int, tuple[Node, ...]]
"""One conjunct of an entry, its predicates in order, after the entry's number."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Definition 8: a root and its predicate lists."""

    root: Branch[Place]
    index: PredicateIndex


@dataclass(frozen=True, slots=True)
class Work:
    """What a walk has cost, each counted once per event."""

    visits: int
    """Predicates that an event came to."""
    verifications: int
    """Predicates that were evaluated; one that stands alone, for the whole batch. To look up a value's place in
    a list counts as one."""
    settled: int
    """Visits whose verdict was known already."""


def conjuncts(entries: Mapping[int, IndexEntry]) -> list[Numbered]:
    """Give every conjunct of every entry, predicates ordered by attribute, operator and value."""
    found = []
    for number, entry in entries.items():
        for terms in entry.alternatives():
            halves = dict.fromkeys(half for term in terms for half in split_between(term))
            found.append((number, tuple(sorted(halves, key=_order))))
    return found


def _order(node: Node) -> tuple[bool, str, str, str]:
    match node:
        case And() | Or() | Not():  # an OR that stayed factored: dear, so last
            return True, "", "", render_node(node)
        case Compare(path, relation, other):
            return False, path_text(path), relation, operand(other, path.type)
    return False, path_text(paths(node)[0]), type(node).__name__, render_node(node)


def grown(rows: Iterable[Numbered]) -> Tree:
    """Grow a tree of conjuncts (algorithm 1)."""
    rows = list(rows)
    index = PredicateIndex.of(term for _, terms in rows for term in terms)
    root: Branch[Place] = Branch()
    for number, terms in rows:
        root.grow((index.places[term] for term in terms), number)
    return Tree(root, index)


def walk(tree: Tree, events: Events) -> tuple[list[tuple[Any, Any]], Work]:
    """Lead all events of a batch down a tree (algorithm 2): pairs in pieces, and what it cost."""
    known: dict[int, Known] = {}
    pieces: list[tuple[Any, Any]] = []
    visits = verifications = settled = 0
    pending = [(tree.root, np.arange(events.size))]
    while pending:
        branch, here = pending.pop()
        for number in branch.ends:
            pieces.append((here, np.full(len(here), number, np.int64)))
        for place, below in branch.below.items():
            if place.list not in known:
                known[place.list] = tree.index.unknown(place.list, events)
            true, asked = known[place.list].verdicts(place, here)
            visits += len(here)
            verifications += asked
            settled += max(0, len(here) - asked)
            on = here[true]
            if len(on):
                pending.append((below, on))
    return pieces, Work(visits, verifications, settled)


@dataclass(frozen=True, slots=True)
class _Grown:
    """A tree, and its parts as they are sent to workers; no parts: it is walked here."""

    tree: Tree
    parts: tuple[bytes, ...]


class ImprovedTreeIndex:
    """Walks the improved tree, here or in some worker processes.

    Workers start at the first match. They take one batch at a time: where several
    threads match, one waits for another.
    """

    def __init__(self, workers: int = 1, by: By = "predicates") -> None:
        check_by(by)
        self._snapshots = LazySnapshots(partial(_planted, workers=workers, by=by))
        self._count, self._by = workers, by
        self._workers = Workers(_unpacked_part, _walked)

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Put and drop entries, and change the owners of others, in one step; the next match grows the tree anew."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: Events) -> Matches:
        """Match a batch."""
        entries, made = self._snapshots.now()
        if self._count == 1:
            pieces, _ = walk(made.tree, events)
        else:
            pieces = self._workers.ask(made.parts, _packed(events))
        return matches_of_pairs(events, *sort_pairs(pieces), entries.__getitem__)

    def work(self, events: Events) -> Work:
        """Say what it costs to match a batch in one process."""
        return walk(self._snapshots.now()[1].tree, events)[1]

    def explain(self, number: int, events: Events | None) -> dict[str, Any]:
        """Say what an entry takes of some events."""
        return explain_entry(self._snapshots.now()[0][number], events)

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""
        entries, made = self._snapshots.now()
        index = made.tree.index
        return {
            "engine": "improved-tree",
            "filters": len(entries),
            "predicates": made.tree.root.size(),
            "distinct": len(index.places),
            "lists": sum(key is not None for key in index.keys),
            "workers": self._count,
            "split": self._by,
        }

    def close(self) -> None:
        """Stop the workers; the next match starts them again."""
        self._workers.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self._count, self._by, self._snapshots)


def _restored(workers: int, by: By, snapshots: LazySnapshots[_Grown]) -> ImprovedTreeIndex:
    made = ImprovedTreeIndex(workers, by)
    made._snapshots = snapshots
    return made


def _planted(entries: Mapping[int, IndexEntry], workers: int, by: By) -> _Grown:
    tree = grown(conjuncts(entries))
    if workers == 1:
        return _Grown(tree, ())
    parts = split(tree.root, workers, by)
    rows = [[(number, tuple(place.node for place in path)) for number, path in part] for part in parts]
    return _Grown(tree, tuple(map(pickle.dumps, rows)))


# What workers do -----------------------------------------------------------------


def _packed(events: Events) -> bytes | list[Mapping[str, Any]]:
    """A batch as it travels to a worker."""
    if isinstance(events, ArrowEvents):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, events.batch.schema) as writer:
            writer.write_batch(events.batch)
        packed: bytes = sink.getvalue().to_pybytes()
        return packed
    assert isinstance(events, DictEvents)
    return list(events.rows)


def _unpacked(packed: bytes | list[Mapping[str, Any]]) -> Events:
    if isinstance(packed, bytes):
        return ArrowEvents(pa.ipc.open_stream(packed).read_next_batch())
    return DictEvents(packed)


def _unpacked_part(part: bytes) -> Tree:
    return grown(pickle.loads(part))


def _walked(tree: Tree, packed: bytes | list[Mapping[str, Any]]) -> tuple[Any, Any]:
    return sort_pairs(walk(tree, _unpacked(packed))[0])


# What it should cost ---------------------------------------------------------------


def cost_bound(conditions: int, values: int, attributes: int, visit_s: float, verify_s: float) -> float:
    """Bound the expected seconds that one event takes in a subtree (formula 2).

    For conjuncts of equalities alone, over `attributes` attributes of `values`
    equally likely values each, `conditions` of them in the subtree; a visit takes
    `visit_s` and a verification `verify_s`. Counted are the predicates that an
    event satisfies on its way down, not the siblings that turn it away.

    The paper prints ln K in lambda, but its proof needs (V(K+1))^(1-lambda) = K+1,
    that is ln(K+1): we take the one that is proved.

    >>> round(cost_bound(1_000, values=10, attributes=4, visit_s=1.0, verify_s=0.0))
    671
    """
    spread = log(values) + log(attributes + 1)
    grows = 1 - log(values) / spread
    visits = 2 * (attributes + 1) * exp(grows * log(conditions)) * spread
    verifications = (attributes + 1) * exp(grows * log(conditions + 1)) * spread
    return visits * visit_s + verifications * verify_s
