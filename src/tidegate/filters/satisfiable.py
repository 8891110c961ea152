"""Finds filters that can never match, and the reason.

A predicate that no value of its type satisfies (`uint8 = -1`) is accepted, as in every DDS product: it matches nothing.
Refused are filters whose predicates contradict each other or the constraints of the schema.
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
    ComputedValue,
    Group,
    Inside,
    Literal,
    Node,
    Not,
    Or,
    Path,
    Predicate,
    Query,
    operands,
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
"""A filter with more distinct predicates is accepted without this check, so that a hostile text costs milliseconds."""

Constraint = tuple[ValueSet, str]
Constrained = Mapping[Path, Constraint]


def check(query: Query, pushed: Node, text: str, schema: Schema | None) -> None:
    """Raise `UnsatisfiableFilter` if every alternative contradicts itself.

    `pushed` is the query's tree without `Not`.
    """
    constraints = constraint_sets(schema) if schema is not None and schema.constraints else {}
    if isinstance(pushed, Or) and not constraints and _has_plain_option(pushed):
        return
    problems_by_alternative: list[list[Problem]] = []
    for terms in _alternatives(query, pushed, text):
        problems = _contradiction(terms, constraints)
        if not problems:
            return
        problems_by_alternative.append(problems)
    if problems_by_alternative:
        raise UnsatisfiableFilter(text, problems_by_alternative[0])


def _has_plain_option(node: Or) -> bool:
    """Return True if an alternative of an OR is a single predicate, which can't contradict itself."""
    return any(not isinstance(term, And | Or | Group | Inside) for term in node.terms)


def _alternatives(query: Query, pushed: Node, text: str) -> list[tuple[Node, ...]]:
    """Return the alternatives to check, the same for equal filters; an empty list if there are too many."""
    terms = pushed.terms if isinstance(pushed, And) else (pushed,)
    if not any(isinstance(term, And | Or) for term in terms):
        terms = _without_repeats(terms, text)
        if len(terms) <= MAX_CHECKED:
            return [terms]
    if _is_long(pushed):
        return []
    alternatives = to_dnf(pushed)
    if all(
        len(alternative) <= MAX_CHECKED and not any(isinstance(term, Or) for term in alternative)
        for alternative in alternatives
    ):
        return alternatives
    # Which ORs stay factored depends on the order of the terms, so use the canonical order.
    return to_dnf(canonical(query).root)


def _without_repeats(terms: tuple[Node, ...], text: str) -> tuple[Node, ...]:
    """Return the terms without predicates that the text repeats; comparing texts is cheaper than hashing nodes."""
    if len(terms) <= MAX_CHECKED:
        return terms
    distinct_terms: dict[tuple[str, object], Node] = {}
    for term in terms:
        assert not isinstance(term, And | Or | Not)
        sign = term.relation if isinstance(term, Compare) else term.negated
        distinct_terms[text[slice(*term.span)], sign] = term
    return tuple(distinct_terms.values())


def _is_long(root: Node) -> bool:
    """Return True if a tree has more than `MAX_CHECKED` distinct predicates."""
    distinct: set[Predicate] = set()
    for node in predicates(root):
        distinct.add(canonical_predicate(node))
        if len(distinct) > MAX_CHECKED:
            return True
    return False


def _contradiction(terms: Iterable[Node], constraints: Constrained) -> list[Problem]:
    """Return a problem for the predicates of a conjunction that exclude each other; an empty list if it may match."""
    on_path: dict[object, tuple[Path, list[Predicate]]] = {}
    for term in terms:
        if not isinstance(term, And | Or | Not):
            computed = [operand for operand in operands(term) if isinstance(operand, ComputedValue)]
            for path in (*paths(term), *computed):
                key = path if isinstance(path, ComputedValue) else path.parts
                on_path.setdefault(key, (path, []))[1].append(term)
    for path, sharing in on_path.values():
        limit = constraints.get(path) if constraints else None
        alone = len(sharing) == 1 and limit is None and not isinstance(sharing[0], Group)
        if not alone and not (limit is None and _is_wide_range(path, sharing)):
            problems = _contradiction_on(path, sharing, limit)
            if problems:
                return problems
    return []


def _is_wide_range(path: Path, sharing: list[Predicate]) -> bool:
    """Return True if bounds of a path leave an integer between them, so that every numeric type has a value there.

    Most filters with two predicates on an attribute are such ranges; this avoids building their value sets.
    """
    low, high = -math.inf, math.inf
    for node in sharing:
        if not isinstance(node, Compare) or not isinstance(node.other, Literal) or node.path.parts != path.parts:
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
    """Return a problem for predicates that exclude each other on one attribute.

    Returns none if a predicate is unsatisfiable by itself, which is accepted.
    """
    allowed = [(term, values) for term in sharing for where, values in _allows(term) if where == path]
    if any(values.is_empty() for term, values in allowed if not isinstance(term, Group)):
        return []
    before: list[tuple[ValueSet, Predicate]] = []
    whole: ValueSet | None = None
    for term, values in allowed:
        whole = values if whole is None else whole.intersect(values)
        if whole.is_empty():
            return _report(path, values, term, before)
        if limit is not None and whole.intersect(limit[0]).is_empty():
            return _report_constraint(term, before, limit)
        before.append((values, term))
    return []


def _allows(term: Predicate) -> list[tuple[Path, ValueSet]]:
    exact = constrained(term)
    return [exact] if exact else list(islice(implied(term), MAX_CHECKED))


def _report(path: Path, values: ValueSet, term: Predicate, before: list[tuple[ValueSet, Predicate]]) -> list[Problem]:
    others = [other for earlier, other in before if earlier.intersect(values).is_empty()][:1]
    others = others or [other for _, other in before]
    if not others or others == [term]:
        return [_problem(term, f"can never match: no {path_text(path)} reaches the degrees it asks for")]
    against = " and ".join(dict.fromkeys(map(predicate, others)))
    return [_problem(term, f"can never match: {predicate(term)} contradicts {against}")]


def _report_constraint(term: Predicate, before: list[tuple[ValueSet, Predicate]], limit: Constraint) -> list[Problem]:
    together = " and ".join(dict.fromkeys(predicate(part) for part in [*(other for _, other in before), term]))
    return [_problem(term, f"can never match: {together} contradicts the constraint {limit[1]}")]


def _problem(term: Predicate, message: str) -> Problem:
    return Problem(term.span[0], message, max(1, term.span[1] - term.span[0]))


@lru_cache(maxsize=256)
def constraint_queries(schema: Schema) -> Mapping[str, tuple[str, Query]]:
    """Return the constraints of a schema: text and tree by attribute. Raises `SchemaError` for a wrong one."""
    queries = {}
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
        queries[name] = text, query
    return queries


@lru_cache(maxsize=256)
def constraint_sets(schema: Schema) -> Constrained:
    """Return the values that each constraint allows, as far as a value set can express them."""
    sets: dict[Path, Constraint] = {}
    for text, query in constraint_queries(schema).values():
        allowed = _whole_set(query)
        if allowed is not None:
            path, values = allowed
            sets[path] = values, text
    return sets


def _whole_set(query: Query) -> tuple[Path, ValueSet] | None:
    whole: tuple[Path, ValueSet] | None = None
    for terms in to_dnf(push_not_inwards(query.root)):
        necessary = {path: values for path, values in Conjunct(terms).necessary.items() if path.parts}
        if not necessary:  # no set describes this alternative, so any value may be allowed
            return None
        ((path, values),) = necessary.items()
        joined = values if whole is None else whole[1].union(values)
        if joined is None:
            return None
        whole = path, joined
    return whole
