"""All operators. A new one needs its module here, its Spark module, and tests; only this list names both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.errors import did_you_mean
from tidegate.model import Schema
from tidegate.services.findings import Spot
from tidegate.services.operators import (
    aggregate,
    custom,
    deduplicate,
    enrich,
    incremental,
    join,
    lookup,
    merge,
    pattern,
    previous,
    project,
    sort,
)
from tidegate.services.operators import filter as filtering
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.state_layout import StateLayout

Operator = (
    filtering.FilterOperator
    | project.Project
    | sort.Sort
    | aggregate.Aggregate
    | incremental.Incremental
    | merge.Merge
    | join.Join
    | lookup.Lookup
    | previous.Previous
    | pattern.PatternOperator
    | deduplicate.Deduplicate
    | enrich.Enrich
    | custom.Custom
)

DECLARATIONS: tuple[Declaration[Any], ...] = (
    filtering.DECLARATION,
    project.DECLARATION,
    sort.DECLARATION,
    aggregate.DECLARATION,
    incremental.DECLARATION,
    merge.DECLARATION,
    join.DECLARATION,
    lookup.DECLARATION,
    previous.DECLARATION,
    pattern.DECLARATION,
    deduplicate.DECLARATION,
    enrich.DECLARATION,
    custom.DECLARATION,
)
WORDS: dict[type[Operator], str] = {declaration.type: declaration.name for declaration in DECLARATIONS}
"""The name of each operator in a service file."""
_BY_NAME = {declaration.name: declaration for declaration in DECLARATIONS}
_BY_TYPE = {declaration.type: declaration for declaration in DECLARATIONS}


def read_pipeline(spot: Spot) -> tuple[Operator, ...]:
    """Read a list of operators."""
    return tuple(read_operator(item) for item in spot.items("a list of operators, such as [merge]"))


def read_operator(spot: Spot) -> Operator:
    """Read one operator: a bare name, or a map of its name to its settings.

    Reports problems at the spot, and then returns a placeholder.
    """
    value = spot.value
    if isinstance(value, str):
        name, settings = value, spot.at(value, None)
        if name in _BY_NAME and not _BY_NAME[name].has_bare_form:
            spot.refuse(f"the settings of {name}, such as {_BY_NAME[name].example}")
            return merge.Merge()
    elif isinstance(value, Mapping) and len(value) == 1:
        name, settings = next(iter(spot.pairs("").items()), ("", spot))
    else:
        spot.refuse(f"one operator, such as {filtering.DECLARATION.example} or merge")
        return merge.Merge()
    if name not in _BY_NAME:
        hint = did_you_mean(name, _BY_NAME) or f"; expected one of {', '.join(_BY_NAME)}"
        spot.report(f"unknown operator {name!r}{hint}")
        return merge.Merge()
    operator: Operator = _BY_NAME[name].read(settings)
    return operator


def operator_document(operator: Operator) -> Any:
    """Return an operator in the form that `read_operator` takes."""
    declaration = _BY_TYPE[type(operator)]
    settings = declaration.write(operator)
    return declaration.name if settings is None else {declaration.name: settings}


def infer_schema(operator: Operator, inputs: OperatorInputs, spot: Spot) -> Schema | None:
    """Return the schema after an operator. `spot` is that of the operator.

    After a problem it returns None, unless the operator does not change the schema, so that later operators are checked
    too.
    """
    before = len(spot.findings.problems)
    schema = _BY_TYPE[type(operator)].infer(operator, inputs, spot)
    return schema if len(spot.findings.problems) == before or schema is inputs.schema else None


def state_layout(operator: Operator, inputs: OperatorInputs) -> StateLayout | None:
    """Return the layout of an operator's state; None if it has no state. The inputs are valid."""
    return _BY_TYPE[type(operator)].state(operator, inputs)


def streams_read(operator: Operator) -> tuple[str, ...]:
    """Return the streams and services that an operator names as inputs."""
    match operator:
        case merge.Merge() | join.Join():
            return tuple(branch.stream for branch in operator.inputs)
        case lookup.Lookup():
            return (operator.stream,)
    return ()
