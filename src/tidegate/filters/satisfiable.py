"""Finds filters that can never match, and says why.

A predicate that no value of its type satisfies (`uint8 = -1`) is let through,
as every DDS product does: it matches nothing. What is refused is a filter whose
predicates contradict each other, or the constraints of its schema.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice

from tidegate.errors import FilterError, Problem, SchemaError, UnsatisfiableFilter
from tidegate.filters.nodes import (
    And,
    Compare,
    Group,
    Inside,
    Literal,
    Node,
    Not,
    Or,
    Path,
    Predicate,
    Query,
    paths,
    predicates,
)
from tidegate.filters.normalize import (
    Conjunct,
    canonical,
    canonical_predicate,
    constrained,
    implied,
    push_not_inwards,
    to_dnf,
)
from tidegate.filters.parser import parse
from tidegate.filters.render import path_text, predicate
from tidegate.filters.sets import ValueSet
from tidegate.filters.typing import resolve
from tidegate.model.schema import Schema

MAX_CHECKED = 64
"""A filter of more distinct predicates is let through unchecked, so that a hostile
text costs milliseconds."""

Constraint = tuple[ValueSet, str]
Constrained = Mapping[Path, Constraint]


def check(query: Query, pushed: Node, text: str, schema: Schema | None) -> None:
    """Raise `UnsatisfiableFilter` where every alternative contradicts itself.

    `pushed` is the query's tree without `Not`.
    """
    constraints = constraint_sets(schema) if schema is not None and schema.constraints else {}
    if isinstance(pushed, Or) and not constraints and _has_plain_option(pushed):
        return
    found: list[list[Problem]] = []
    for terms in _alternatives(query, pushed, text):
        problems = _contradiction(terms, constraints)
        if not problems:
            return
        found.append(problems)
    if found:
        raise UnsatisfiableFilter(text, found[0])


def _has_plain_option(node: Or) -> bool:
    """Whether an OR has a single predicate among its alternatives; alone, that can't contradict."""
    return any(not isinstance(term, And | Or | Group | Inside) for term in node.terms)


def _alternatives(query: Query, pushed: Node, text: str) -> list[tuple[Node, ...]]:
    """The alternatives to check, the same for every way of saying the filter; none: too many."""
    terms = pushed.terms if isinstance(pushed, And) else (pushed,)
    if not any(isinstance(term, And | Or) for term in terms):
        terms = _without_repeats(terms, text)
        if len(terms) <= MAX_CHECKED:
            return [terms]
    if _is_long(pushed):
        return []
    found = to_dnf(pushed)
    if all(len(each) <= MAX_CHECKED and not any(isinstance(term, Or) for term in each) for each in found):
        return found
    # Which ORs stay factored depends on the order of the terms: take the canonical one.
    return to_dnf(canonical(query).root)


def _without_repeats(terms: tuple[Node, ...], text: str) -> tuple[Node, ...]:
    """Drop predicates that stand in the text more than once: cheaper by text than by hash."""
    if len(terms) <= MAX_CHECKED:
        return terms
    found: dict[tuple[str, object], Node] = {}
    for term in terms:
        assert not isinstance(term, And | Or | Not)
        sign = term.relation if isinstance(term, Compare) else term.negated
        found[text[slice(*term.span)], sign] = term
    return tuple(found.values())


def _is_long(root: Node) -> bool:
    """Whether a tree has more distinct predicates than are checked."""
    distinct: set[Predicate] = set()
    for node in predicates(root):
        distinct.add(canonical_predicate(node))
        if len(distinct) > MAX_CHECKED:
            return True
    return False


def _contradiction(terms: Iterable[Node], constraints: Constrained) -> list[Problem]:
    """Name the predicates of a conjunction that exclude each other; none: it may match."""
    on_path: dict[tuple[str | int, ...], tuple[Path, list[Predicate]]] = {}
    for term in terms:
        if not isinstance(term, And | Or | Not):
            for path in paths(term):
                on_path.setdefault(path.parts, (path, []))[1].append(term)
    for path, sharing in on_path.values():
        limit = constraints.get(path) if constraints else None
        alone = len(sharing) == 1 and limit is None and not isinstance(sharing[0], Group)
        if not alone and not (limit is None and _is_wide_range(sharing)):
            problems = _contradiction_on(path, sharing, limit)
            if problems:
                return problems
    return []


def _is_wide_range(sharing: list[Predicate]) -> bool:
    """Whether bounds leave a whole number between them: then every numeric type has room.

    Most filters with two predicates on an attribute are such ranges, and this
    spares them the value sets.
    """
    low, high = -math.inf, math.inf
    for node in sharing:
        if not isinstance(node, Compare) or not isinstance(node.other, Literal):
            return False
        value = node.other.value
        if isinstance(value, bool | str) or (isinstance(value, int) and value.bit_length() > 1000):
            return False
        if node.relation in (">", ">="):
            low = max(low, value)
        elif node.relation in ("<", "<="):
            high = min(high, value)
        else:
            return False
    return high - low > 1


def _contradiction_on(path: Path, sharing: list[Predicate], limit: Constraint | None) -> list[Problem]:
    """Say what excludes what on one attribute; a predicate that is empty by itself is let through."""
    allowed = [(term, values) for term in sharing for where, values in _allows(term) if where == path]
    if any(values.is_empty() for term, values in allowed if not isinstance(term, Group)):
        return []
    before: list[tuple[ValueSet, Predicate]] = []
    whole: ValueSet | None = None
    for term, values in allowed:
        whole = values if whole is None else whole.intersect(values)
        if whole.is_empty():
            return _blame(path, values, term, before)
        if limit is not None and whole.intersect(limit[0]).is_empty():
            return _blame_constraint(term, before, limit)
        before.append((values, term))
    return []


def _allows(term: Predicate) -> list[tuple[Path, ValueSet]]:
    exact = constrained(term)
    return [exact] if exact else list(islice(implied(term), MAX_CHECKED))


def _blame(path: Path, values: ValueSet, term: Predicate, before: list[tuple[ValueSet, Predicate]]) -> list[Problem]:
    others = [other for found, other in before if found.intersect(values).is_empty()][:1]
    others = others or [other for _, other in before]
    if not others or others == [term]:
        return [_problem(term, f"can never match: no {path_text(path)} reaches the degrees it asks for")]
    against = " and ".join(dict.fromkeys(map(predicate, others)))
    return [_problem(term, f"can never match: {predicate(term)} contradicts {against}")]


def _blame_constraint(term: Predicate, before: list[tuple[ValueSet, Predicate]], limit: Constraint) -> list[Problem]:
    together = " and ".join(dict.fromkeys(predicate(each) for each in [*(other for _, other in before), term]))
    return [_problem(term, f"can never match: {together} contradicts the constraint {limit[1]}")]


def _problem(term: Predicate, message: str) -> Problem:
    return Problem(term.span[0], message, max(1, term.span[1] - term.span[0]))


@lru_cache(maxsize=256)
def constraint_queries(schema: Schema) -> Mapping[str, tuple[str, Query]]:
    """Read a schema's constraints: for each attribute the text of its filter, and the tree."""
    found = {}
    for name, rest in schema.constraints.items():
        field = path_text(Path((name,))) if schema.get(name) is not None else name
        text = f"{field} {rest}"
        try:
            query = resolve(parse(text), text, schema)
            check(query, push_not_inwards(query.root), text, None)
        except FilterError as exc:
            raise SchemaError(str(exc), f"constraints.{name}") from exc
        if query.is_semantic:
            raise SchemaError("expected a constraint without likeness of meaning (~)", f"constraints.{name}")
        read = {path_text(path) for node in predicates(query.root) for path in paths(node)}
        if read != {field}:
            others = ", ".join(sorted(read - {field})) or "nothing"
            raise SchemaError(f"expected a constraint on {field} alone, but it reads {others}", f"constraints.{name}")
        found[name] = text, query
    return found


@lru_cache(maxsize=256)
def constraint_sets(schema: Schema) -> Constrained:
    """Give what each constraint allows its attribute, where a set can say it."""
    found: dict[Path, Constraint] = {}
    for text, query in constraint_queries(schema).values():
        allowed = _whole_set(query)
        if allowed is not None:
            path, values = allowed
            found[path] = values, text
    return found


def _whole_set(query: Query) -> tuple[Path, ValueSet] | None:
    whole: tuple[Path, ValueSet] | None = None
    for terms in to_dnf(push_not_inwards(query.root)):
        necessary = Conjunct(terms).necessary
        if not necessary:  # an alternative that no set describes: anything may be allowed
            return None
        ((path, values),) = necessary.items()
        joined = values if whole is None else whole[1].union(values)
        if joined is None:
            return None
        whole = path, joined
    return whole
