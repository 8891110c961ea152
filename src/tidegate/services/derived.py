"""Constraints that follow from a service's own filters: after `filter: speed > 60` every event has `speed > 60`.

Only filters at the end of a pipeline count: a later operator may change an attribute.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.errors import FilterError, SchemaError
from tidegate.filters import Filter
from tidegate.filters.nodes import And, ComputedValue, Group, Inside, Node, Not, Or, Path, Semantic, operands
from tidegate.filters.render import path_text, predicate
from tidegate.model.schema import Schema
from tidegate.services import operators
from tidegate.services.definitions import Service


def with_derived_constraints(service: Service, schema: Schema) -> Schema:
    """Return the output schema of a service with the constraints that its last filters imply.

    Masked attributes get none: subscribers do not see the values that were filtered.
    """
    constraints = dict(schema.constraints)
    for path, rest in dict.fromkeys(_implied(service, schema)):
        key = str(path.parts[0]) if len(path.parts) == 1 else path_text(path)
        if path.parts[0] in service.mask or rest == constraints.get(key):
            continue
        stated = constraints.get(key)
        constraints[key] = rest if stated is None else f"{rest} AND ({path_text(path)} {stated})"
    if constraints == schema.constraints:
        return schema
    try:
        return Schema(
            schema.root,
            constraints=constraints,
            terms=schema.terms,
            event_time=schema.event_time,
            absent=schema.absent,
        )
    except SchemaError:
        return schema


def _implied(service: Service, schema: Schema) -> Iterator[tuple[Path, str]]:
    """Yield each attribute that a filter at the end of the pipeline restricts, and the rest of its predicate."""
    plain = Schema(schema.root, terms=schema.terms, event_time=schema.event_time)
    for operator in reversed(service.pipeline):
        if not isinstance(operator, operators.FilterOperator):
            return
        try:
            root = Filter(operator.text, plain, list(operator.params)).pushed
        except FilterError:  # it reads an attribute that a mask changes
            continue
        for term in root.terms if isinstance(root, And) else (root,):
            path = _only_field(term)
            if path is not None:
                text, field = predicate(term), path_text(path)  # type: ignore[arg-type]
                if text.startswith(f"{field} "):
                    yield path, text.removeprefix(f"{field} ")


def _only_field(node: Node) -> Path | None:
    """Return the one field that a predicate compares with values; None for any other node."""
    if isinstance(node, And | Or | Not | Group | Inside | Semantic):
        return None
    compared = set(operands(node))
    path = compared.pop()
    return None if compared or isinstance(path, ComputedValue) else path
