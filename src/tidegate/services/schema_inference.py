"""Infers the schema after each operator of a pipeline, and reports what does not fit.

Constraints and terms of an input stay with the attributes that pass unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.errors import DefinitionError, did_you_mean
from tidegate.model import Schema
from tidegate.services.definitions import NONE, Path, Place, Service
from tidegate.services.findings import Findings, Spot
from tidegate.services.operators import (
    WORDS,
    Aggregate,
    Incremental,
    Join,
    Merge,
    Operator,
    OperatorInputs,
    PatternOperator,
    Sort,
    streams_read,
)
from tidegate.services.operators.inference import joined_name
from tidegate.services.operators.registry import infer_schema, state_layout
from tidegate.services.operators.state_layout import StateLayout
from tidegate.services.promises import add_promises, masked_schema, note_constraints, note_terms

__all__ = [
    "WORDS",
    "Shape",
    "input_path",
    "joined_name",
    "note_constraints",
    "note_terms",
    "output_schema",
    "schema_after",
    "shape",
    "shape_into",
]


@dataclass(frozen=True)
class Shape:
    """The schemas along the pipeline of a service."""

    steps: tuple[Schema, ...]
    """The schema after each operator."""
    unmasked: Schema
    """The schema after the pipeline, with the service's constraints and terms: constraints are checked on it."""
    output: Schema
    """The schema that subscribers see: masked, with the constraints that surely hold. It has no constraints on masked
    attributes, and none at all if violations are only flagged."""
    layouts: tuple[StateLayout, ...] = ()
    """The state layout of each operator with state, in the order of the pipeline."""


def output_schema(service: Service, inputs: Mapping[str, Schema]) -> Schema:
    """Return the output schema of a service; `inputs` has the schema of each of its inputs by name."""
    return shape(service, inputs).output


def shape(service: Service, inputs: Mapping[str, Schema], places: Mapping[Path, Place] = NONE) -> Shape:
    """Return the schemas along a pipeline. Raises `DefinitionError` with all problems."""
    findings = Findings(places)
    inferred = shape_into(service, inputs, findings)
    if inferred is None or findings.problems:
        raise DefinitionError(findings.problems)
    return inferred


def schema_after(
    operator: Operator, *schemas: Schema, right: str = "right", streams: Mapping[str, Schema] = NONE
) -> Schema:
    """Return the schema after one operator. Raises `DefinitionError`.

    `schemas` are those of its main inputs, `right` is the name of a join's second one. `streams` has the schemas of the
    streams that the operator names.
    """
    findings = Findings()
    names = [f"input {n}" for n in range(len(schemas))]
    if isinstance(operator, Join):
        names[:2] = ["left", right][: len(names)]
    inputs = OperatorInputs(tuple(zip(names, schemas, strict=True)), streams)
    inferred = infer_schema(operator, inputs, Spot(None, (WORDS[type(operator)],), findings))
    if inferred is None or findings.problems:
        raise DefinitionError(findings.problems)
    return inferred


def input_path(service: Service, name: str) -> Path:
    """Return where a service names an input: in `from`, or in an operator."""
    if name not in service.main:
        for n, operator in enumerate(service.pipeline):
            if name in streams_read(operator):
                key = "with" if isinstance(operator, Merge | Join) else "from"
                return ("services", service.name, "pipeline", n, WORDS[type(operator)], key)
    return ("services", service.name, "from")


def shape_into(service: Service, inputs: Mapping[str, Schema], findings: Findings) -> Shape | None:
    """Return the schemas along a pipeline, and report problems to `findings`; None if they can't be inferred."""
    root = Spot(None, ("services", service.name), findings)
    unknown = [name for name in service.inputs if name not in inputs]
    for name in unknown:
        findings.report(input_path(service, name), f"unknown stream or service {name!r}{did_you_mean(name, inputs)}")
    if not service.main:
        root.at("from", None).report("expected at least one stream or service")
    if unknown or not service.main or not _combines_inputs(service, root):
        return None
    main = tuple((name, inputs[name]) for name in service.main)
    current = OperatorInputs(main, inputs, origins=frozenset(service.main))
    steps: list[Schema] = []
    layouts: list[StateLayout | None] = []
    for n, operator in enumerate(service.pipeline):
        spot = root.at("pipeline", None).at(n, None).at(WORDS[type(operator)], None)
        after = infer_schema(operator, current, spot)
        if after is None:
            return None
        steps.append(after)
        layouts.append(state_layout(operator, current))
        origins = _origins_after(operator, current.origins)
        current = OperatorInputs(((service.name, after),), inputs, is_first=False, origins=origins)
    unmasked = add_promises(service, current.schema, root)
    output = masked_schema(service, unmasked, root)
    return Shape(tuple(steps), unmasked, output, tuple(layout for layout in layouts if layout is not None))


def _origins_after(operator: Operator, origins: frozenset[str]) -> frozenset[str]:
    """Return the streams whose events an operator gives under their own ids."""
    match operator:
        case Merge():
            return origins | {branch.stream for branch in operator.inputs}
        case Aggregate() | Incremental() | Join() | PatternOperator() | Sort():
            return frozenset()
    return origins


def _combines_inputs(service: Service, root: Spot) -> bool:
    """Return True if there is one input, or if the first operator combines all; reports it otherwise."""
    is_combined = bool(service.pipeline) and isinstance(service.pipeline[0], Merge | Join)
    if len(service.main) > 1 and not is_combined:
        root.at("pipeline", None).report(f"expected merge or join first, as there are {len(service.main)} inputs")
        return False
    return True
