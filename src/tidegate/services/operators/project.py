"""`project`: selects, renames and computes attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tidegate.errors import LanguageError, SchemaError
from tidegate.model import Field, Schema
from tidegate.services import expressions
from tidegate.services.findings import Spot
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import TIMESTAMP, derived_schema, report_text
from tidegate.services.operators.settings import Settings


@dataclass(frozen=True)
class Computed:
    """One attribute of a projection: an expression, with a default for events for which it has no result."""

    expression: str
    """`speed`, `pos.x`, `speed * 3.6`, `concat(cid, '-', vid)`."""
    default: Any = None
    """The value if the expression has no result."""
    type: str | None = None
    """The type that the result is cast to; None: that of the expression."""


@dataclass(frozen=True)
class Project:
    """Replace the attributes of each event: selected, renamed, computed, or with a default."""

    attributes: Mapping[str, Computed]
    keep: bool = False
    """True: the other attributes stay."""


def _read(spot: Spot) -> Project:
    value, keep, attributes = spot.value, False, spot
    if isinstance(value, Mapping) and isinstance(value.get("select"), Mapping) and set(value) <= {"select", "keep"}:
        settings = spot.entries(("select", "keep"), "attributes")
        attributes, keep = settings["select"], "keep" in settings and settings["keep"].truth()
    pairs = attributes.pairs("attributes with their expressions, such as {kmh: 'speed * 3.6'}")
    return Project(
        MappingProxyType({name: _read_computed(name, value_spot) for name, value_spot in pairs.items()}), keep
    )


def _read_computed(name: str, spot: Spot) -> Computed:
    if not isinstance(spot.value, Mapping):
        return Computed(_read_expression(spot))
    settings = spot.entries(("value", "default", "type"), "an expression")
    own = name if re.fullmatch(r"[^\W\d]\w*", name) else '"' + name.replace('"', '""') + '"'
    default = settings["default"].value if "default" in settings else None
    if isinstance(default, list | Mapping):
        settings["default"].refuse("a single value")
    return Computed(
        _read_expression(settings["value"]) if "value" in settings else own,
        default,
        settings["type"].text("the name of a type, such as int32") if "type" in settings else None,
    )


def _read_expression(spot: Spot) -> str:
    """Read an expression. A number or a truth value is its own expression."""
    match spot.value:
        case bool():
            return str(spot.value).lower()
        case int() | float():
            return repr(spot.value)
    return spot.text("an expression, such as speed or 'speed * 3.6'")


def _write(operator: Project) -> Settings:
    select = {name: _write_computed(attribute) for name, attribute in operator.attributes.items()}
    if operator.keep:
        return {"select": select, "keep": True}
    return {"select": select} if "select" in select else select


def _write_computed(computed: Computed) -> Any:
    extras = {"default": computed.default, "type": computed.type}
    extras = {name: value for name, value in extras.items() if value is not None}
    return {"value": computed.expression, **extras} if extras else computed.expression


def _infer(operator: Project, inputs: OperatorInputs, spot: Spot) -> Schema | None:
    schema = inputs.schema
    before = len(spot.findings.problems)
    if not operator.attributes:
        spot.report("expected at least one attribute")
    fields = {field.name: field for field in schema.root} if operator.keep else {}
    unchanged = set(fields)
    renamed: dict[str, str] = {}
    for name, computed in operator.attributes.items():
        resolved = _resolve(name, computed, schema, spot.at("select", None) if operator.keep else spot)
        if resolved is None:
            continue
        fields[name] = Field(name, resolved.type, resolved.required)
        source = resolved.attribute if computed.default is None else None
        unchanged.discard(name)
        if source == name:
            unchanged.add(name)
        elif source is not None:
            renamed.setdefault(source, name)
    if len(spot.findings.problems) > before:
        return None
    time = _event_time(schema, fields, renamed)
    return derived_schema(spot, fields.values(), time, [(schema, unchanged)], renamed)


def _resolve(name: str, computed: Computed, schema: Schema, spot: Spot) -> expressions.Expression | None:
    where = spot.at(name, None)
    if name.startswith("_"):
        where.report("names that start with _ are reserved")
    try:
        return expressions.resolve(computed.expression, schema, type=computed.type, default=computed.default)
    except LanguageError as error:
        report_text(error, where)
    except SchemaError as error:
        where.at("type", None).report(error.message)
    return None


def _event_time(schema: Schema, fields: Mapping[str, Field], renamed: Mapping[str, str]) -> str | None:
    """Return the event time after a projection: under its own name, else under its first new name."""
    for name in (schema.event_time, renamed.get(schema.event_time or "")):
        if name is not None and name in fields and fields[name].type == TIMESTAMP:
            return name
    return None


DECLARATION = Declaration("project", Project, "project: {cid: cid, kmh: 'speed * 3.6'}", _read, _write, _infer)
