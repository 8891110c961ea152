"""Rules that the schema inference of several operators shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.errors import LanguageError, SchemaError, did_you_mean
from tidegate.filters import Filter as CheckedFilter
from tidegate.model import Field, Schema, Struct
from tidegate.model.types import Array, Scalar, Type
from tidegate.services.findings import NONE, Spot

TIMESTAMP = Scalar("timestamp")


def attribute(name: str, schema: Schema, spot: Spot) -> Field | None:
    """Return an attribute of a schema; reports one that does not exist, and then returns None."""
    field = schema.root.get(name)
    if field is None:
        names = [field.name for field in schema.root]
        outer = schema.root.get(name.partition(".")[0]) if "." in name else None
        if outer is not None:
            hint = f"; project a part of one first: {{x: {name}}}"
        else:
            hint = did_you_mean(name, names) or f"; expected one of {', '.join(names[:8])}"
        spot.report(f"unknown attribute {name!r}{hint}")
    return field


def single_valued(names: Iterable[str], schema: Schema, spot: Spot, key: str) -> list[Field]:
    """Return attributes that hold single values; reports those that don't, don't exist, or occur twice."""
    names = list(names)
    fields: list[Field] = []
    for n, name in enumerate(names):
        where = spot.at(key, None).at(n, None) if len(names) > 1 else spot.at(key, None)
        field = attribute(name, schema, where)
        if field is not None and isinstance(field.type, Array | Struct):
            where.report(f"expected an attribute with a single value; {name} is {field.type}")
        elif field is not None:
            fields.append(field)
    for name in sorted({name for name in names if names.count(name) > 1}):
        spot.at(key, None).report(f"expected {name!r} once")
    return fields


def add_field(field: Field, fields: dict[str, Field], spot: Spot) -> None:
    """Add an attribute to those of an output; reports a name that is taken or reserved."""
    if field.name in fields:
        spot.report(f"expected names that differ: there are two {field.name!r}; name or project one otherwise")
    elif field.name.startswith("_"):
        spot.report(f"names that start with _ are reserved, unlike {field.name!r}")
    fields[field.name] = field


def need_event_time(schema: Schema, spot: Spot, why: str) -> None:
    """Report a schema without an event time."""
    if schema.event_time is None:
        timestamps = [field.name for field in schema.root if field.type == TIMESTAMP]
        named = f" (there is {', '.join(timestamps)})" if timestamps else ""
        spot.report(
            f"expected an event time {why}, and there is none here: name a timestamp attribute as the stream's "
            f"event_time, keep it in every project before, or give custom an event_time{named}"
        )


def comparable(one: Type, other: Type) -> bool:
    """Return True if values of two types may be equal: integers, text and characters, else only equal types."""
    groups = ({"int"}, {"string", "char"})
    return one == other or any(one.kind in group and other.kind in group for group in groups)


def joined_name(stream: str, attribute: str) -> str:
    """Return the name of an attribute of another input if an earlier input has an attribute of the same name.

    >>> joined_name("gps-b", "time")
    'gps_b_time'
    """
    return f"{''.join(letter if letter.isalnum() else '_' for letter in stream)}_{attribute}"


def note_filter(text: str, params: tuple[str, ...], schema: Schema, spot: Spot) -> None:
    """Report every problem of a filter over a schema."""
    try:
        checked = CheckedFilter(text, schema, params, strict_params=True)
    except LanguageError as error:
        report_text(error, spot)
        return
    if checked.tree.is_semantic:
        spot.report("a pipeline does not compare by meaning (~): subscribe with it to what the pipeline puts out")


def report_text(error: LanguageError, spot: Spot) -> None:
    """Report every problem of a text in one line each."""
    for problem in error.problems:
        spot.report(f"{problem.message}: in {error.text!r} at {problem.at + 1}")


def derived_schema(
    spot: Spot,
    fields: Iterable[Field],
    event_time: str | None,
    sources: Iterable[tuple[Schema, Iterable[str]]],
    renamed: Mapping[str, str] = NONE,
) -> Schema | None:
    """Return a schema with the constraints and terms of all attributes that pass unchanged.

    `sources` has each input's schema with the names of its unchanged attributes. `renamed` has new names of attributes
    that keep their terms. Reports attributes that make no schema, and then returns None.
    """
    constraints: dict[str, str] = {}
    terms: dict[str, Mapping[str, str]] = {}
    for schema, unchanged in sources:
        names = set(unchanged)
        constraints |= {key: text for key, text in schema.constraints.items() if _top(key, schema) in names}
        terms |= {key: term for key, term in schema.terms.items() if _top(key, schema) in names}
        terms |= {renamed[key]: term for key, term in schema.terms.items() if key in renamed}
    try:
        return Schema(Struct(tuple(fields)), constraints=constraints, terms=terms, event_time=event_time)
    except SchemaError as error:
        spot.report(str(error))
        return None


def _top(key: str, schema: Schema) -> str:
    """Return the attribute that a constraint or term belongs to: `pos` of `pos.x`."""
    return key if schema.root.get(key) is not None else key.partition(".")[0].partition("[")[0]
