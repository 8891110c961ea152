"""Says which filters have a native Spark column, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.errors import Problem
from tidegate.filters import Filter
from tidegate.filters.nodes import Group, ItemPredicate, Literal, Node, Path, Pattern, Predicate, predicates
from tidegate.pipelines.regex import to_java


def is_native(filter_: Filter) -> bool:
    """Return True if a filter has a native column, and so can run in real-time mode. Needs no JVM."""
    return native_problem(filter_) is None


def native_problem(filter_: Filter) -> Problem | None:
    """Return why a filter has no exact native column; None if it has one."""
    if filter_.schema is None:
        return _problem((0, 1), "a schema: Spark's columns have types")
    filter_.require_evaluable()
    if filter_.tree.is_semantic:
        return _problem((0, 1), "no likeness of meaning (~)")
    for node in _all(filter_.tree.root):
        if isinstance(node, Pattern):
            if not isinstance(node.subject, Path) or not isinstance(node.pattern, Literal):
                return _problem(node.span, "a pattern that is a literal, not a field")
            if node.operator == "MATCH" and to_java(str(node.pattern.value)) is None:
                expected = "a regular expression that Java's engine runs safely (no nested or repeated groups)"
                return _problem(node.span, expected)
    return None


def _all(root: Node) -> Iterator[Predicate | ItemPredicate]:
    """Yield the predicates of a filter, and those inside its fuzzy groups."""
    for node in predicates(root):
        yield node
        if isinstance(node, Group):
            yield from (item.predicate for item in node.items)


def _problem(span: tuple[int, int], expected: str) -> Problem:
    return Problem(span[0], f"as a Spark column expected {expected}", max(1, span[1] - span[0]))
