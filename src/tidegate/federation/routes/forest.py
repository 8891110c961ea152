"""The filters that one link needs, as trees by covering: the roots are forwarded, the others are held back.

    speed > 10 ─────────┐ forwarded        vid = 'B17' ─── forwarded
      ├ speed > 30      │
      │   └ speed > 50  │ held back: each lies under one that covers it
      └ speed BETWEEN 20 AND 25

A filter's place under another is a promise that was true when it was made, and filters do not
change. So only roots are searched, and only when a root goes its children look for a new place.
`covers` may say no where yes would be right, and need not be transitive: no filter ever leaves
the forwarded ones but for one that covers it, so even then nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tidegate.federation.routes.delta import Changes, Delta
from tidegate.federation.routes.index import BoxIndex, CoverIndex
from tidegate.filters import Filter


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


class Forest:
    """Forwards what nothing else covers; with `merging` also unions that are exact."""

    floods = False

    def __init__(self, merging: Merging | None = None, index: CoverIndex | None = None) -> None:
        self._merging = merging
        self._index = BoxIndex() if index is None else index
        self._changes = Changes()
        self._nodes: dict[Filter, Node] = {}
        self._owned: dict[int, Node] = {}
        self._roots: dict[int, Node] = {}

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:
        """Take needed filters and forget others, in one step."""
        new: dict[int, Node] = {}
        for number, each in put.items():
            node = self._nodes.get(each)
            if node is None:
                node = new[number] = self._nodes[each] = Node(number, each)
            node.owners.add(number)
            self._owned[number] = node
        planted = self._placed(new)  # before anything goes, so that what it leaves finds a place there
        homeless: dict[int, Node] = {}
        for number in drop:
            node = self._owned.pop(number)
            node.owners.discard(number)
            if not node.owners and not node.parts:
                homeless.update(self._felled(node))
        self._merge(planted + self._placed(homeless))
        return self._changes.taken()

    def _felled(self, node: Node) -> dict[int, Node]:
        """Take a node out; give those that lose their place by it."""
        del self._nodes[node.filter]
        parent, children = node.parent, node.children
        if parent is None:
            if node.number in self._roots:
                self._uproot(node)
            for child in children.values():
                child.parent = None
            return children
        del parent.children[node.number]
        for child in children.values():
            parent.hold(child)
        if node not in parent.parts:
            return {}
        parent.parts.clear()  # it is no union any more; whoever needs it for itself still does
        return {} if parent.owners else self._felled(parent)

    def _placed(self, homeless: Mapping[int, Node]) -> list[Node]:
        """Find a place for each, under a root or as one; give the new roots. Of equal ones the first is the root."""
        alive = [each for _, each in sorted(homeless.items()) if self._nodes.get(each.filter) is each]
        return [each for each in alive if self._is_root(each)]

    def _is_root(self, node: Node) -> bool:
        """Put a node under a root that covers it; else make it one, above those that it covers."""
        found = self._index.coverer(node.filter)
        if found is not None:
            self._roots[found].hold(node)
            return False
        for number in self._index.covered(node.filter):
            root = self._roots[number]
            self._uproot(root)
            node.hold(root)
        self._plant(node)
        return True

    def _merge(self, planted: list[Node]) -> None:
        """Make unions of new roots and others; a union may make one with others again."""
        while self._merging is not None and planted:
            node = planted.pop(0)
            union = self._merging.union(node) if self._roots.get(node.number) is node else None
            if union is None or union.filter in self._nodes:
                continue
            self._nodes[union.filter] = union
            for part in union.parts:
                self._uproot(part)
                union.hold(part)
            planted += self._placed({union.number: union})

    def _plant(self, node: Node) -> None:
        self._roots[node.number] = node
        self._index.add(node.number, node.filter)
        self._changes.add(node.number, node.filter)
        if self._merging is not None:
            self._merging.add(node)

    def _uproot(self, node: Node) -> None:
        del self._roots[node.number]
        self._index.remove(node.number)
        self._changes.remove(node.number)
        if self._merging is not None:
            self._merging.remove(node)
