"""The clock of each source partition in a batch: a column of the source's own task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.functions import arrow_udf

from tidegate.pipelines.plain.state.watermark import TickClock


def source_clock(time: Column) -> Column:
    """Return the text of a `TickClock` for ticks, and null for records.

    `time` is null if a record can't be read. The other columns are those of `records.SourceClock`. Ticks come after the
    records.
    """
    # Otherwise Spark might evaluate it for the rows that a later filter leaves.
    function: Any = arrow_udf(_clocks, "string")  # type: ignore[call-overload]
    column: Column = function.asNondeterministic()(F.col("tick"), F.col("caught_up"), time, F.col("_arrived"))
    return column


def _clocks(batches: Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
    largest: int | None = None
    delay: int | None = None
    last: int | None = None
    count = 0
    for columns in batches:
        clocks: list[str | None] = []
        for tick, caught_up, time, arrived in zip(*(column.to_pylist() for column in columns), strict=True):
            if tick is not None:
                clocks.append(TickClock(largest, delay, count, last, caught_up).text())
                continue
            clocks.append(None)
            if time is not None:
                largest = time if largest is None else max(largest, time)
                delay = max(delay or 0, arrived - time)
                last, count = arrived, count + 1
        yield pa.array(clocks, pa.string())
