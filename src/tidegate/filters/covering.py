"""Decides whether one filter matches every event that another filter matches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidegate.filters import areas, fuzzy, membership
from tidegate.filters.evaluate import pattern_test, strlike_test
from tidegate.filters.nodes import (
    Group,
    Inside,
    Item,
    ItemPredicate,
    Literal,
    Member,
    Node,
    Or,
    Path,
    Pattern,
    Query,
    Semantic,
    StrLike,
    predicates,
)
from tidegate.filters.normalize import Conjunct, Normal, area_numbers, taken_by
from tidegate.filters.patterns import default_edits
from tidegate.filters.sets import Cuts, ValueSet, is_subset, single_values


def covers(query: Query, normal: Normal, other: Query, other_normal: Normal, *, competes: bool = True) -> bool:
    """Return True if every event that satisfies `other` satisfies `query`.

    Sound, not complete: False may mean unknown. A broker that gets False forwards more than it must; a wrong True would
    lose events. `competes` says that the degree of a predicate with ~ may depend on the other predicates of its filter.
    """
    if (query.themes, query.threshold) != (other.themes, other.threshold):
        return False
    if normal.is_everything:
        return True
    conjuncts = normal.conjuncts
    if competes and query.is_semantic and _rivals(query.root) != _rivals(other.root):
        conjuncts = tuple(conjunct for conjunct in conjuncts if not any(map(_rivals, conjunct.terms)))
    return all(any(_contains(mine, conjunct) for mine in conjuncts) for conjunct in other_normal.conjuncts)


def _rivals(node: Node) -> frozenset[Semantic]:
    """Return the predicates with ~ of a tree, also negated ones and those in groups."""
    nodes = (inner for outer in predicates(node) for inner in (outer, *_items(outer)))
    return frozenset(replace(inner, negated=False) for inner in nodes if isinstance(inner, Semantic))


def _items(node: Node) -> Iterator[ItemPredicate]:
    return (item.predicate for item in node.items) if isinstance(node, Group) else iter(())


def _contains(outer: Conjunct, inner: Conjunct) -> bool:
    """Return True if the outer conjunct covers the inner one."""
    for path, allowed in outer.exact.items():
        necessary = inner.necessary.get(path)
        if necessary is None or not _within(necessary, allowed):
            return False
    if outer.meant and (outer.meant != inner.meant or not taken_by(outer.terms) <= taken_by(inner.terms)):
        return False  # with other predicates or tuples beside them, the same predicates may get a higher degree
    return all(_follows(term, inner) for term in outer.rest)


def _within(necessary: ValueSet, allowed: ValueSet) -> bool:
    return necessary.within(allowed) and all(_passes(necessary, test) for test in allowed.tests)


def _passes(necessary: ValueSet, test: Pattern | StrLike) -> bool:
    """Return True if every text of a set passes a test."""
    if test in necessary.tests:
        return True
    balls = [other for other in necessary.tests if isinstance(other, StrLike)]
    if isinstance(test, StrLike) and not test.negated and any(_ball_holds(test, other) for other in balls):
        return True
    if necessary.null or {kind for kind, cuts in necessary.cuts.items() if cuts} - {"string"}:
        return False
    texts = single_values(necessary.cuts.get("string", ()))
    if texts is None:
        return False
    check = strlike_test(test) if isinstance(test, StrLike) else pattern_test(test)
    return all(check(text) is (not test.negated) for text in texts)


def _ball_holds(outer: StrLike, inner: StrLike) -> bool:
    """Return True if one edit-distance ball contains another: d(q, q') + k' <= k."""
    from rapidfuzz.distance.Levenshtein import distance

    if inner.negated:
        return False
    assert isinstance(outer.text, Literal)
    assert isinstance(inner.text, Literal)
    budget, other = _budget(outer), _budget(inner)
    if budget is None or other is None:
        return outer.text == inner.text and _least_similarity(outer) <= _least_similarity(inner)
    return distance(str(outer.text.value), str(inner.text.value)) + other <= budget


def _least_similarity(node: StrLike) -> float:
    """Return the minimum similarity of a SIMILARITY bound; NaN for a bound in EDITS, which compares with nothing."""
    similarity = node.bound is not None and node.bound.unit == "SIMILARITY"
    return fuzzy.number(node.bound.number) if similarity and node.bound else float("nan")


def _budget(node: StrLike) -> int | None:
    assert isinstance(node.text, Literal)
    if node.bound is None:
        return default_edits(str(node.text.value))
    return int(fuzzy.number(node.bound.number)) if node.bound.unit == "EDITS" else None


def _follows(term: Node, inner: Conjunct) -> bool:
    """Return True if a term of the outer conjunct is true wherever the inner conjunct is."""
    if term in inner.rest:
        return True
    match term:
        case Group(negated=False):
            if any(_group_holds(term, other) for other in inner.rest if isinstance(other, Group)):
                return True
            return _in_box(term, inner)
        case Inside(negated=False):
            return any(_area_holds(term, other) for other in inner.rest if isinstance(other, Inside))
        case Or(terms):
            from tidegate.filters.normalize import normalize

            return any(_contains(alternative, inner) for option in terms for alternative in normalize(option).conjuncts)
    return False


def _in_box(group: Group, inner: Conjunct) -> bool:
    """Return True if the inner conjunct lies in the inner box of a group."""
    box = fuzzy.inner_box(group)
    return box is not None and all(_numbers_within(inner.necessary.get(path), cuts) for path, cuts in box)


def _numbers_within(necessary: ValueSet | None, cuts: Cuts) -> bool:
    if necessary is None or necessary.null:
        return False
    for kind, mine in necessary.cuts.items():
        if not mine:
            continue
        if kind not in ("int", "float") or not is_subset(mine, cuts):
            return False
    return True


def _area_holds(outer: Inside, inner: Inside) -> bool:
    same_place = (outer.longitude, outer.latitude) == (inner.longitude, inner.latitude)
    return (
        same_place
        and not inner.negated
        and areas.holds(outer.area.name, area_numbers(outer), inner.area.name, area_numbers(inner))
    )


def _group_holds(outer: Group, inner: Group) -> bool:
    """Return True if a group covers another: same attributes and weights, higher memberships, lower thresholds."""
    if inner.negated or len(outer.items) != len(inner.items):
        return False
    if outer.mode != inner.mode and outer.mode != "MEAN":  # a mean is never below a minimum
        return False
    if fuzzy.number(outer.least) > fuzzy.number(inner.least):
        return False
    theirs = {_path(item): item for item in inner.items}
    if len(theirs) < len(inner.items):
        return False
    return all(_path(item) in theirs and _item_holds(item, theirs[_path(item)]) for item in outer.items)


def _path(item: Item) -> Path | Item:
    return item.predicate.path if isinstance(item.predicate, Member) else item


def _item_holds(outer: Item, inner: Item) -> bool:
    if outer == inner:
        return True
    one, other = outer.predicate, inner.predicate
    if not isinstance(one, Member) or not isinstance(other, Member) or outer.negated != inner.negated:
        return False
    if outer.weight != inner.weight or fuzzy.number(outer.least) > fuzzy.number(inner.least):
        return False
    if outer.negated:
        one, other = other, one
    return membership.dominates(one.shape.name, fuzzy.shape_numbers(one), other.shape.name, fuzzy.shape_numbers(other))
