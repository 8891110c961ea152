"""The filters that one link needs, as trees by covering: the roots are forwarded, the others are held back.

    speed > 10 ─────────┐ forwarded        vid = 'B17' ─── forwarded
      ├ speed > 30      │
      │   └ speed > 50  │ held back: each lies under one that covers it
      └ speed BETWEEN 20 AND 25

A filter's place under another is a promise that was true when it was made, and filters do not
change. So only roots are searched, and only when a root goes its children look for a new place.

A root may have thousands of children, and a new one may cover thousands of roots. Both are worked off in
steps of bounded size: the root that goes stays forwarded until the last of its children has a place, and
the roots that a new one covers go after it came. What is forwarded is at every time enough; meanwhile it is
more than it must be. `pending` says so, and `work` takes a step.

`covers` may say no where yes would be right, and need not be transitive: no filter ever leaves
the forwarded ones but for one that covers it, so even then nothing is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from tidegate.federation.routes.delta import Delta, TableChanges
from tidegate.federation.routes.index import BoxIndex, CoverIndex
from tidegate.filters import Filter

FEWEST, MOST = 3, 8
"""How many filters that lost their place look for another in one step, in a large table and in a small one."""
COMPARED = 100_000
"""How many roots they are compared with in all, about: it keeps a step under two milliseconds."""
ABSORBED = 16
"""How many roots new ones take under themselves in one step."""


class Node:
    """A filter in a tree, and who needs it."""

    __slots__ = ("children", "filter", "number", "owners", "parent", "parts", "size")

    def __init__(self, number: int, filter_: Filter, owners: Iterable[int] = (), parts: Iterable[Node] = ()) -> None:
        self.number = number
        self.filter = filter_
        self.owners = set(owners)
        """Numbers of the needed filters that are equal to it."""
        self.parts = set(parts)
        """The nodes of which it is exactly the union; it goes with the first of them, unless somebody needs it."""
        self.size: int = sum(part.size for part in self.parts) or 1
        """How many filters it was merged from."""
        self.parent: Node | None = None
        self.children: dict[int, Node] = {}

    def hold(self, child: Node) -> None:
        """Take a node under this one."""
        child.parent = self
        self.children[child.number] = child


class Merging(Protocol):
    """Finds roots whose union is one filter."""

    def add(self, node: Node) -> None:
        """A node is a root now."""

    def remove(self, node: Node) -> None:
        """A node is no root any more."""

    def union(self, node: Node) -> Node | None:
        """A new node for a root and others, its parts; None where there are no such others."""

    def union_of(self, parts: Collection[Node]) -> Node | None:
        """A new node for just these; None where their union is no one filter."""


class Forest:
    """Forwards what nothing else covers; with `merging` also unions that are exact."""

    floods = False

    def __init__(self, merging: Merging | None = None, index: CoverIndex | None = None) -> None:
        self._merging = merging
        self._index = BoxIndex() if index is None else index
        self._changes = TableChanges()
        self._nodes: dict[Filter, Node] = {}
        self._owned: dict[int, Node] = {}
        self._roots: dict[int, Node] = {}
        self._leaving: dict[Node, None] = {}
        """Roots that nobody needs, forwarded until each of their children has another place."""
        self._absorbing: dict[Node, Iterator[int]] = {}
        """New roots, and the older ones that each may cover."""
        self._planted: deque[Node] = deque()
        """New roots that may make a union with others."""
        self._room = 0
        """How many roots may still go under another in this step."""

    @property
    def pending(self) -> bool:
        """Whether more is forwarded than must be, until some more steps are taken."""
        return bool(self._leaving or self._absorbing)

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:
        """Take needed filters and forget others, in one step; of a great many children a part, the others by `work`."""
        self._room = ABSORBED * max(1, len(put))
        new: dict[int, Node] = {}
        for number, each in put.items():
            node = self._nodes.get(each)
            if node is None:
                node = new[number] = self._nodes[each] = Node(number, each)
            elif node in self._leaving:
                new[node.number] = node
            node.owners.add(number)
            self._owned[number] = node
        for _, node in sorted(new.items()):  # before anything goes, so that what it leaves finds a place there
            self._find_place(node)
        drop = list(drop)
        for number in drop:
            node = self._owned.pop(number)
            node.owners.discard(number)
            if not node.owners and not node.parts:
                self._fell(node)
        self._take_step(max(1, len(drop)) * self._places())
        return self._changes.take()

    def work(self) -> Delta:
        """Take one more step of what is pending."""
        self._room = ABSORBED
        self._take_step(self._places())
        return self._changes.take()

    def _places(self) -> int:
        return max(FEWEST, min(MOST, COMPARED // (len(self._index) + 1)))

    def _fell(self, node: Node) -> None:
        """Nobody needs a node any more: a root leaves when its children have a place."""
        parent, children = node.parent, node.children
        if parent is None:
            self._uproot(node)
            self._leaving[node] = None
            return
        del self._nodes[node.filter], parent.children[node.number]
        node.parent = None
        for child in children.values():
            child.parent = parent
        parent.children.update(children)
        if node in parent.parts:
            rest, parent.parts = parent.parts - {node}, set()
            if not parent.owners:  # it is no union any more, and nobody needs it for itself
                self._shrink(parent, rest)

    def _shrink(self, union: Node, rest: set[Node]) -> None:
        """A union has lost a part: the others make a smaller one, which takes its place."""
        smaller = self._merging.union_of(rest) if self._merging is not None and union.parent is None else None
        if smaller is not None and smaller.filter == union.filter:
            union.parts, union.size = rest, smaller.size
            return
        if smaller is None or smaller.filter in self._nodes:
            self._fell(union)
            return
        self._nodes[smaller.filter] = smaller
        for part in rest:
            del union.children[part.number]
            smaller.hold(part)
        self._fell(union)
        self._find_place(smaller)

    def _take_step(self, places: int) -> None:
        """Work off a part of what is pending, the newest first: it is rather small, and done with its own change."""
        while self._leaving and places > 0:
            node = next(reversed(self._leaving))
            while node.children and places > 0:
                _, child = node.children.popitem()  # the newest first: it may have taken the place of the node
                child.parent = None
                self._find_place(child)
                places -= 1
            self._merge()
            if not node.children and node in self._leaving:  # it may have come back as a union of those that it left
                del self._leaving[node], self._nodes[node.filter]
                self._changes.remove(node.number)
        self._merge()
        if self._absorbing:
            self._absorb(next(reversed(self._absorbing)))

    def _find_place(self, node: Node) -> None:
        """Put a node under a root that covers it; else make it one, above those that it covers."""
        is_forwarded = node in self._leaving
        if is_forwarded:
            del self._leaving[node]
        found = self._index.coverer(node.filter)
        if found is not None:
            self._roots[found].hold(node)
            if is_forwarded:
                self._changes.remove(node.number)
            return
        self._absorbing[node] = self._index.inside(node.filter)
        self._plant(node, is_forwarded)
        self._absorb(node)
        self._planted.append(node)

    def _absorb(self, node: Node) -> None:
        """Take a part of the older roots that a root covers under it."""
        is_done = self._roots.get(node.number) is not node
        if not is_done:
            room = self._room
            older = sorted(islice(self._absorbing[node], room))
            self._room -= len(older)
            for root in (self._roots[each] for each in older if each in self._roots and each != node.number):
                if node.filter.covers(root.filter):
                    self._take_under(node, root)
            is_done = len(older) < room
        if is_done:
            del self._absorbing[node]

    def _merge(self) -> None:
        """Make unions of new roots and others; a union may make one with others again."""
        if self._merging is None:
            self._planted.clear()
        while self._merging is not None and self._planted:
            node = self._planted.popleft()
            union = self._merging.union(node) if self._roots.get(node.number) is node else None
            if union is None:
                continue
            known = self._nodes.setdefault(union.filter, union)
            if known is not union:
                if known not in self._leaving:
                    continue
                known.parts, known.size = union.parts, union.size  # it leaves, and is the same again
            for part in known.parts:
                self._take_under(known, part)
            self._find_place(known)

    def _take_under(self, node: Node, root: Node) -> None:
        self._uproot(root)
        self._changes.remove(root.number)
        node.hold(root)

    def _plant(self, node: Node, is_forwarded: bool) -> None:
        self._roots[node.number] = node
        self._index.add(node.number, node.filter)
        if not is_forwarded:
            self._changes.add(node.number, node.filter)
        if self._merging is not None:
            self._merging.add(node)

    def _uproot(self, node: Node) -> None:
        del self._roots[node.number]
        self._index.remove(node.number)
        if self._merging is not None:
            self._merging.remove(node)
