"""Rewrites a typed tree: canonical form, disjunctive normal form, value sets.

    text -> tree -> NOT pushed inwards -> canonical (equality, `str`)
                                       -> conjuncts (matching, covering)

No rewrite explodes: an OR that would multiply the conjuncts beyond a limit stays inside a conjunct and is evaluated
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard

from tidegate.expressions.parser import UntypedCall, UntypedConstant, UntypedPath
from tidegate.filters import areas, fuzzy, linear, patterns, sets
from tidegate.filters.membership import SLACK
from tidegate.filters.nodes import (
    FLIPPED,
    OPPOSITE,
    WEIGHT,
    And,
    Between,
    Compare,
    ComputedValue,
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
"""Maximum number of conjuncts of a filter; beyond that, an OR stays factored."""


# Negation ----------------------------------------------------------------------


def push_not_inwards(node: Node, negated: bool = False) -> Node:
    """Return an equal tree without `Not`: predicates carry their negation.

    Exact in three-valued logic: a predicate and its opposite are unknown for the same events.
    """
    match node:
        case Not(term):
            return push_not_inwards(term, not negated)
        case And(terms) | Or(terms):
            pushed_terms: list[Node] = []
            kind = type(node) if not negated else Or if isinstance(node, And) else And
            for term in terms:
                pushed = push_not_inwards(term, negated)
                if isinstance(pushed, kind):
                    pushed_terms.extend(pushed.terms)
                else:
                    pushed_terms.append(pushed)
            return pushed_terms[0] if len(pushed_terms) == 1 else kind(tuple(pushed_terms))
    return opposite(node) if negated else node


def opposite(node: Predicate) -> Predicate:
    """Return the predicate that is true where this one is false, and unknown where this one is unknown."""
    if isinstance(node, Compare):
        return Compare(node.path, OPPOSITE[node.relation], node.other, node.span)
    return replace(node, negated=not node.negated)


# Canonical form ----------------------------------------------------------------


def canonical(query: Query) -> Query:
    """Return the canonical form of a query, which all equal queries share.

    Negation is pushed inwards, nested ANDs and ORs are flattened, terms are sorted, duplicates are dropped.
    """
    root, _ = _canonical(push_not_inwards(query.root))
    return Query(root, tuple(sorted(set(query.themes))), query.threshold, query.is_semantic)


def _canonical(node: Node) -> tuple[Node, str]:
    """Return a canonical node and its text; terms are sorted and deduplicated by their texts."""
    if not isinstance(node, And | Or):
        assert not isinstance(node, Not)
        canonical_node = canonical_predicate(node)
        return canonical_node, predicate(canonical_node)
    terms: dict[str, tuple[Node, str]] = {}
    for term in node.terms:
        canonical_term, text = _canonical(term)
        # An AND of two equal ORs becomes one OR, which is flattened into an OR around it.
        inner = (
            map(_canonical, canonical_term.terms)
            if isinstance(canonical_term, type(node))
            else [(canonical_term, text)]
        )
        terms.update((f"({shown})" if isinstance(part, Or) else shown, (part, shown)) for part, shown in inner)
    ordered = sorted(terms)
    if len(ordered) == 1:
        return terms[ordered[0]]
    joined = (" AND " if isinstance(node, And) else " OR ").join(ordered)
    return type(node)(tuple(terms[shown][0] for shown in ordered)), joined


def canonical_predicate(node: Predicate) -> Predicate:
    """Return the canonical form of a predicate: fields, values and items in a fixed order."""
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
    if len(items) == 1:  # with one item, mode and weight make no difference
        return replace(group, mode="MEAN", items=(replace(items[0], weight=WEIGHT),))
    return replace(group, items=items)


def _canonical_item(item: Item) -> Item:
    """Move an item's negation out of a graded predicate, and into an exact one."""
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
    """Return exactly what a predicate allows its one attribute; None if no value set expresses it.

    A comparison of a linear expression allows a range of its attribute. Any other computed value is as an attribute of
    its own.
    """
    allowed = _constrained(node)
    if allowed is None or not isinstance(allowed[0], ComputedValue):
        return allowed
    return linear.rewritten(allowed[0], allowed[1]) or allowed


def _constrained(node: Predicate) -> tuple[Path, ValueSet] | None:
    match node:
        case Compare(path, relation, Literal() as other):
            return path, _value_set(path, other, lambda value: sets.related(relation, value))
        case Compare(path, relation, Path() as other) if path == other:
            known = _known(path)
            return path, known if relation in ("=", "<=", ">=") else ValueSet({})
        case Between(path, Literal() as low, Literal() as high, negated):
            values_ = _between(path, low, high)
            return path, _negated(path, values_, (low, high)) if negated else values_
        case In(path, values, negated):
            literals = [value for value in values if isinstance(value, Literal)]
            by_domain: dict[Domain, list[Any]] = {}
            for literal in literals:
                for domain, value in readings(path, literal):
                    by_domain.setdefault(domain, []).append(value)
            values_ = ValueSet(
                {
                    domain.kind: domain.settle(sets.points(values_of_domain))
                    for domain, values_of_domain in by_domain.items()
                }
            )
            return path, _negated(path, values_, tuple(literals)) if negated else values_
        case IsNull(path, negated):
            return path, _anything(path) if negated else ValueSet({}, null=True)
        case Pattern(subject=Path() as path, pattern=Literal()):
            return path, _pattern_set(node)
        case StrLike(path):
            return path, ValueSet({"string": ALL}, tests=frozenset({node}))
    return None


def implied(node: Predicate) -> Iterator[tuple[Path, ValueSet]]:
    """Yield what a predicate over several attributes implies for each of them: its bounding box."""
    if isinstance(node, Group) and not node.negated:
        for path, box in fuzzy.outer_box(node):
            yield path, _numbers(path, box)
        for item in node.items:
            if not isinstance(item.predicate, Member | StrLike | Semantic) and fuzzy.number(item.least) > SLACK:
                allowed = constrained(opposite(item.predicate) if item.negated else item.predicate)
                if allowed is not None:
                    yield allowed
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
    elif isinstance(node, Compare) and isinstance(node.path, ComputedValue):
        yield from _near(node.path, node)


def _near(computed: ComputedValue, node: Compare) -> Iterator[tuple[Path, ValueSet]]:
    """Yield the box around the positions that `distance(lon, lat, x, y) < metres` allows."""
    limit, term = node.other, computed.term
    if node.relation not in ("<", "<=", "=") or not isinstance(limit, Literal) or limit.kind not in ("int", "float"):
        return
    match term:
        case UntypedCall(
            "distance", (UntypedPath(x), UntypedPath(y), UntypedConstant(longitude), UntypedConstant(latitude))
        ) if isinstance(longitude, int | float) and isinstance(latitude, int | float):
            metres = max(0.0, fuzzy.number(limit)) * (1 + SLACK) + SLACK
            area = (float(longitude), float(latitude), metres)
            if areas.problem("CIRCLE", area) is None:
                longitudes, latitudes = areas.bounding_box("CIRCLE", area)
                cuts: Cuts = NONE
                for low, high in longitudes:
                    cuts = sets.union(cuts, sets.between(low, high))
                fields = {path.parts: path for path in computed.fields}
                yield fields[x], _numbers(fields[x], cuts)
                yield fields[y], _numbers(fields[y], sets.between(*latitudes))


def area_numbers(node: Inside) -> tuple[float, ...]:
    """Return the numbers of an area."""
    return tuple(fuzzy.number(n) for n in node.area.numbers)


def _domains(path: Path) -> Iterable[Domain]:
    return DOMAINS.values() if path.type is None else (domain_of(path.type),)


def _known(path: Path) -> ValueSet:
    """Return every value that compares with others of its kind."""
    return ValueSet({d.kind: d.settle(ALL) for d in _domains(path) if d.kind != "other"})


def _anything(path: Path) -> ValueSet:
    """Return every value except null."""
    return ValueSet({d.kind: d.settle(ALL) for d in _domains(path)})


def _numbers(path: Path, cuts: Cuts) -> ValueSet:
    """Return integers and floats inside cuts."""
    return ValueSet({d.kind: d.settle(cuts) for d in _domains(path) if d.kind in ("int", "float")})


_MEETS = {
    "bool": ("bool", "int"),
    "int": ("bool", "int", "float"),
    "float": ("int", "float"),
    "string": ("string",),
    "time": ("time",),
}
"""Kinds of value that a literal compares with if there is no schema."""


def readings(path: Path, literal: Literal) -> list[tuple[Domain, object]]:
    """Return the value of a literal in each domain that its field may have."""
    if path.type is not None:
        domain = domain_of(path.type)
        if isinstance(path.type, Enum) and literal.kind == "string":
            return [(domain, path.type.labels.index(str(literal.value)))]
        return [(domain, literal.value)]
    values: list[tuple[Domain, object]] = [(DOMAINS[kind], literal.value) for kind in _MEETS[literal.kind]]
    if literal.kind == "string" and (micros := timestamps.from_text(str(literal.value))) is not None:
        values.append((DOMAINS["time"], micros))
    return values


def _value_set(path: Path, literal: Literal, make: Callable[[Any], Cuts]) -> ValueSet:
    return ValueSet({domain.kind: domain.settle(make(value)) for domain, value in readings(path, literal)})


def _between(path: Path, low: Literal, high: Literal) -> ValueSet:
    above = _value_set(path, low, lambda value: sets.related(">=", value))
    below = _value_set(path, high, lambda value: sets.related("<=", value))
    return above.intersect(below)


def _negated(path: Path, values: ValueSet, literals: tuple[Literal, ...]) -> ValueSet:
    """Return all other values of the kinds that compare with every literal."""
    kinds = [{domain.kind: domain for domain, _ in readings(path, literal)} for literal in literals]
    shared = {kind: domain for kind, domain in kinds[0].items() if all(kind in other for other in kinds)}
    return ValueSet({kind: d.settle(sets.invert(values.cuts.get(kind, NONE))) for kind, d in shared.items()})


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
    """One alternative of a filter: its predicates, and ORs that stay factored."""

    terms: tuple[Node, ...]

    @cached_property
    def exact(self) -> dict[Path, ValueSet]:
        """What the predicates over one attribute allow each attribute to be."""
        return _intersections(pair for term in self.terms if _is_predicate(term) if (pair := constrained(term)))

    @cached_property
    def rest(self) -> tuple[Node, ...]:
        """The terms that no value set expresses: comparisons of two fields, groups, areas, factored ORs."""
        return tuple(term for term in self.terms if not _is_predicate(term) or constrained(term) is None)

    @cached_property
    def necessary(self) -> dict[Path, ValueSet]:
        """Value sets that contain all matching events: the exact sets, cut with the bounding boxes of the rest."""
        computed = [term for term in self.terms if isinstance(term, Compare) and isinstance(term.path, ComputedValue)]
        terms = dict.fromkeys((*self.rest, *computed))
        boxes = (pair for term in terms if _is_predicate(term) for pair in implied(term))
        return _intersections(boxes, dict(self.exact))

    @cached_property
    def meant(self) -> frozenset[Semantic]:
        """The predicates with ~, which are matched together: an additional predicate can raise the degree."""
        return frozenset(term for term in self.terms if isinstance(term, Semantic) and not term.negated)

    @cached_property
    def is_empty(self) -> bool:
        """True if the value sets show that nothing can match."""
        return any(values.is_empty() for values in self.necessary.values())


def _is_predicate(node: Node) -> TypeGuard[Predicate]:
    return not isinstance(node, And | Or | Not)


def _intersections(
    pairs: Iterable[tuple[Path, ValueSet]], start: dict[Path, ValueSet] | None = None
) -> dict[Path, ValueSet]:
    by_path = {path: [values] for path, values in (start or {}).items()}
    for path, values in pairs:
        by_path.setdefault(path, []).append(values)
    return {path: _intersection(several) for path, several in by_path.items()}


def _intersection(several: list[ValueSet]) -> ValueSet:
    """Return the intersection of sets, computed pairwise: a thousand sets with many cuts take no quadratic time."""
    while len(several) > 1:
        pairs = zip(several[::2], several[1::2], strict=False)
        several = [one.intersect(other) for one, other in pairs] + several[len(several) & ~1 :]
    return several[0]


@dataclass(frozen=True)
class Normal:
    """A filter as a list of alternatives; an empty list matches nothing."""

    conjuncts: tuple[Conjunct, ...]

    @property
    def is_everything(self) -> bool:
        """True if the filter matches every event."""
        return any(not conjunct.terms for conjunct in self.conjuncts)

    @property
    def is_nothing(self) -> bool:
        """True if the filter matches no event."""
        return not self.conjuncts

    @property
    def is_factored(self) -> bool:
        """True if an OR stays factored because it would have multiplied the conjuncts too much."""
        return any(isinstance(term, Or) for conjunct in self.conjuncts for term in conjunct.terms)


def normalize(root: Node, limit: int = MAX_CONJUNCTS) -> Normal:
    """Return the alternatives of a tree, without contradictory ones."""
    alternatives = [Conjunct(terms) for terms in to_dnf(push_not_inwards(root), limit)]
    satisfiable = [conjunct for conjunct in alternatives if not conjunct.is_empty]
    return Normal(_merge([_drop_tautologies(conjunct) for conjunct in satisfiable]))


def to_dnf(node: Node, limit: int = MAX_CONJUNCTS) -> list[tuple[Node, ...]]:
    """Return the alternatives of a tree without `Not`, each a tuple of terms; at most `limit`."""
    match node:
        case Or(terms):
            alternatives: list[tuple[Node, ...]] = []
            for term in terms:
                inner = to_dnf(term, limit)
                if len(alternatives) + len(inner) > limit:
                    return [(node,)]
                alternatives += inner
            return alternatives
        case And(terms):
            factored: list[Node] = []
            # Predicates come first, because every alternative has all of them.
            product: list[tuple[Node, ...]] = [tuple(term for term in terms if not isinstance(term, And | Or))]
            for term in terms:
                if not isinstance(term, And | Or):
                    continue
                inner = to_dnf(term, limit)
                if len(product) * len(inner) > limit:
                    factored.append(term)
                else:
                    product = [(*one, *other) for one in product for other in inner]
            return [(*one, *factored) for one in product] if factored else product
    return [(node,)]


def _drop_tautologies(conjunct: Conjunct) -> Conjunct:
    """Return a conjunct without predicates on attributes that may have any value, null included."""
    free = {path for path, values in conjunct.exact.items() if values == _unconstrained(path)}
    if not free:
        return conjunct
    return Conjunct(tuple(t for t in conjunct.terms if not (_is_predicate(t) and _only_path(t) in free)))


def _only_path(node: Node) -> Path | None:
    allowed = constrained(node) if _is_predicate(node) else None
    return allowed[0] if allowed else None


def _unconstrained(path: Path) -> ValueSet:
    return replace(_anything(path), null=True)


def _merge(conjuncts: list[Conjunct]) -> tuple[Conjunct, ...]:
    """Return the alternatives without duplicates and without those that another one contains."""
    merged: list[Conjunct] = []
    for conjunct in conjuncts:
        if not any(_absorbs(other, conjunct) for other in merged):
            merged = [other for other in merged if not _absorbs(conjunct, other)]
            merged.append(conjunct)
    if _cover_everything(merged):
        return (Conjunct(()),)
    return tuple(merged)


def _absorbs(wide: Conjunct, narrow: Conjunct) -> bool:
    return set(wide.terms) <= set(narrow.terms) and (
        wide.meant == narrow.meant and taken_by(wide.terms) == taken_by(narrow.terms) if wide.meant else True
    )


def taken_by(terms: Iterable[Node]) -> frozenset[str]:
    """Return the attributes that equalities of a conjunct name; no predicate with ~ is mapped to them."""
    equal = (t for t in terms if isinstance(t, Compare) and t.relation == "=" and isinstance(t.other, Literal))
    return frozenset(".".join(map(str, term.path.parts)) for term in equal)


def _cover_everything(conjuncts: list[Conjunct]) -> bool:
    """Return True if alternatives on one attribute allow all its values, as `x IS NULL OR x IS NOT NULL` does."""
    whole: dict[Path, ValueSet] = {}
    for conjunct in conjuncts:
        if not conjunct.terms:
            return True
        if conjunct.rest or len(conjunct.exact) != 1:
            continue
        ((path, values),) = conjunct.exact.items()
        joined = whole[path].union(values) if path in whole else values
        if joined is not None:
            whole[path] = joined
            if not joined.tests and joined == _unconstrained(path):
                return True
    return False
