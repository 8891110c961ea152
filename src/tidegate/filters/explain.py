"""Explains a filter: its normal form, and why an event does or does not match it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.filters import evaluate, fuzzy, sets
from tidegate.filters.constraints import Constraints
from tidegate.filters.filter import Filter
from tidegate.filters.nodes import (
    And,
    Compare,
    Group,
    Item,
    Member,
    Node,
    Not,
    Or,
    Path,
    Predicate,
    Semantic,
    operands,
    paths,
    predicates,
)
from tidegate.filters.normalize import Conjunct, push_not_inwards
from tidegate.filters.render import path_text, predicate, render
from tidegate.filters.satisfiable import constraint_queries
from tidegate.filters.sets import ValueSet
from tidegate.filters.values import raw_reader
from tidegate.model import Schema, events, timestamps
from tidegate.model.types import Enum, Type


@dataclass(frozen=True, slots=True)
class PredicateVerdict:
    """The result of one predicate for an event."""

    predicate: str
    truth: bool | None
    values: Mapping[str, Any]
    """The values that the predicate read, by path."""
    degree: float | None
    """Degree of a fuzzy group; None for other predicates."""
    decided: bool
    """True if the filter would have the other result if this predicate did."""


def describe(filter_: Filter, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return everything known about a filter, and about an event if one is passed, as JSON values."""
    described: dict[str, Any] = {
        "text": filter_.text,
        "canonical": str(filter_),
        "tree": tree_lines(filter_),
        "normal_form": normal_form(filter_),
        "fuzzy": fuzzy_cuts(filter_),
        "constraints": constraints(filter_),
        "warnings": warnings(filter_),
    }
    if event is not None:
        described["event"] = {
            "violations": _violations(event, filter_.schema),
            "matches": filter_.matches(event),
            "truth": _truth(filter_.truth(event)),
            "degree": filter_.degree(event),
            "predicates": [
                {
                    "predicate": verdict.predicate,
                    "truth": _truth(verdict.truth),
                    "values": verdict.values,
                    "degree": verdict.degree,
                    "decided": verdict.decided,
                }
                for verdict in verdicts(filter_, event)
            ],
        }
    return described


def _violations(event: Mapping[str, Any], schema: Schema | None) -> list[str]:
    if schema is None:
        return []
    violations = [*events.violations(event, schema), *Constraints(schema).violations(event)]
    return [str(violation) for violation in violations]


def _truth(value: bool | None) -> str:
    return {True: "true", False: "false", None: "unknown"}[value]


def constraints(filter_: Filter) -> list[str]:
    """Return the constraints of the schema that hold for the fields of a filter, as filters."""
    if filter_.schema is None:
        return []
    read = {path for node in predicates(filter_.tree.root) for path in paths(node)}
    limits = constraint_queries(filter_.schema).values()
    return [text for text, query in limits if read & {path for node in predicates(query.root) for path in paths(node)}]


def tree_lines(filter_: Filter) -> list[str]:
    """Return a drawing of the parsed tree, one line per node."""
    return _draw(filter_.tree.root, "", "") if filter_.tree.root != And(()) else ["every event"]


def _draw(node: Node, first: str, rest: str) -> list[str]:
    match node:
        case And(terms) | Or(terms):
            lines = [first + type(node).__name__.upper()]
            for n, term in enumerate(terms):
                last = n == len(terms) - 1
                lines += _draw(term, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
            return lines
        case Not(term):
            return [first + "NOT", *_draw(term, rest + "└─ ", rest + "   ")]
    return [first + predicate(node)]


def normal_form(filter_: Filter) -> dict[str, Any]:
    """Return the alternatives with their value sets and remaining predicates, as JSON values."""
    normal = filter_.normal
    return {
        "everything": normal.is_everything,
        "nothing": normal.is_nothing,
        "factored": normal.is_factored,
        "alternatives": [_alternative(conjunct) for conjunct in normal.conjuncts],
    }


def _alternative(conjunct: Conjunct) -> dict[str, Any]:
    from tidegate.filters.render import render_node

    return {
        "filter": render_node(And(conjunct.terms)) if conjunct.terms else "every event",
        "sets": {path_text(path): describe_set(values, path.type) for path, values in conjunct.necessary.items()},
        "verify": [render_node(term) for term in conjunct.rest],
    }


def describe_set(values: ValueSet, kind: Type | None) -> str:
    """Return a value set in readable form."""
    show = _shower(kind)
    by_text: dict[str, list[str]] = {}
    for name, cuts in values.cuts.items():
        by_text.setdefault(sets.describe(cuts, show if kind is not None else _SHOW.get(name, repr)), []).append(name)
    if kind is not None:
        parts = list(by_text)
    else:
        parts = [f"{text} ({', '.join(names)})" for text, names in by_text.items() if text != "none"]
    parts += [predicate(test) for test in values.tests]
    if values.null:
        parts = [part for part in parts if part != "none"] + ["null"]
    return " and ".join(parts) if values.tests else " or ".join(parts) or "none"


def _shower(kind: Type | None) -> Any:
    if isinstance(kind, Enum):
        return lambda n: kind.labels[n]
    return timestamps.to_text if kind is not None and kind.kind == "time" else repr


_SHOW: dict[str, Any] = {"time": timestamps.to_text, "bool": lambda n: str(bool(n)).upper()}


def fuzzy_cuts(filter_: Filter) -> list[dict[str, Any]]:
    """Return the thresholds of each fuzzy group and the interval of each member, as JSON values."""
    groups = []
    for node in predicates(filter_.tree.root):
        if isinstance(node, Group):
            limits = fuzzy.thresholds(node)
            items = [_item(item, n, limits) for n, item in enumerate(node.items)]
            groups.append({"group": predicate(node), "degree_at_least": limits.alpha, "items": items})
    return groups


def _item(item: Item, n: int, limits: fuzzy.Thresholds) -> dict[str, Any]:
    described: dict[str, Any] = {
        "item": "NOT " * item.negated + predicate(item.predicate),
        "at_least": limits.betas[n],
        "weight": limits.weights[n],
        "must_reach": max(0.0, limits.outer(n)),
    }
    if isinstance(item.predicate, Member):
        described["outer"] = sets.describe(fuzzy.member_cuts(item, limits.outer(n)), _short)
        described["inner"] = sets.describe(fuzzy.member_cuts(item, limits.inner(n)), _short)
    return described


def _short(number: float) -> str:
    return f"{number:.6g}"


def warnings(filter_: Filter) -> list[str]:
    """Return warnings about a filter that is valid but probably not what its author meant."""
    messages = []
    for node in predicates(filter_.tree.root):
        if filter_.schema is None and isinstance(node, Compare) and type(node.other) is Path:
            other = path_text(node.other)
            messages.append(f"{other} in {predicate(node)} is a field; for the text write '{other}'")
    if filter_.normal.is_nothing:
        messages.append("no event can match")
    if filter_.normal.is_factored:
        messages.append("too many alternatives: an OR is kept as it is and verified event by event")
    return messages


def verdicts(filter_: Filter, event: Mapping[str, Any]) -> list[PredicateVerdict]:
    """Return the result of each predicate for an event, and whether it decided the outcome."""
    root = push_not_inwards(filter_.tree.root)
    if filter_.tree.is_semantic:
        return [_verdict_by_meaning(node, filter_, event) for node in dict.fromkeys(predicates(root))]
    truths = {node: evaluate.test(node)(event) for node in predicates(root)}
    return [_verdict(node, event, root, truths) for node in dict.fromkeys(predicates(root))]


def _values(node: Predicate, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a predicate read and computed, by their texts."""
    read = dict.fromkeys((*paths(node), *operands(node)))
    return {path_text(path): raw_reader(path)(event) for path in read}


def _verdict_by_meaning(node: Predicate, filter_: Filter, event: Mapping[str, Any]) -> PredicateVerdict:
    """Return the result of one predicate evaluated alone.

    `decided` is always False: the predicates with ~ of an alternative decide together, by their mapping.
    """
    values = _values(node, event)
    if not any(isinstance(part, Semantic) for part in (node, *_items(node))):
        degree = evaluate.group_grade(node)(event) if isinstance(node, Group) else None
        return PredicateVerdict(predicate(node), evaluate.test(node)(event), values, degree, decided=False)
    text = render(replace(filter_.tree, root=node))
    alone = Filter(text, filter_.schema, like_star=filter_.like_star, semantics=filter_.meaning)
    return PredicateVerdict(predicate(node), alone.truth(event), values, alone.degree(event), decided=False)


def _items(node: Predicate) -> tuple[object, ...]:
    return tuple(item.predicate for item in node.items) if isinstance(node, Group) else ()


def _verdict(
    node: Predicate, event: Mapping[str, Any], root: Node, truths: dict[Predicate, bool | None]
) -> PredicateVerdict:
    degree = evaluate.group_grade(node)(event) if isinstance(node, Group) else None
    if degree is not None and isinstance(node, Group) and node.negated:
        degree = 1.0 - degree
    whole = evaluate.truth_by(root, truths.__getitem__) is True
    otherwise = evaluate.truth_by(root, lambda other: (not whole) if other == node else truths[other]) is True
    values = _values(node, event)
    return PredicateVerdict(predicate(node), truths[node], values, degree, decided=whole is not otherwise)
