"""What operators with state share: keys as texts, ranks, and times as ids hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model.types import Enum, Type
from tidegate.pipelines.records import TIME_FORMAT, col
from tidegate.pipelines.types import spark_type

if TYPE_CHECKING:
    pass


def key_text(by: Sequence[str]) -> Column:
    """Return the values of the key attributes as one text, with separators of ids escaped."""
    parts = [F.coalesce(escaped(col(name).cast("string"), "%#@|"), F.lit("%00")) for name in by]
    return F.concat_ws("|", *parts) if parts else F.lit("*")


def key_value(key: Column, number: int, kind: Type) -> Column:
    """Return the value of one attribute in a text of `key_text`; null if it was missing."""
    text = F.get(F.split(key, r"\|"), F.lit(number))
    value = text
    for mark in reversed("%#@|"):
        value = F.replace(value, F.lit(f"%{ord(mark):02X}"), F.lit(mark))
    return F.when(text != F.lit("%00"), value.try_cast(spark_type(kind)))


def escaped(text: Column, marks: str) -> Column:
    """Percent-encode these characters of a text. `marks` begins with `%`, so that different texts stay different."""
    for mark in marks:
        text = F.replace(text, F.lit(mark), F.lit(f"%{ord(mark):02X}"))
    return text


def rank(value: Column, kind: Type) -> Column:
    """Return the sort key of a value: for enums the position of the label."""
    return F.array_position(F.array(*map(F.lit, kind.labels)), value) if isinstance(kind, Enum) else value


def time_text(moment: Column) -> Column:
    """Return a time in the form that ids contain."""
    return F.date_format(moment, TIME_FORMAT)
