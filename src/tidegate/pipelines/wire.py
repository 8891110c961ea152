"""Converts JSON values to our types, and finds values that do not fit.

Spark's JSON reader is more lenient than our types: 200 becomes the int8 -56, `12:00` a time of today, 1.5 the uint64 2.
So such types are read as a wider type or as text, checked, and then cast.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as spark

from tidegate.model.events import GREATEST_FLOAT32
from tidegate.model.types import INTEGER_RANGES, Array, Enum, Field, Scalar, Struct, Type, notation
from tidegate.pipelines.types import spark_type

SHOWN = 60
"""Longest part of a value that messages quote, in characters."""

_READ: dict[str, spark.DataType] = {
    "int8": spark.ShortType(),
    "uint64": spark.StringType(),
    "float32": spark.DoubleType(),
    "timestamp": spark.StringType(),
}
"""Types that Spark's JSON reader would accept too many values for, and the types that are read instead."""

_FIRST, _LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"

Check = tuple[Column, Column]
"""A condition that is true for bad values, and the message."""


def wire_type(kind: Type) -> spark.DataType:
    """Return the type that JSON is read as."""
    match kind:
        case Array(item=item):
            return spark.ArrayType(wire_type(item))
        case Struct():
            return spark.StructType([spark.StructField(field.name, wire_type(field.type)) for field in kind])
        case Scalar(name=name) if name in _READ:
            return _READ[name]
    return spark_type(kind)


def typed(value: Column, kind: Type) -> Column:
    """Return the value with its type; null if it does not fit."""
    if wire_type(kind) == _plain(spark_type(kind)):
        return value
    match kind:
        case Array(item=item):
            return F.transform(value, lambda element: typed(element, item))
        case Struct():
            parts = [typed(value.getField(field.name), field.type).alias(field.name) for field in kind]
            return F.when(value.isNotNull(), F.struct(*parts))
        case Scalar(name="uint64"):
            number = F.when(value.rlike("^[0-9]{1,20}$"), value.try_cast("decimal(20,0)"))
            return F.when(number <= F.lit(str(INTEGER_RANGES["uint64"][1])).cast("decimal(20,0)"), number)
        case Scalar(name="timestamp"):
            return _timestamp(value)
    return value.try_cast(spark_type(kind))


def written(value: Column, kind: Type) -> Column:
    """Return a value for writing, with null instead of NaN and infinity, which JSON does not have."""
    match kind:
        case Scalar(kind="float"):
            return F.when(F.abs(value) < float("inf"), value)
        case Array(item=item) if _has_floats(item):
            return F.transform(value, lambda element: written(element, item))
        case Struct() if _has_floats(kind):
            parts = [written(value.getField(field.name), field.type).alias(field.name) for field in kind]
            return F.when(value.isNotNull(), F.struct(*parts))
    return value


def _has_floats(kind: Type) -> bool:
    match kind:
        case Array(item=item):
            return _has_floats(item)
        case Struct():
            return any(_has_floats(field.type) for field in kind)
    return kind.kind == "float"


def _plain(kind: spark.DataType) -> spark.DataType:
    """Return a type without the metadata of its fields."""
    match kind:
        case spark.StructType():
            return spark.StructType([spark.StructField(field.name, _plain(field.dataType)) for field in kind])
        case spark.ArrayType():
            return spark.ArrayType(_plain(kind.elementType))
    return kind


def _timestamp(text: Column) -> Column:
    """Return a text as a timestamp; null if it has no date, or a year that RFC 3339 does not have."""
    dated = (F.substring(text, 5, 1) == "-") & (F.substring(text, 8, 1) == "-")
    timestamp = text.try_cast("timestamp")
    inside = timestamp.between(F.lit(_FIRST).cast("timestamp"), F.lit(_LAST).cast("timestamp"))
    return F.when(dated & inside, timestamp)


def checks(field: Field, value: Column, path: str, shows: bool) -> Iterator[Check]:
    """Yield the checks of a value that was read. Messages quote values only if `shows` is true."""
    if field.required:
        yield value.isNull(), F.lit(f"{path}: expected {notation(field)}, but it is missing")
    match field.type:
        case Struct() as kind:
            for inner in kind:
                for wrong, text in checks(inner, value.getField(inner.name), f"{path}.{inner.name}", shows):
                    yield value.isNotNull() & wrong, text
        case Array(item=item, bound=bound):
            if bound is not None:
                size = F.size(value).cast("string")
                yield F.size(value) > bound, F.concat(F.lit(f"{path}: expected at most {bound} elements, not "), size)
            yield from _element_checks(item, value, path, shows)
        case Scalar() | Enum() as kind:
            misfit = _misfit(value, kind)
            if misfit is not None:
                expected = F.lit(f"{path}: expected {_expected(kind)}, not ")
                yield misfit, F.concat(expected, shown(value.cast("string"), shows))


def _element_checks(item: Type, value: Column, path: str, shows: bool) -> Iterator[Check]:
    def element_checks(element: Column) -> list[Check]:
        return list(checks(Field("", item, required=False), element, f"{path}[]", shows))

    if element_checks(F.lit(None)):
        wrong = F.filter(value, lambda element: any_of(element_checks(element)))
        messages = F.transform(wrong, lambda element: texts(element_checks(element)))
        yield F.size(wrong) > 0, F.get(messages, F.lit(0))


def _misfit(value: Column, kind: Scalar | Enum) -> Column | None:
    """Return the condition that a scalar does not fit its type; None if every value that was read fits."""
    if isinstance(kind, Enum):
        return ~value.isin(*kind.labels)
    match kind.name:
        case "uint64" | "timestamp":
            return value.isNotNull() & typed(value, kind).isNull()
        case "float32":
            return (F.abs(value) > GREATEST_FLOAT32) & (F.abs(value) < float("inf"))
        case "char":
            return F.char_length(value) != 1
        case "int8" | "uint8" | "uint16" | "uint32":
            return ~value.between(*INTEGER_RANGES[kind.name])
    return None


def _expected(kind: Scalar | Enum) -> str:
    if isinstance(kind, Enum):
        return f"one of {', '.join(kind.labels)}"
    match kind.kind:
        case "int":
            low, high = INTEGER_RANGES[kind.name]
            return f"{kind.name}, {low} to {high}"
        case "char":
            return "one character"
        case "time":
            return "a timestamp such as 2026-01-31T12:00:00Z"
    return kind.name


def unread(field: Field, value: Column, written: Column, path: str, shows: bool) -> Iterator[Check]:
    """Yield checks for attributes that are in the text of a record (`written`) and could not be read."""
    expected = F.lit(f"{path}: expected {notation(field)}, not ")
    yield value.isNull() & written.isNotNull(), F.concat(expected, shown(written, shows))
    if isinstance(field.type, Struct):
        parts = members(written)
        for inner in field.type:
            inside = unread(inner, value.getField(inner.name), member(parts, inner.name), f"{path}.{inner.name}", shows)
            for wrong, text in inside:
                yield value.isNotNull() & wrong, text


def members(text: Column) -> Column:
    """Return the members of a JSON object as a map of texts."""
    return F.from_json(text, spark.MapType(spark.StringType(), spark.StringType()), {"allowSingleQuotes": "false"})


def member(of: Column, name: str) -> Column:
    """Return one member of a map of `members`."""
    return F.try_element_at(of, F.lit(name))


def shown(text: Column, shows: bool) -> Column:
    """Return the start of a text for a message, or "a hidden value"."""
    return F.substring(text, 1, SHOWN) if shows else F.lit("a hidden value")


def any_of(checks: Iterable[Check]) -> Column:
    """Return a condition that is true if any check fails."""
    return reduce(operator.or_, (F.coalesce(wrong, F.lit(False)) for wrong, _ in checks), F.lit(False))


def texts(checks: Iterable[Check]) -> Column:
    """Return the messages of all checks that fail as one text."""
    return F.concat_ws("; ", *(F.when(wrong, text) for wrong, text in checks), F.lit(None).cast("string"))
