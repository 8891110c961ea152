"""Makes one filter of several where it matches exactly what they match: perfect merging.

Conjunctions that differ in one attribute alone, whose sets there make one range or one
list of values. Anything else stays apart: `a OR b` would be one filter too, and as long as both.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import replace

from tidegate.federation.routes.forest import Node
from tidegate.filters import Filter
from tidegate.filters.nodes import And, Compare, In, Literal, Or, Path, Query, Relation
from tidegate.filters.nodes import Node as Tree
from tidegate.filters.normalize import Conjunct, constrained
from tidegate.filters.render import render
from tidegate.filters.sets import DOMAINS, Cut, Cuts, ValueSet, domain_of, single_values
from tidegate.model.types import Enum

MAX_PARTS = 16
"""How many filters one may be merged from: as many look for a new place when one of them goes."""
SMALL, WORTH = 32, 8
"""A table of fewer roots joins any two of them; in a larger one a union is made of so many at once.

Each filter that joined a union by itself would send the whole of it anew, over every link behind: 28 % of simple
routing's messages instead of 22 %, in `benchmarks/federation`.
"""
MAX_VALUES = 64
"""How long a list of values may be."""
KINDS = ("float", "int", "time", "string", "enum", "bool")
"""The kind of value that a merged predicate is written for; the others must follow from it."""


class Merger:
    """Finds roots that differ in one attribute and adjoin there."""

    def __init__(self, fresh: Callable[[], int]) -> None:
        self._fresh = fresh
        self._sides: dict[int, list[tuple[Hashable, Cut, Path]]] = {}
        self._lines: dict[Hashable, list[tuple[Cut, int]]] = {}
        """Roots that are alike but for one attribute, in the order in which their sets there begin."""
        self._nodes: dict[int, Node] = {}

    def add(self, node: Node) -> None:
        """A node is a root now."""
        self._nodes[node.number] = node
        self._sides[node.number] = sides = list(_sides(node.filter))
        for key, begin, _ in sides:
            insort(self._lines.setdefault(key, []), (begin, node.number))

    def remove(self, node: Node) -> None:
        """A node is no root any more."""
        del self._nodes[node.number]
        for key, begin, _ in self._sides.pop(node.number):
            line = self._lines[key]
            del line[bisect_left(line, (begin, node.number))]
            if not line:
                del self._lines[key]

    def union(self, node: Node) -> Node | None:
        """A new node for a root and those beside it, as far as they adjoin."""
        for key, begin, path in self._sides[node.number]:
            line = self._lines[key]
            at = bisect_left(line, (begin, node.number))
            parts, joined = self._run(node, path, line, at)
            if len(parts) >= self._least() and (found := written(node.filter, path, joined)) is not None:
                return Node(self._fresh(), found, parts=parts)
        return None

    def union_of(self, parts: Collection[Node]) -> Node | None:
        """A new node for just these, which were one until another went."""
        first, *others = parts
        shared = {key for key, _, _ in _sides(first.filter)}
        for each in others:
            shared &= {key for key, _, _ in _sides(each.filter)}
        for path in (path for key, _, path in _sides(first.filter) if others and key in shared):
            joined: ValueSet | None = _set(first.filter, path)
            for each in others:
                joined = None if joined is None else _joined(path, joined, _set(each.filter, path))
            if joined is not None and (found := written(first.filter, path, joined)) is not None:
                return Node(self._fresh(), found, parts=parts)
        return None

    def _least(self) -> int:
        """Of how many roots a union is made: in a large table it has to save some entries to be worth its message."""
        return 2 if len(self._nodes) < SMALL else WORTH

    def _run(self, node: Node, path: Path, line: list[tuple[Cut, int]], at: int) -> tuple[list[Node], ValueSet]:
        """A root and those beside it, on both sides, whose union with it is a range or a list, and that union."""
        parts, joined, size = [node], _set(node.filter, path), node.size
        for beside in (line[at + 1 : at + MAX_PARTS], reversed(line[max(0, at - MAX_PARTS) : at])):
            for _, number in beside:
                other = self._nodes[number]
                wider = _joined(path, joined, _set(other.filter, path))
                if size + other.size > MAX_PARTS or wider is None or _terms(path, wider) is None:
                    break
                parts, joined, size = [*parts, other], wider, size + other.size
        return parts, joined


def _set(filter_: Filter, path: Path) -> ValueSet:
    return filter_.normal.conjuncts[0].exact[path]


def _sides(filter_: Filter) -> Iterator[tuple[Hashable, Cut, Path]]:
    """For each attribute that may differ: what must be alike, and where the set begins."""
    conjunct = _only_conjunct(filter_)
    if conjunct is None:
        return
    query = filter_.tree
    for path, found in conjunct.exact.items():
        kind = _kind(found)
        if kind is None or found.tests:
            continue
        key = path, frozenset(_others(conjunct, path)), query.themes, query.threshold, kind, found.null
        yield key, found.cuts[kind][0], path


def _only_conjunct(filter_: Filter) -> Conjunct | None:
    conjuncts = filter_.normal.conjuncts
    if len(conjuncts) != 1 or filter_.like_star or any(isinstance(term, Or) for term in conjuncts[0].terms):
        return None
    return conjuncts[0]


def _others(conjunct: Conjunct, path: Path) -> list[Tree]:
    """The terms that say nothing of an attribute alone."""
    return [term for term in conjunct.terms if (found := _constrained(term)) is None or found[0] != path]


def _constrained(term: Tree) -> tuple[Path, ValueSet] | None:
    return None if isinstance(term, And | Or) else constrained(term)  # type: ignore[arg-type]


def _kind(found: ValueSet) -> str | None:
    return next((kind for kind in KINDS if found.cuts.get(kind)), None)


def written(like: Filter, path: Path, joined: ValueSet) -> Filter | None:
    """A filter like another, but with this set for one attribute; None where it can't be said exactly."""
    conjunct, terms = _only_conjunct(like), _terms(path, joined)
    if conjunct is None or terms is None:
        return None
    query = Query(And((*_others(conjunct, path), *terms)), like.tree.themes, like.tree.threshold, like.tree.is_semantic)
    made = Filter(render(query), like.schema)
    return made if _says(made, {**conjunct.exact, path: joined}, conjunct.rest) else None


def _joined(path: Path, one: ValueSet, other: ValueSet) -> ValueSet | None:
    """The union of two sets; whole numbers that follow each other make one range."""
    found = one.union(other)
    if found is None:
        return None
    domains = DOMAINS if path.type is None else {(domain := domain_of(path.type)).kind: domain}
    return replace(found, cuts={kind: domains[kind].settle(cuts) for kind, cuts in found.cuts.items()})


def _says(made: Filter, exact: dict[Path, ValueSet], rest: tuple[Tree, ...]) -> bool:
    """Whether what was written is read as what was meant: else it is not sent."""
    conjunct = _only_conjunct(made)
    if conjunct is None or conjunct.exact.keys() != exact.keys() or set(conjunct.rest) != set(rest):
        return False
    return all(_same(conjunct.exact[path], found) for path, found in exact.items())


def _same(one: ValueSet, other: ValueSet) -> bool:
    return one.within(other) and other.within(one) and one.tests == other.tests


def _terms(path: Path, found: ValueSet) -> list[Tree] | None:
    """Predicates for a set: a range or a list of values; None where it is neither."""
    kind = _kind(found)
    if kind is None or found.null or found.tests:
        return None
    cuts = found.cuts[kind]
    if len(cuts) == 2 and cuts[0][1] != cuts[1][1]:
        return _range(path, kind, cuts)
    values = single_values(cuts, MAX_VALUES)
    return None if values is None else [In(path, tuple(_literal(path, kind, value) for value in values))]


def _range(path: Path, kind: str, cuts: Cuts) -> list[Tree] | None:
    (rank, low, low_side), (end_rank, high, high_side) = cuts
    domain = domain_of(path.type) if path.type is not None else None
    terms: list[Tree] = []
    above: Relation = ">" if low_side else ">="
    below: Relation = "<=" if high_side else "<"
    if not rank and (domain is None or domain.low is None or low != domain.low):
        terms.append(Compare(path, above, _literal(path, kind, low)))
    if not end_rank and (domain is None or domain.high is None or high != domain.high):
        terms.append(Compare(path, below, _literal(path, kind, high)))
    return terms or None


def _literal(path: Path, kind: str, value: object) -> Literal:
    match kind, value:
        case "enum", int() if isinstance(path.type, Enum):
            return Literal(path.type.labels[value], "string")
        case "bool", int():
            return Literal(bool(value), "bool")
        case "time", int():
            return Literal(value, "time")
        case _, str():
            return Literal(value, "string")
        case _, int():
            return Literal(value, "int")
        case _, float():
            return Literal(value, "float")
    raise AssertionError((path, kind, value))
