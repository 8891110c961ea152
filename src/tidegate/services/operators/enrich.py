"""`enrich`: adds the columns of a static table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from tidegate.errors import TidegateError
from tidegate.model import Field, Schema
from tidegate.services.findings import Spot
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import add_field, attribute, comparable, derived_schema, single_valued
from tidegate.services.operators.settings import (
    Settings,
    read_names,
    required_setting,
    without_empty,
    write_names,
)
from tidegate.services.schemas import read_schema
from tidegate.services.tables import Table, table_schema

_FORMATS = ("csv", "parquet")


@dataclass(frozen=True)
class Enrich:
    """Add the columns of a static table to the events that agree with a row on attributes."""

    table: Table
    on: tuple[str, ...]
    required: bool = False
    """True: drop events without a row; False: their new attributes are null."""


def _read(spot: Spot) -> Enrich:
    settings = spot.entries(
        ("table", "jdbc", "format", "on", "schema", "required"), "a table, such as {table: cameras.csv, on: cid}"
    )
    schema = read_schema({"schema": settings["schema"]}, settings["schema"]) if "schema" in settings else None
    if "table" in settings and isinstance(settings["table"].value, Mapping):
        table = _read_connected(settings, schema)
    elif "jdbc" in settings:
        inner = settings["jdbc"].entries(("url", "table"), "a table of a database, {url: ..., table: ...}")
        url, name = (required_setting(inner, key, settings["jdbc"]).text(key) for key in ("url", "table"))
        table = Table(None, "jdbc", schema, url, name)
        if "table" in settings:
            settings["table"].report("expected table or jdbc, not both")
    else:
        table = _read_file(settings, schema, spot)
    on = read_names(required_setting(settings, "on", spot))
    return Enrich(table, on, "required" in settings and settings["required"].truth())


def _read_file(settings: Mapping[str, Spot], schema: Schema | None, spot: Spot) -> Table:
    path = required_setting(settings, "table", spot).text("the path of a file, such as cameras.csv")
    format_ = settings["format"].choice(_FORMATS) if "format" in settings else None
    if path and format_ is None and not path.endswith(tuple(f".{ending}" for ending in _FORMATS)):
        settings["table"].refuse("a file that ends in .csv or .parquet, or a format")
    return Table(path, cast("Any", format_), schema)


def _read_connected(settings: Mapping[str, Spot], schema: Schema | None) -> Table:
    """Read a table of a database that is a connection of the profile."""
    spot = settings["table"]
    inner = spot.entries(("connection", "table"), "a table of a connection, {connection: ..., table: ...}")
    connection, name = (required_setting(inner, key, spot).text(key) for key in ("connection", "table"))
    for key in ("jdbc", "format"):
        if key in settings:
            settings[key].report(f"expected {key} or a table of a connection, not both")
    return Table(None, "jdbc", schema, None, name, connection)


def _write(operator: Enrich) -> Settings:
    table = operator.table
    if table.connection is not None:
        where: Settings = {"table": {"connection": table.connection, "table": table.table}}
    elif table.format == "jdbc":
        where = {"jdbc": {"url": table.url, "table": table.table}}
    else:
        where = {"table": table.path, **without_empty(format=table.format)}
    return {
        **where,
        **without_empty(on=write_names(operator.on)),
        **({} if table.schema is None else {"schema": table.schema.to_dict()}),
        **({"required": True} if operator.required else {}),
    }


def _infer(operator: Enrich, inputs: OperatorInputs, spot: Spot) -> Schema | None:
    schema = inputs.schema
    keys = single_valued(operator.on, schema, spot, "on")
    if not operator.on:
        spot.at("on", None).report("expected at least one attribute that the table has too")
    try:
        table = table_schema(operator.table)
    except TidegateError as error:
        spot.at("table" if operator.table.format != "jdbc" else "jdbc", None).report(str(error))
        return None
    for key in keys:
        column = attribute(key.name, table, spot.at("on", None))
        if column is not None and not comparable(key.type, column.type):
            hint = "" if operator.table.schema else "; give the table a schema"
            spot.at("on", None).report(
                f"expected a column of the same type: {key.name} is {key.type}, in the table {column.type}{hint}"
            )
    fields = {field.name: field for field in schema.root}
    for field in table.root:
        if field.name not in operator.on:
            add_field(Field(field.name, field.type, field.required and operator.required), fields, spot)
    return derived_schema(spot, fields.values(), schema.event_time, [(schema, {field.name for field in schema.root})])


DECLARATION = Declaration("enrich", Enrich, "enrich: {table: cameras.csv, on: cid}", _read, _write, _infer)
