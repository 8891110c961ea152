"""Schema inference for the promises of a service: its constraints, its terms and its masks."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.errors import FilterError, LanguageError, SchemaError
from tidegate.filters import Constraints
from tidegate.filters import membership as memberships
from tidegate.filters.nodes import Literal
from tidegate.filters.parser import parse_shape
from tidegate.model import Field, Schema, Struct
from tidegate.model.types import Array, Scalar
from tidegate.services import expressions
from tidegate.services.definitions import Mask, Service
from tidegate.services.findings import Spot
from tidegate.services.operators.inference import attribute, derived_schema, report_text


def add_promises(service: Service, schema: Schema, root: Spot) -> Schema:
    """Return a schema with the constraints and terms of a service, and report bad ones."""
    terms = {**schema.terms, **service.terms}
    note_terms(service.terms, schema, root.at("terms", None))
    note_constraints(service.constraints, schema, root.at("constraints", None))
    constraints = {**schema.constraints, **service.constraints}
    return Schema(schema.root, constraints=constraints, terms=terms, event_time=schema.event_time)


def note_constraints(constraints: Mapping[str, str], schema: Schema, spot: Spot) -> None:
    """Report constraints that are not filters on their attribute alone."""
    for name, text in constraints.items():
        try:
            Constraints(Schema(schema.root, constraints={name: text}, event_time=schema.event_time))
        except SchemaError as error:
            if isinstance(error.__cause__, FilterError):
                report_text(error.__cause__, spot.at(name, None))
            else:
                spot.at(name, None).report(error.message)


def note_terms(terms: Mapping[str, Mapping[str, str]], schema: Schema, spot: Spot) -> None:
    """Report terms that are not shapes, or whose attribute is not a number."""
    for name, texts in terms.items():
        where = spot.at(name, None)
        try:
            value = expressions.resolve(name, schema) if schema.root.get(name) is None else None
            kind = schema.root.get(name).type if value is None else value.type  # type: ignore[union-attr]
        except LanguageError as error:
            where.report(error.problems[0].message)
            continue
        if kind.kind not in ("int", "float"):
            where.report(f"expected terms of a number; {name} is {kind}")
        for term, text in texts.items():
            _note_shape(text, where.at(term, None))


def _note_shape(text: str, spot: Spot) -> None:
    try:
        parsed = parse_shape(text)
    except LanguageError as error:
        report_text(error, spot)
        return
    numbers = tuple(float(number.value) for number in parsed.numbers if isinstance(number, Literal))
    problem = memberships.problem(parsed.name, numbers) if len(numbers) == len(parsed.numbers) else "numbers only"
    if problem:
        spot.report(f"expected {problem}, not {text!r}")


def masked_schema(service: Service, schema: Schema, root: Spot) -> Schema:
    """Return the schema after the masks of a service, and report masks that do not fit."""
    fields = {field.name: field for field in schema.root}
    for name, mask in service.mask.items():
        spot = root.at("mask", None).at(name, None)
        field = attribute(name, schema, spot)
        if field is None:
            continue
        problem = _mask_problem(field, mask)
        if problem:
            spot.report(problem)
        elif mask.how == "drop":
            del fields[name]
        elif mask.how == "hmac":
            fields[name] = Field(name, Scalar("string"), field.required)
    clear = {name for name in fields if name not in service.mask}
    time = schema.event_time if schema.event_time in clear else None
    derived = derived_schema(root, fields.values(), time, [(schema, clear)])
    if derived is None:
        return schema
    constraints = derived.constraints if service.on_violation != "flag" else {}
    return Schema(derived.root, constraints=constraints, terms=derived.terms, event_time=time)


def _mask_problem(field: Field, mask: Mask) -> str:
    kind = field.type
    match mask.how:
        case "hmac" if isinstance(kind, Array | Struct):
            return f"hmac expected a single value; {field.name} is {kind}"
        case "truncate" if kind.kind != "string":
            return f"truncate expected text; {field.name} is {kind}"
        case "round" if kind.kind not in ("int", "float"):
            return f"round expected a number; {field.name} is {kind}"
    return ""
