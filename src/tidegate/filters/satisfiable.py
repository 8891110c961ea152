"""Finds filters that can never match, and says why.

A predicate that no value of its type satisfies (`uint8 = -1`) is let through,
as every DDS product does: it matches nothing. What is refused is a filter whose
predicates contradict each other, or the constraints of its schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice

from tidegate.errors import FilterError, Problem, SchemaError, UnsatisfiableFilter
from tidegate.filters.nodes import And, Group, Inside, Node, Not, Or, Path, Predicate, Query, paths, predicates
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


def check(query: Query, text: str, schema: Schema | None) -> None:
    """Raise `UnsatisfiableFilter` where every alternative contradicts itself."""
    constraints = constraint_sets(schema) if schema is not None and schema.constraints else {}
    if _is_plain(query.root, constraints):
        return
    found: list[list[Problem]] = []
    for terms in _alternatives(query):
        problems = _contradiction(terms, constraints)
        if not problems:
            return
        found.append(problems)
    if found:
        raise UnsatisfiableFilter(text, found[0])


def _alternatives(query: Query) -> list[tuple[Node, ...]]:
    """The alternatives to check, the same for every way of saying the filter; none: too many."""
    pushed = push_not_inwards(query.root)
    if _is_long(pushed):
        return []
    found = to_dnf(pushed)
    if all(len(terms) <= MAX_CHECKED and not any(isinstance(term, Or) for term in terms) for terms in found):
        return found
    # Which ORs stay factored depends on the order of the terms: take the canonical one.
    return to_dnf(canonical(query).root)


def _is_long(root: Node) -> bool:
    """Whether a tree has more distinct predicates than are checked."""
    if len(list(islice(predicates(root), MAX_CHECKED + 1))) <= MAX_CHECKED:
        return False
    distinct: set[Predicate] = set()
    for node in predicates(root):
        distinct.add(canonical_predicate(node))
        if len(distinct) > MAX_CHECKED:
            return True
    return False


def _is_plain(root: Node, constraints: Constrained) -> bool:
    """Whether no two predicates of a conjunction share an attribute: nothing can contradict."""
    seen: set[tuple[str | int, ...]] = set()
    if isinstance(root, Or):
        return not constraints and _has_plain_option(root)
    for each in root.terms if isinstance(root, And) else (root,):
        if isinstance(each, And | Or | Not | Group | Inside):
            return False
        for path in paths(each):
            if path.parts in seen or (constraints and path in constraints):
                return False
            seen.add(path.parts)
    return True


def _has_plain_option(node: Or) -> bool:
    """Whether an OR has a single predicate among its alternatives; alone, that can't contradict."""
    return any(not isinstance(term, And | Or | Not | Group | Inside) for term in node.terms)


def _contradiction(terms: Iterable[Node], constraints: Constrained) -> list[Problem]:
    """Name the predicates of a conjunction that exclude each other; none: it may match."""
    allowed = [(term, _allows(term)) for term in terms if not isinstance(term, And | Or | Not)]
    if any(values.is_empty() for term, pairs in allowed if not isinstance(term, Group) for _, values in pairs):
        return []
    seen: dict[Path, list[tuple[ValueSet, Predicate]]] = {}
    whole: dict[Path, ValueSet] = {}
    for term, pairs in allowed:
        for path, values in pairs:
            left = whole[path].intersect(values) if path in whole else values
            if left.is_empty():
                return _blame(path, values, term, seen.get(path, []))
            limit = constraints.get(path)
            if limit is not None and left.intersect(limit[0]).is_empty():
                return _blame_constraint(term, seen.get(path, []), limit)
            whole[path] = left
            seen.setdefault(path, []).append((values, term))
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
        except FilterError as exc:
            raise SchemaError(str(exc), f"constraints.{name}") from exc
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
        for path, values in Conjunct(terms).necessary.items():
            joined = values if whole is None else whole[1].union(values)
            if joined is None:
                return None
            whole = path, joined
    return whole
