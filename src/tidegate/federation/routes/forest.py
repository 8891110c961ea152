"""The needed filters of one link as trees: a parent covers its children, and only the roots are requested.

    speed > 10 ─────────┐ requested        vid = 'B17' ─── requested
      ├ speed > 30      │
      │   └ speed > 50  │ not requested: the parent covers it
      └ speed BETWEEN 20 AND 25

Filters do not change, so a parent covers its children for as long as both exist. A new filter is therefore compared
with the roots only, and existing filters move only when their root is removed.

A root may have thousands of children, and a new root may cover thousands of roots. Both cases are handled in steps of
bounded size: a removed root stays requested until its last child has a new parent or is a root itself, and roots that
a new root covers are removed after the new one was added. So the requested filters always match every needed event.
Until the last step they may be more than necessary: `pending` is True, and `work` takes a step.

`Filter.covers` may return False for a filter that is covered, and it need not be transitive. Nothing is lost then: a
filter is only ever replaced by one that is known to cover it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from tidegate.federation.routes.delta import Delta, TableChanges
from tidegate.federation.routes.index import BoxIndex, CoverIndex
from tidegate.filters import Filter

MIN_MOVES, MAX_MOVES = 3, 8
"""Children of a removed root that get a new parent in one step, in a large and in a small table."""
MAX_COMPARISONS = 100_000
"""Comparisons with roots in one step, roughly. It keeps a step under two milliseconds."""
MAX_ABSORBED = 16
"""Roots that become children of a new root in one step."""


class Node:
    """A filter in a tree."""

    __slots__ = ("children", "filter", "number", "owners", "parent", "parts", "size")

    def __init__(self, number: int, filter_: Filter, owners: Iterable[int] = (), parts: Iterable[Node] = ()) -> None:
        self.number = number
        self.filter = filter_
        self.owners = set(owners)
        """Numbers of the needed filters that are equal to it."""
        self.parts = set(parts)
        """This node is exactly the union of these. A union without owners is removed with its first part."""
        self.size: int = sum(part.size for part in self.parts) or 1
        """Number of filters that it was merged from."""
        self.parent: Node | None = None
        self.children: dict[int, Node] = {}

    def add_child(self, child: Node) -> None:
        """Make a node a child of this one."""
        child.parent = self
        self.children[child.number] = child


class Merging(Protocol):
    """Finds roots whose union is one filter."""

    def add(self, node: Node) -> None:
        """Add a new root."""

    def remove(self, node: Node) -> None:
        """Remove a node that is no longer a root."""

    def union(self, node: Node) -> Node | None:
        """Return a new node for the union of a root and others, which are its parts. None: there is no such union."""

    def union_of(self, parts: Collection[Node]) -> Node | None:
        """Return a new node for the union of exactly these nodes. None: it can't be written as one filter."""


class Forest:
    """Requests the filters that no other filter covers; with `merging`, also exact unions in place of their parts."""

    floods = False

    def __init__(self, merging: Merging | None = None, index: CoverIndex | None = None) -> None:
        self._merging = merging
        self._index = BoxIndex() if index is None else index
        self._changes = TableChanges()
        self._nodes: dict[Filter, Node] = {}
        self._owned: dict[int, Node] = {}
        self._roots: dict[int, Node] = {}
        self._leaving: dict[Node, None] = {}
        """Removed roots. Each stays requested until all of its children have moved."""
        self._absorbing: dict[Node, Iterator[int]] = {}
        """New roots, each with the numbers of the older roots that it may cover and that were not compared yet."""
        self._merge_candidates: deque[Node] = deque()
        """New roots that were not yet compared with others for a union."""
        self._absorb_budget = 0
        """How many older roots may still be compared with a new one in this step."""

    @property
    def pending(self) -> bool:
        """True if more filters are requested than necessary: `work` then has something to do."""
        return bool(self._leaving or self._absorbing)

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:
        """Add and remove needed filters. Returns the change of the requested ones.

        Only a bounded number of children of removed roots move at once; `work` moves the others.
        """
        self._absorb_budget = MAX_ABSORBED * max(1, len(put))
        new: dict[int, Node] = {}
        for number, filter_ in put.items():
            node = self._nodes.get(filter_)
            if node is None:
                node = new[number] = self._nodes[filter_] = Node(number, filter_)
            elif node in self._leaving:
                new[node.number] = node
            node.owners.add(number)
            self._owned[number] = node
        for _, node in sorted(new.items()):  # before any removal, so that children of removed roots can move there
            self._insert(node)
        drop = list(drop)
        for number in drop:
            node = self._owned.pop(number)
            node.owners.discard(number)
            if not node.owners and not node.parts:
                self._remove(node)
        self._take_step(max(1, len(drop)) * self._max_moves())
        return self._changes.take()

    def work(self) -> Delta:
        """Do one pending step. Returns the change of the requested filters, which may be empty."""
        self._absorb_budget = MAX_ABSORBED
        self._take_step(self._max_moves())
        return self._changes.take()

    def _max_moves(self) -> int:
        return max(MIN_MOVES, min(MAX_MOVES, MAX_COMPARISONS // (len(self._index) + 1)))

    def _remove(self, node: Node) -> None:
        """Remove a node without owners. Its children move to its parent; a root first waits until they have moved."""
        parent, children = node.parent, node.children
        if parent is None:
            self._remove_root(node)
            self._leaving[node] = None
            return
        del self._nodes[node.filter], parent.children[node.number]
        node.parent = None
        for child in children.values():
            child.parent = parent
        parent.children.update(children)
        if node in parent.parts:
            rest, parent.parts = parent.parts - {node}, set()
            if not parent.owners:  # no longer the union of its parts, and not needed itself
                self._shrink(parent, rest)

    def _shrink(self, union: Node, rest: set[Node]) -> None:
        """Replace a union that has lost a part by the union of the other parts, if that is one filter."""
        smaller = self._merging.union_of(rest) if self._merging is not None and union.parent is None else None
        if smaller is not None and smaller.filter == union.filter:
            union.parts, union.size = rest, smaller.size
            return
        if smaller is None or smaller.filter in self._nodes:
            self._remove(union)
            return
        self._nodes[smaller.filter] = smaller
        for part in rest:
            del union.children[part.number]
            smaller.add_child(part)
        self._remove(union)
        self._insert(smaller)

    def _take_step(self, moves: int) -> None:
        """Do a part of the pending work: at most `moves` children get a new parent.

        The last removed root comes first. It is often small, and then finished within the change that removed it.
        """
        while self._leaving and moves > 0:
            node = next(reversed(self._leaving))
            while node.children and moves > 0:
                _, child = node.children.popitem()  # the newest first: it may be the replacement of the node
                child.parent = None
                self._insert(child)
                moves -= 1
            self._merge()
            if not node.children and node in self._leaving:  # a merge may have restored it as a union
                del self._leaving[node], self._nodes[node.filter]
                self._changes.remove(node.number)
        self._merge()
        if self._absorbing:
            self._absorb(next(reversed(self._absorbing)))

    def _insert(self, node: Node) -> None:
        """Make a node a child of a root that covers it, or else a root, whose children are the roots that it covers."""
        is_requested = node in self._leaving
        if is_requested:
            del self._leaving[node]
        covering = self._index.find_covering(node.filter)
        if covering is not None:
            self._roots[covering].add_child(node)
            if is_requested:
                self._changes.remove(node.number)
            return
        self._absorbing[node] = self._index.candidates(node.filter)
        self._add_root(node, is_requested)
        self._absorb(node)
        self._merge_candidates.append(node)

    def _absorb(self, node: Node) -> None:
        """Make a bounded number of the older roots that a new root covers its children."""
        is_done = self._roots.get(node.number) is not node
        if not is_done:
            budget = self._absorb_budget
            older = sorted(islice(self._absorbing[node], budget))
            self._absorb_budget -= len(older)
            for root in (self._roots[number] for number in older if number in self._roots and number != node.number):
                if node.filter.covers(root.filter):
                    self._make_child(node, root)
            is_done = len(older) < budget
        if is_done:
            del self._absorbing[node]

    def _merge(self) -> None:
        """Replace new roots and others by their unions, as long as there are any. A union may be merged again."""
        if self._merging is None:
            self._merge_candidates.clear()
        while self._merging is not None and self._merge_candidates:
            node = self._merge_candidates.popleft()
            union = self._merging.union(node) if self._roots.get(node.number) is node else None
            if union is None:
                continue
            existing = self._nodes.setdefault(union.filter, union)
            if existing is not union:
                if existing not in self._leaving:
                    continue
                existing.parts, existing.size = union.parts, union.size  # a removed root becomes a union
            for part in existing.parts:
                self._make_child(existing, part)
            self._insert(existing)

    def _make_child(self, node: Node, root: Node) -> None:
        self._remove_root(root)
        self._changes.remove(root.number)
        node.add_child(root)

    def _add_root(self, node: Node, is_requested: bool) -> None:
        self._roots[node.number] = node
        self._index.add(node.number, node.filter)
        if not is_requested:
            self._changes.add(node.number, node.filter)
        if self._merging is not None:
            self._merging.add(node)

    def _remove_root(self, node: Node) -> None:
        del self._roots[node.number]
        self._index.remove(node.number)
        if self._merging is not None:
            self._merging.remove(node)
