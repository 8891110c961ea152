"""`merge`: combines several streams with the same schema into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.model import Field, Schema, Struct
from tidegate.services.findings import Spot
from tidegate.services.operators.branches import Branch, all_inputs, read_branches, write_branches
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.settings import Settings


@dataclass(frozen=True)
class Merge:
    """Combine several streams with the same schema into one.

    The first operator of a pipeline merges the inputs in `from` and those in `inputs`; any other merges the events
    before it with those of `inputs`.
    """

    inputs: tuple[Branch, ...] = ()


def _read(spot: Spot) -> Merge:
    if spot.value is None:
        return Merge()
    settings = spot.entries(("with",), "the other inputs, such as {with: [gps_b]}")
    return Merge(read_branches(settings["with"]) if "with" in settings else ())


def _write(operator: Merge) -> Settings | None:
    return {"with": write_branches(operator.inputs)} if operator.inputs else None


def _infer(operator: Merge, inputs: OperatorInputs, spot: Spot) -> Schema | None:
    streams = all_inputs(operator.inputs, inputs, spot)
    if not inputs.is_first and not operator.inputs:
        spot.report("expected other inputs, as what comes before it is one stream already: {with: [gps_b]}")
    _note_repeated(operator, inputs, spot)
    (first, schema), *others = streams
    for name, other in others:
        _note_differences((first, schema), (name, other), spot)
    merged = [
        Field(field.name, field.type, all(_is_required(field.name, stream) for _, stream in streams))
        for field in schema.root
    ]
    # A constraint or term holds for all events only if it holds for those of each input.
    constraints = {k: v for k, v in schema.constraints.items() if all(o.constraints.get(k) == v for _, o in others)}
    terms = {k: v for k, v in schema.terms.items() if all(o.terms.get(k) == v for _, o in others)}
    return Schema(Struct(tuple(merged)), constraints=constraints, terms=terms, event_time=schema.event_time)


def _is_required(name: str, schema: Schema) -> bool:
    field = schema.root.get(name)
    return field is not None and field.required


def _note_repeated(operator: Merge, inputs: OperatorInputs, spot: Spot) -> None:
    """Report inputs that occur twice: two events would have the same id."""
    before = [name for name, _ in inputs.main] if inputs.is_first else sorted(inputs.origins)
    names = [*before, *(branch.stream for branch in operator.inputs)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        hint = "; join its filters with OR" if any(each.filter for each in operator.inputs) else ""
        spot.report(f"expected {name!r} once: merged with itself each event comes twice{hint}")


def _note_differences(one: tuple[str, Schema], other: tuple[str, Schema], spot: Spot) -> None:
    """Report how the schemas of two inputs differ."""
    (first, schema), (name, theirs) = one, other
    fields = {field.name: field for field in schema.root}
    other_fields = {field.name: field for field in theirs.root}
    for missing in sorted({*fields} ^ {*other_fields}):
        has, lacks = (first, name) if missing in fields else (name, first)
        spot.report(f"expected the same schema of all inputs: {has} has an attribute {missing!r}, {lacks} has not")
    for key in (key for key in fields if key in other_fields and fields[key].type != other_fields[key].type):
        spot.report(
            f"expected the same schema of all inputs: {key!r} is {fields[key].type} in {first} "
            f"and {other_fields[key].type} in {name}"
        )
    if schema.event_time != theirs.event_time:
        times = _times([one, other])
        spot.report(f"expected the same event_time of all inputs: it is {times}")


def _times(inputs: Sequence[tuple[str, Schema]]) -> str:
    return " and ".join(f"{schema.event_time or 'none'} in {name}" for name, schema in inputs)


DECLARATION = Declaration("merge", Merge, "merge: {with: [gps_b]}", _read, _write, _infer, has_bare_form=True)
