"""JSON's values as those of our types, and what is wrong with them.

Spark's reader of JSON is lenient where our types are not: 200 becomes the int8
-56, `12:00` a moment of today, 1.5 the uint64 2. So such types are read as a
wider one or as text, held to what they are, and only then made of it.
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
"""How many characters of a value are shown."""

_READ: dict[str, spark.DataType] = {
    "int8": spark.ShortType(),
    "uint64": spark.StringType(),
    "float32": spark.DoubleType(),
    "timestamp": spark.StringType(),
}
"""What Spark's reader of JSON would take too much as."""

_FIRST, _LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"

Check = tuple[Column, Column]
"""When something is wrong, and what."""


def wire_type(kind: Type) -> spark.DataType:
    """Give the type that JSON is read as."""
    match kind:
        case Array(item=item):
            return spark.ArrayType(wire_type(item))
        case Struct():
            return spark.StructType([spark.StructField(each.name, wire_type(each.type)) for each in kind])
        case Scalar(name=name) if name in _READ:
            return _READ[name]
    return spark_type(kind)


def typed(value: Column, kind: Type) -> Column:
    """Make a value of what was read; null where there is none."""
    if wire_type(kind) == _plain(spark_type(kind)):
        return value
    match kind:
        case Array(item=item):
            return F.transform(value, lambda each: typed(each, item))
        case Struct():
            parts = [typed(value.getField(each.name), each.type).alias(each.name) for each in kind]
            return F.when(value.isNotNull(), F.struct(*parts))
        case Scalar(name="uint64"):
            number = F.when(value.rlike("^[0-9]{1,20}$"), value.try_cast("decimal(20,0)"))
            return F.when(number <= F.lit(str(INTEGER_RANGES["uint64"][1])).cast("decimal(20,0)"), number)
        case Scalar(name="timestamp"):
            return _moment(value)
    return value.try_cast(spark_type(kind))


def written(value: Column, kind: Type) -> Column:
    """A value as it is written: JSON has no NaN and no infinity, so that they are missing."""
    match kind:
        case Scalar(kind="float"):
            return F.when(F.abs(value) < float("inf"), value)
        case Array(item=item) if _has_floats(item):
            return F.transform(value, lambda each: written(each, item))
        case Struct() if _has_floats(kind):
            parts = [written(value.getField(each.name), each.type).alias(each.name) for each in kind]
            return F.when(value.isNotNull(), F.struct(*parts))
    return value


def _has_floats(kind: Type) -> bool:
    match kind:
        case Array(item=item):
            return _has_floats(item)
        case Struct():
            return any(_has_floats(each.type) for each in kind)
    return kind.kind == "float"


def _plain(kind: spark.DataType) -> spark.DataType:
    """A type without what our schemas say of its fields."""
    match kind:
        case spark.StructType():
            return spark.StructType([spark.StructField(each.name, _plain(each.dataType)) for each in kind])
        case spark.ArrayType():
            return spark.ArrayType(_plain(kind.elementType))
    return kind


def _moment(text: Column) -> Column:
    """A moment: one that has a date, of a year that RFC 3339 can write."""
    dated = (F.substring(text, 5, 1) == "-") & (F.substring(text, 8, 1) == "-")
    moment = text.try_cast("timestamp")
    inside = moment.between(F.lit(_FIRST).cast("timestamp"), F.lit(_LAST).cast("timestamp"))
    return F.when(dated & inside, moment)


def checks(field: Field, value: Column, path: str, shows: bool) -> Iterator[Check]:
    """What may be wrong with a value that was read; what was found in its place only where that `shows`."""
    if field.required:
        yield value.isNull(), F.lit(f"{path}: expected {notation(field)}, but it is missing")
    match field.type:
        case Struct() as kind:
            for inner in kind:
                for wrong, text in checks(inner, value.getField(inner.name), f"{path}.{inner.name}", shows):
                    yield value.isNotNull() & wrong, text
        case Array(item=item, bound=bound):
            if bound is not None:
                found = F.size(value).cast("string")
                yield F.size(value) > bound, F.concat(F.lit(f"{path}: expected at most {bound} elements, not "), found)
            yield from _element_checks(item, value, path, shows)
        case Scalar() | Enum() as kind:
            misfit = _misfit(value, kind)
            if misfit is not None:
                expected = F.lit(f"{path}: expected {_expected(kind)}, not ")
                yield misfit, F.concat(expected, shown(value.cast("string"), shows))


def _element_checks(item: Type, value: Column, path: str, shows: bool) -> Iterator[Check]:
    def found(element: Column) -> list[Check]:
        return list(checks(Field("", item, required=False), element, f"{path}[]", shows))

    if found(F.lit(None)):
        wrong = F.filter(value, lambda each: any_of(found(each)))
        yield F.size(wrong) > 0, F.get(F.transform(wrong, lambda each: texts(found(each))), F.lit(0))


def _misfit(value: Column, kind: Scalar | Enum) -> Column | None:
    """When a single value that was read is none of its type; None where it always is."""
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
    """Find an attribute that is in a text (`written`) and could not be read."""
    expected = F.lit(f"{path}: expected {notation(field)}, not ")
    yield value.isNull() & written.isNotNull(), F.concat(expected, shown(written, shows))
    if isinstance(field.type, Struct):
        parts = members(written)
        for inner in field.type:
            inside = unread(inner, value.getField(inner.name), member(parts, inner.name), f"{path}.{inner.name}", shows)
            for wrong, text in inside:
                yield value.isNotNull() & wrong, text


def members(text: Column) -> Column:
    """The members of a JSON object, as texts."""
    return F.from_json(text, spark.MapType(spark.StringType(), spark.StringType()), {"allowSingleQuotes": "false"})


def member(of: Column, name: str) -> Column:
    """One of the members."""
    return F.try_element_at(of, F.lit(name))


def shown(text: Column, shows: bool) -> Column:
    """The beginning of a text, or that it is hidden."""
    return F.substring(text, 1, SHOWN) if shows else F.lit("a hidden value")


def any_of(found: Iterable[Check]) -> Column:
    """Whether anything is wrong."""
    return reduce(operator.or_, (F.coalesce(wrong, F.lit(False)) for wrong, _ in found), F.lit(False))


def texts(found: Iterable[Check]) -> Column:
    """All that is wrong, as one text."""
    return F.concat_ws("; ", *(F.when(wrong, text) for wrong, text in found), F.lit(None).cast("string"))
