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
    """The values of the keys as one text, safe inside an id."""
    parts = [F.coalesce(escaped(col(name).cast("string"), "%#@|"), F.lit("%00")) for name in by]
    return F.concat_ws("|", *parts) if parts else F.lit("*")


def key_value(key: Column, number: int, kind: Type) -> Column:
    """The value of one attribute of what `key_text` wrote."""
    text = F.get(F.split(key, r"\|"), F.lit(number))
    value = text
    for mark in reversed("%#@|"):
        value = F.replace(value, F.lit(f"%{ord(mark):02X}"), F.lit(mark))
    return F.when(text != F.lit("%00"), value.try_cast(spark_type(kind)))


def escaped(text: Column, marks: str) -> Column:
    """A text without some marks, `%` the first of them, and no other text the same."""
    for mark in marks:
        text = F.replace(text, F.lit(mark), F.lit(f"%{ord(mark):02X}"))
    return text


def rank(value: Column, kind: Type) -> Column:
    """What values are ordered by: enums by the position of their label."""
    return F.array_position(F.array(*map(F.lit, kind.labels)), value) if isinstance(kind, Enum) else value


def time_text(moment: Column) -> Column:
    """A moment as ids hold it."""
    return F.date_format(moment, TIME_FORMAT)
