"""Perfect merging: replaces several filters by one that matches exactly the same events.

Only conjunctions that differ in a single attribute are merged, and only if the union of their values is one range or
one list. `a OR b` would also be a single filter, but as long as both together.
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
"""Filters that a union may be merged from. When one is removed, all others may have to move."""
SMALL_TABLE, MIN_PARTS = 32, 8
"""A table of fewer roots than `SMALL_TABLE` merges any two of them; a larger one merges at least `MIN_PARTS` at once.

If filters joined a union one by one, each would send the whole union again over every further link: 28 % of the
messages of simple routing instead of 22 %, in `benchmarks/federation`.
"""
MAX_VALUES = 64
"""Values in the list of a merged filter."""
KINDS = ("float", "int", "time", "string", "enum", "bool")
"""Kinds of values, in order of preference: a merged predicate is written for the first kind that a set has."""


class Merger:
    """Finds roots that differ in one attribute only and whose values for it are adjacent."""

    def __init__(self, next_number: Callable[[], int]) -> None:
        """`next_number` returns an unused entry number, for a new union."""
        self._next_number = next_number
        self._sides: dict[int, list[tuple[Hashable, Cut, Path]]] = {}
        self._lines: dict[Hashable, list[tuple[Cut, int]]] = {}
        """Roots that differ in one attribute only, sorted by the lowest value that they allow for it."""
        self._nodes: dict[int, Node] = {}

    def add(self, node: Node) -> None:
        """Add a new root."""
        self._nodes[node.number] = node
        self._sides[node.number] = sides = list(_sides(node.filter))
        for key, begin, _ in sides:
            insort(self._lines.setdefault(key, []), (begin, node.number))

    def remove(self, node: Node) -> None:
        """Remove a node that is no longer a root."""
        del self._nodes[node.number]
        for key, begin, _ in self._sides.pop(node.number):
            line = self._lines[key]
            del line[bisect_left(line, (begin, node.number))]
            if not line:
                del self._lines[key]

    def union(self, node: Node) -> Node | None:
        """Return a new node for the union of a root and its adjacent ones. None: there are too few of them."""
        for key, begin, path in self._sides[node.number]:
            line = self._lines[key]
            position = bisect_left(line, (begin, node.number))
            parts, values = self._adjacent(node, path, line, position)
            if len(parts) >= self._min_parts() and (filter_ := with_values(node.filter, path, values)) is not None:
                return Node(self._next_number(), filter_, parts=parts)
        return None

    def union_of(self, parts: Collection[Node]) -> Node | None:
        """Return a new node for the union of exactly these nodes. None: it can't be written as one filter."""
        first, *others = parts
        shared = {key for key, _, _ in _sides(first.filter)}
        for other in others:
            shared &= {key for key, _, _ in _sides(other.filter)}
        for path in (path for key, _, path in _sides(first.filter) if others and key in shared):
            values: ValueSet | None = _values(first.filter, path)
            for other in others:
                values = None if values is None else _union(path, values, _values(other.filter, path))
            if values is not None and (filter_ := with_values(first.filter, path, values)) is not None:
                return Node(self._next_number(), filter_, parts=parts)
        return None

    def _min_parts(self) -> int:
        """Return how many roots a union needs: in a large table it must save enough entries to be worth a message."""
        return 2 if len(self._nodes) < SMALL_TABLE else MIN_PARTS

    def _adjacent(
        self, node: Node, path: Path, line: list[tuple[Cut, int]], position: int
    ) -> tuple[list[Node], ValueSet]:
        """Return a root with its neighbours on the line, as far as their union is a range or a list; and that union."""
        parts, values, size = [node], _values(node.filter, path), node.size
        above = line[position + 1 : position + MAX_PARTS]
        below = line[max(0, position - MAX_PARTS) : position]
        for neighbours in (above, reversed(below)):
            for _, number in neighbours:
                other = self._nodes[number]
                wider = _union(path, values, _values(other.filter, path))
                if size + other.size > MAX_PARTS or wider is None or _terms(path, wider) is None:
                    break
                parts, values, size = [*parts, other], wider, size + other.size
        return parts, values


def _values(filter_: Filter, path: Path) -> ValueSet:
    return filter_.normal.conjuncts[0].exact[path]


def _sides(filter_: Filter) -> Iterator[tuple[Hashable, Cut, Path]]:
    """Yield each attribute in which a filter may differ from others: their common key, its lowest value, its path.

    Filters with the same key are equal except for the values of that attribute.
    """
    conjunct = _only_conjunct(filter_)
    if conjunct is None:
        return
    query = filter_.tree
    for path, values in conjunct.exact.items():
        kind = _kind(values)
        if kind is None or values.tests:
            continue
        key = path, frozenset(_other_terms(conjunct, path)), query.themes, query.threshold, kind, values.null
        yield key, values.cuts[kind][0], path


def _only_conjunct(filter_: Filter) -> Conjunct | None:
    conjuncts = filter_.normal.conjuncts
    if len(conjuncts) != 1 or filter_.like_star or any(isinstance(term, Or) for term in conjuncts[0].terms):
        return None
    return conjuncts[0]


def _other_terms(conjunct: Conjunct, path: Path) -> list[Tree]:
    """Return the terms that do not constrain just this attribute."""
    return [term for term in conjunct.terms if (constraint := _constrained(term)) is None or constraint[0] != path]


def _constrained(term: Tree) -> tuple[Path, ValueSet] | None:
    return None if isinstance(term, And | Or) else constrained(term)  # type: ignore[arg-type]


def _kind(values: ValueSet) -> str | None:
    return next((kind for kind in KINDS if values.cuts.get(kind)), None)


def with_values(like: Filter, path: Path, values: ValueSet) -> Filter | None:
    """Return a filter like another, but with these values for one attribute. None: it can't be written exactly."""
    conjunct, terms = _only_conjunct(like), _terms(path, values)
    if conjunct is None or terms is None:
        return None
    tree = And((*_other_terms(conjunct, path), *terms))
    query = Query(tree, like.tree.themes, like.tree.threshold, like.tree.is_semantic)
    filter_ = Filter(render(query), like.schema)
    return filter_ if _has_meaning(filter_, {**conjunct.exact, path: values}, conjunct.rest) else None


def _union(path: Path, one: ValueSet, other: ValueSet) -> ValueSet | None:
    """Return the union of two sets; adjacent integers become one range."""
    union = one.union(other)
    if union is None:
        return None
    domains = DOMAINS if path.type is None else {(domain := domain_of(path.type)).kind: domain}
    return replace(union, cuts={kind: domains[kind].settle(cuts) for kind, cuts in union.cuts.items()})


def _has_meaning(filter_: Filter, exact: dict[Path, ValueSet], rest: tuple[Tree, ...]) -> bool:
    """True if a filter, parsed from its text, allows exactly these values and has exactly these other terms."""
    conjunct = _only_conjunct(filter_)
    if conjunct is None or conjunct.exact.keys() != exact.keys() or set(conjunct.rest) != set(rest):
        return False
    return all(_is_same(conjunct.exact[path], values) for path, values in exact.items())


def _is_same(one: ValueSet, other: ValueSet) -> bool:
    return one.within(other) and other.within(one) and one.tests == other.tests


def _terms(path: Path, values: ValueSet) -> list[Tree] | None:
    """Return the predicates for a set that is a range or a list of values. None: it is neither."""
    kind = _kind(values)
    if kind is None or values.null or values.tests:
        return None
    cuts = values.cuts[kind]
    if len(cuts) == 2 and cuts[0][1] != cuts[1][1]:
        return _range(path, kind, cuts)
    singles = single_values(cuts, MAX_VALUES)
    return None if singles is None else [In(path, tuple(_literal(path, kind, value) for value in singles))]


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
