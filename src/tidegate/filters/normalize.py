"""Rewrites a typed tree: canonical form, disjunctive form, value sets.

    text -> tree -> NOT pushed inwards -> canonical (equality, `str`)
                                       -> conjuncts (matching, covering)

No rewrite may explode: an OR that would multiply the conjuncts beyond a limit
stays as it is inside a conjunct, to be verified there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard

from tidegate.filters import areas, fuzzy, patterns, sets
from tidegate.filters.membership import SLACK
from tidegate.filters.nodes import (
    FLIPPED,
    OPPOSITE,
    WEIGHT,
    And,
    Between,
    Compare,
    Group,
    In,
    Inside,
    IsNull,
    Item,
    Literal,
    Member,
    Node,
    Not,
    Or,
    Path,
    Pattern,
    Predicate,
    Query,
    Semantic,
    StrLike,
)
from tidegate.filters.render import operand, predicate
from tidegate.filters.sets import ALL, DOMAINS, NONE, Cuts, Domain, ValueSet, domain_of
from tidegate.model import timestamps
from tidegate.model.types import Enum

MAX_CONJUNCTS = 64
"""How many conjuncts a filter may become; beyond, an OR stays factored."""


# Negation ----------------------------------------------------------------------


def push_not_inwards(node: Node, negated: bool = False) -> Node:
    """Give an equal tree without `Not`: predicates carry their negation.

    Exact in three-valued logic: a predicate and its opposite are unknown for
    the same events.
    """
    match node:
        case Not(term):
            return push_not_inwards(term, not negated)
        case And(terms) | Or(terms):
            found: list[Node] = []
            kind = type(node) if not negated else Or if isinstance(node, And) else And
            for term in terms:
                pushed = push_not_inwards(term, negated)
                if isinstance(pushed, kind):
                    found.extend(pushed.terms)
                else:
                    found.append(pushed)
            return found[0] if len(found) == 1 else kind(tuple(found))
    return opposite(node) if negated else node


def opposite(node: Predicate) -> Predicate:
    """Give the predicate that is true where this one is false, and unknown where it is."""
    if isinstance(node, Compare):
        return Compare(node.path, OPPOSITE[node.relation], node.other, node.span)
    return replace(node, negated=not node.negated)


# Canonical form ----------------------------------------------------------------


def canonical(query: Query) -> Query:
    """Give the one query that stands for all that say the same in other words.

    Negation inward, nested ANDs and ORs flat, terms sorted, repeats dropped.
    """
    root, _ = _canonical(push_not_inwards(query.root))
    return Query(root, tuple(sorted(set(query.themes))), query.threshold, query.is_semantic)


def _canonical(node: Node) -> tuple[Node, str]:
    """Give a canonical node and its text: terms are ordered, and told apart, by their texts."""
    if not isinstance(node, And | Or):
        assert not isinstance(node, Not)
        found = canonical_predicate(node)
        return found, predicate(found)
    terms: dict[str, tuple[Node, str]] = {}
    for term in node.terms:
        each, text = _canonical(term)
        # Of an AND of two equal ORs one OR is left, which an OR around it takes in.
        inner = map(_canonical, each.terms) if isinstance(each, type(node)) else [(each, text)]
        terms.update((f"({said})" if isinstance(one, Or) else said, (one, said)) for one, said in inner)
    ordered = sorted(terms)
    if len(ordered) == 1:
        return terms[ordered[0]]
    joined = (" AND " if isinstance(node, And) else " OR ").join(ordered)
    return type(node)(tuple(terms[said][0] for said in ordered)), joined


def canonical_predicate(node: Predicate) -> Predicate:
    """Give the one predicate that stands for all that say the same in another order."""
    match node:
        case Compare(path, relation, Path() as other) if operand(other) < operand(path):
            return Compare(other, FLIPPED[relation], path, node.span)
        case In():
            return replace(node, values=tuple(sorted(set(node.values), key=operand)))
        case Group():
            return _canonical_group(node)
    return node


def _canonical_group(group: Group) -> Group:
    items = tuple(sorted(map(_canonical_item, group.items), key=lambda i: (predicate(i.predicate), i.negated, repr(i))))
    if len(items) == 1:  # its mean, its minimum and any weight are one
        return replace(group, mode="MEAN", items=(replace(items[0], weight=WEIGHT),))
    return replace(group, items=items)


def _canonical_item(item: Item) -> Item:
    """Carry an item's negation outside where it is a degree, inside where it is crisp."""
    inner = item.predicate
    if isinstance(inner, Member):
        return item
    if isinstance(inner, StrLike | Semantic):
        return replace(item, predicate=replace(inner, negated=False), negated=item.negated ^ inner.negated)
    crisp = canonical_predicate(opposite(inner) if item.negated else inner)
    assert isinstance(crisp, Compare | Between | Pattern | In)
    return replace(item, predicate=crisp, negated=False)


# Value sets --------------------------------------------------------------------


def constrained(node: Predicate) -> tuple[Path, ValueSet] | None:
    """Say exactly what a predicate allows its one attribute; None if it has no such set."""
    match node:
        case Compare(path, relation, Literal() as other):
            return path, _value_set(path, other, lambda value: sets.related(relation, value))
        case Compare(path, relation, Path() as other) if path == other:
            known = _known(path)
            return path, known if relation in ("=", "<=", ">=") else ValueSet({})
        case Between(path, Literal() as low, Literal() as high, negated):
            found = _between(path, low, high)
            return path, _negated(path, found, (low, high)) if negated else found
        case In(path, values, negated):
            literals = [value for value in values if isinstance(value, Literal)]
            by_domain: dict[Domain, list[Any]] = {}
            for literal in literals:
                for domain, value in readings(path, literal):
                    by_domain.setdefault(domain, []).append(value)
            found = ValueSet({domain.kind: domain.settle(sets.points(each)) for domain, each in by_domain.items()})
            return path, _negated(path, found, tuple(literals)) if negated else found
        case IsNull(path, negated):
            return path, _anything(path) if negated else ValueSet({}, null=True)
        case Pattern(subject=Path() as path, pattern=Literal()):
            return path, _pattern_set(node)
        case StrLike(path):
            return path, ValueSet({"string": ALL}, tests=frozenset({node}))
    return None


def implied(node: Predicate) -> Iterator[tuple[Path, ValueSet]]:
    """Say what a predicate over several attributes implies for each: its box."""
    if isinstance(node, Group) and not node.negated:
        for path, box in fuzzy.outer_box(node):
            yield path, _numbers(path, box)
        for item in node.items:
            if not isinstance(item.predicate, Member | StrLike | Semantic) and fuzzy.number(item.least) > SLACK:
                found = constrained(opposite(item.predicate) if item.negated else item.predicate)
                if found is not None:
                    yield found
    elif isinstance(node, Inside) and not node.negated:
        longitudes, latitude = areas.bounding_box(node.area.name, area_numbers(node))
        cuts: Cuts = NONE
        for low, high in longitudes:
            cuts = sets.union(cuts, sets.between(low, high))
        yield node.longitude, _numbers(node.longitude, cuts)
        yield node.latitude, _numbers(node.latitude, sets.between(*latitude))
    elif isinstance(node, Compare) and isinstance(node.other, Path):
        yield node.path, _known(node.path)
        yield node.other, _known(node.other)


def area_numbers(node: Inside) -> tuple[float, ...]:
    """The numbers of an area."""
    return tuple(fuzzy.number(n) for n in node.area.numbers)


def _domains(path: Path) -> Iterable[Domain]:
    return DOMAINS.values() if path.type is None else (domain_of(path.type),)


def _known(path: Path) -> ValueSet:
    """Every value that compares with others of its kind."""
    return ValueSet({d.kind: d.settle(ALL) for d in _domains(path) if d.kind != "other"})


def _anything(path: Path) -> ValueSet:
    """Every value that is not null."""
    return ValueSet({d.kind: d.settle(ALL) for d in _domains(path)})


def _numbers(path: Path, cuts: Cuts) -> ValueSet:
    """Numbers of either kind."""
    return ValueSet({d.kind: d.settle(cuts) for d in _domains(path) if d.kind in ("int", "float")})


_MEETS = {
    "bool": ("bool", "int"),
    "int": ("bool", "int", "float"),
    "float": ("int", "float"),
    "string": ("string",),
    "time": ("time",),
}
"""Which kinds of value a literal compares with, where no schema says."""


def readings(path: Path, literal: Literal) -> list[tuple[Domain, object]]:
    """What a literal means for each kind of value that its field may have."""
    if path.type is not None:
        domain = domain_of(path.type)
        if isinstance(path.type, Enum) and literal.kind == "string":
            return [(domain, path.type.labels.index(str(literal.value)))]
        return [(domain, literal.value)]
    found: list[tuple[Domain, object]] = [(DOMAINS[kind], literal.value) for kind in _MEETS[literal.kind]]
    if literal.kind == "string" and (micros := timestamps.from_text(str(literal.value))) is not None:
        found.append((DOMAINS["time"], micros))
    return found


def _value_set(path: Path, literal: Literal, make: Callable[[Any], Cuts]) -> ValueSet:
    return ValueSet({domain.kind: domain.settle(make(value)) for domain, value in readings(path, literal)})


def _between(path: Path, low: Literal, high: Literal) -> ValueSet:
    above = _value_set(path, low, lambda value: sets.related(">=", value))
    below = _value_set(path, high, lambda value: sets.related("<=", value))
    return above.intersect(below)


def _negated(path: Path, found: ValueSet, literals: tuple[Literal, ...]) -> ValueSet:
    """All other values of the kinds that compare with every literal."""
    kinds = [{domain.kind: domain for domain, _ in readings(path, literal)} for literal in literals]
    shared = {kind: domain for kind, domain in kinds[0].items() if all(kind in other for other in kinds)}
    return ValueSet({kind: d.settle(sets.invert(found.cuts.get(kind, NONE))) for kind, d in shared.items()})


def _pattern_set(node: Pattern) -> ValueSet:
    assert isinstance(node.pattern, Literal)
    text = str(node.pattern.value)
    if node.operator == "LIKE":
        exact, prefix = patterns.like_exact(text), patterns.like_prefix(text)
        if exact is not None or prefix is not None:
            cuts = sets.related("=", exact) if exact is not None else sets.prefixed(prefix or "")
            return ValueSet({"string": sets.invert(cuts) if node.negated else cuts})
    return ValueSet({"string": ALL}, tests=frozenset({node}))


# Disjunctive form --------------------------------------------------------------


@dataclass(frozen=True)
class Conjunct:
    """One alternative of a filter: all of its predicates, and ORs kept factored."""

    terms: tuple[Node, ...]

    @cached_property
    def exact(self) -> dict[Path, ValueSet]:
        """What its predicates over one attribute allow each attribute to be."""
        return _intersections(pair for term in self.terms if _is_predicate(term) if (pair := constrained(term)))

    @cached_property
    def rest(self) -> tuple[Node, ...]:
        """What no value set says: fields against fields, groups, areas, factored ORs."""
        return tuple(term for term in self.terms if not _is_predicate(term) or constrained(term) is None)

    @cached_property
    def necessary(self) -> dict[Path, ValueSet]:
        """What every match is among: the exact sets, cut by the boxes of the rest."""
        boxes = (pair for term in self.rest if _is_predicate(term) for pair in implied(term))
        return _intersections(boxes, dict(self.exact))

    @cached_property
    def meant(self) -> frozenset[Semantic]:
        """What is matched by meaning, all of it together: with a predicate more an event may fit better."""
        return frozenset(term for term in self.terms if isinstance(term, Semantic) and not term.negated)

    @cached_property
    def is_empty(self) -> bool:
        """Whether nothing can match it, as far as value sets tell."""
        return any(found.is_empty() for found in self.necessary.values())


def _is_predicate(node: Node) -> TypeGuard[Predicate]:
    return not isinstance(node, And | Or | Not)


def _intersections(
    pairs: Iterable[tuple[Path, ValueSet]], start: dict[Path, ValueSet] | None = None
) -> dict[Path, ValueSet]:
    found = {path: [values] for path, values in (start or {}).items()}
    for path, values in pairs:
        found.setdefault(path, []).append(values)
    return {path: _intersection(each) for path, each in found.items()}


def _intersection(found: list[ValueSet]) -> ValueSet:
    """Intersect two by two, so that a thousand sets of many cuts take no quadratic time."""
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=False)
        found = [one.intersect(other) for one, other in pairs] + found[len(found) & ~1 :]
    return found[0]


@dataclass(frozen=True)
class Normal:
    """A filter as alternatives; none of them: it matches nothing."""

    conjuncts: tuple[Conjunct, ...]

    @property
    def is_everything(self) -> bool:
        """Whether it matches every event."""
        return any(not conjunct.terms for conjunct in self.conjuncts)

    @property
    def is_nothing(self) -> bool:
        """Whether it matches no event."""
        return not self.conjuncts

    @property
    def is_factored(self) -> bool:
        """Whether an OR was kept because it would have multiplied too much."""
        return any(isinstance(term, Or) for conjunct in self.conjuncts for term in conjunct.terms)


def normalize(root: Node, limit: int = MAX_CONJUNCTS) -> Normal:
    """Give a tree as alternatives, without those that contradict themselves."""
    alternatives = [Conjunct(terms) for terms in to_dnf(push_not_inwards(root), limit)]
    kept = [each for each in alternatives if not each.is_empty]
    return Normal(_merge([_drop_tautologies(each) for each in kept]))


def to_dnf(node: Node, limit: int = MAX_CONJUNCTS) -> list[tuple[Node, ...]]:
    """Give the alternatives of a tree without `Not`, each a tuple of terms."""
    match node:
        case Or(terms):
            found: list[tuple[Node, ...]] = []
            for term in terms:
                each = to_dnf(term, limit)
                if len(found) + len(each) > limit:
                    return [(node,)]
                found += each
            return found
        case And(terms):
            factored: list[Node] = []
            # Predicates first: every alternative has them all.
            product: list[tuple[Node, ...]] = [tuple(term for term in terms if not isinstance(term, And | Or))]
            for term in terms:
                if not isinstance(term, And | Or):
                    continue
                each = to_dnf(term, limit)
                if len(product) * len(each) > limit:
                    factored.append(term)
                else:
                    product = [(*one, *other) for one in product for other in each]
            return [(*one, *factored) for one in product] if factored else product
    return [(node,)]


def _drop_tautologies(conjunct: Conjunct) -> Conjunct:
    """Drop predicates on attributes that may be anything, null included."""
    free = {path for path, found in conjunct.exact.items() if found == _unconstrained(path)}
    if not free:
        return conjunct
    return Conjunct(tuple(t for t in conjunct.terms if not (_is_predicate(t) and _only_path(t) in free)))


def _only_path(node: Node) -> Path | None:
    found = constrained(node) if _is_predicate(node) else None
    return found[0] if found else None


def _unconstrained(path: Path) -> ValueSet:
    return replace(_anything(path), null=True)


def _merge(conjuncts: list[Conjunct]) -> tuple[Conjunct, ...]:
    """Drop alternatives that another one contains, and those said twice."""
    found: list[Conjunct] = []
    for each in conjuncts:
        if not any(_absorbs(other, each) for other in found):
            found = [other for other in found if not _absorbs(each, other)]
            found.append(each)
    if _cover_everything(found):
        return (Conjunct(()),)
    return tuple(found)


def _absorbs(wide: Conjunct, narrow: Conjunct) -> bool:
    return set(wide.terms) <= set(narrow.terms) and (
        wide.meant == narrow.meant and taken_by(wide.terms) == taken_by(narrow.terms) if wide.meant else True
    )


def taken_by(terms: Iterable[Node]) -> frozenset[str]:
    """The attributes that equalities of a conjunct are about: what they name can't mean anything else."""
    equal = (t for t in terms if isinstance(t, Compare) and t.relation == "=" and isinstance(t.other, Literal))
    return frozenset(".".join(map(str, term.path.parts)) for term in equal)


def _cover_everything(conjuncts: list[Conjunct]) -> bool:
    """Find `x IS NULL OR x IS NOT NULL` and its like: alternatives on one attribute that are all of it."""
    whole: dict[Path, ValueSet] = {}
    for each in conjuncts:
        if not each.terms:
            return True
        if each.rest or len(each.exact) != 1:
            continue
        ((path, found),) = each.exact.items()
        joined = whole[path].union(found) if path in whole else found
        if joined is not None:
            whole[path] = joined
            if not joined.tests and joined == _unconstrained(path):
                return True
    return False
