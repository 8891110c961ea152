"""`incremental`: aggregates over all events so far, across windows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as spark

from tidegate.model import Schema
from tidegate.model.types import Enum, Type
from tidegate.pipelines.operators import aggregate, windows
from tidegate.pipelines.records import TIME_FORMAT, col
from tidegate.pipelines.types import to_spark
from tidegate.services.operators import Aggregation, Incremental, TimeWindow

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

_WRITING = {"ignoreNullFields": "false", "timestampFormat": TIME_FORMAT}


@dataclass
class Running:
    """Aggregates over the events so far, as JSON values."""

    count: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    least: dict[str, list[Any]] = field(default_factory=dict)
    """By attribute: rank, id and event of the smallest value."""
    greatest: dict[str, list[Any]] = field(default_factory=dict)
    arrived: int = 0

    @classmethod
    def of(cls, event: Mapping[str, Any], kinds: Mapping[str, Type]) -> Running:
        """Return the aggregates of one event; `kinds` are the types of the aggregated attributes."""
        values = {name: event[name] for name in kinds if event[name] is not None}
        entries = {name: [_rank(value, kinds[name]), event["_id"], event] for name, value in values.items()}
        numbers = {name: _number(value) for name, value in values.items() if kinds[name].kind in ("int", "float")}
        return cls(1, dict.fromkeys(values, 1), numbers, entries, dict(entries), event["_arrived"])

    def join(self, later: Running) -> None:
        """Add the aggregates of later events."""
        self.count += later.count
        self.arrived = max(self.arrived, later.arrived)
        for name, n in later.counts.items():
            self.counts[name] = self.counts.get(name, 0) + n
        for name, total in later.sums.items():
            self.sums[name] = self.sums.get(name, 0) + total
        for name, entry in later.least.items():
            self.least[name] = min(entry, self.least.get(name, entry), key=_order)
        for name, entry in later.greatest.items():
            self.greatest[name] = max(entry, self.greatest.get(name, entry), key=_order)

    def result(self, aggregations: Sequence[Aggregation]) -> dict[str, Any]:
        """Return the attributes of an output event."""
        values: dict[str, Any] = {}
        for aggregation in aggregations:
            if aggregation.attribute is None:
                values[str(aggregation.name)] = self.count
                continue
            extreme = (self.least if aggregation.function == "min" else self.greatest).get(aggregation.attribute)
            match aggregation.function:
                case "count":
                    values[str(aggregation.name)] = self.counts.get(aggregation.attribute, 0)
                case "sum":
                    values[str(aggregation.name)] = self.sums.get(aggregation.attribute)
                case "avg":
                    n = self.counts.get(aggregation.attribute, 0)
                    values[str(aggregation.name)] = self.sums[aggregation.attribute] / n if n else None
                case _ if aggregation.name is not None:
                    values[aggregation.name] = extreme[2][aggregation.attribute] if extreme else None
                case _ if extreme:
                    values |= {name: value for name, value in extreme[2].items() if not name.startswith("_")}
        return values


def _order(entry: list[Any]) -> list[Any]:
    """Return the sort key of an entry: rank, then id, so that the order of events does not matter."""
    return entry[:2]


def _rank(value: Any, kind: Type) -> Any:
    """Return the sort key of a value: enums by position, NaN above all numbers."""
    if isinstance(kind, Enum):
        return kind.labels.index(value)
    if kind.kind == "float":
        number = _number(value)
        return [1, 0.0] if math.isnan(number) else [0, number]
    return value


def _number(value: Any) -> float:
    """Parse a number in Spark's JSON, in which NaN and infinities are texts."""
    return float(value) if isinstance(value, str) else value


def apply(frame: DataFrame, operator: Incremental, before: Schema, after: Schema) -> DataFrame:
    """Return the aggregates over all events so far, at every change or at the end of each window."""
    if operator.window is None:
        return aggregate.apply_running(frame, operator, before, after)
    assert isinstance(operator.window, TimeWindow)  # only the state engine has windows by count
    return _at_windows(frame, operator, operator.window, before, after)


def _at_windows(
    frame: DataFrame, operator: Incremental, window: TimeWindow, before: Schema, after: Schema
) -> DataFrame:
    """Aggregate across windows. Spark's aggregates end with their window, so our own state has the totals, as JSON."""
    micros = round(window.slide_s * 1e6)
    moment = F.unix_micros("_clock")
    own = ["_id", "_arrived"]
    event = F.struct(*(F.col(name) for name in own), *(col(attribute.name) for attribute in before.root))
    rows = windows.watermark(frame, window.lateness_s).select(
        windows.key_text(operator.by).alias("key"),
        F.to_json(F.struct(*(col(name) for name in operator.by)), _WRITING).alias("keys"),
        (moment - F.pmod(moment, F.lit(micros)) + micros).alias("end"),
        F.col("_source").alias("source"),
        F.col("_position").alias("position"),
        F.to_json(event, _WRITING).alias("row"),
        "_clock",
    )
    aggregations = operator.aggregations
    aggregated = {aggregation.attribute for aggregation in aggregations}
    kinds = {attribute.name: attribute.type for attribute in before.root if attribute.name in aggregated}

    def fold(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        import pandas as pd

        stored = json.loads(state.get[0]) if state.exists else {"keys": None, "total": {}, "open": {}}
        total = Running(**stored["total"])
        opened = {int(end): Running(**running) for end, running in stored["open"].items()}
        results: list[tuple[str, int, str, int]] = []
        if not state.hasTimedOut:
            arrived = pd.concat(list(frames)).sort_values(["source", "position"])
            for keys, end, row in zip(arrived["keys"], arrived["end"], arrived["row"], strict=True):
                stored["keys"] = stored["keys"] or json.loads(keys)
                opened.setdefault(int(end), Running()).join(Running.of(json.loads(row), kinds))
        closed_ms = state.getCurrentWatermarkMs()
        for end in sorted(opened):
            if end > closed_ms * 1_000:
                break
            total.join(opened.pop(end))
            row = json.dumps({**(stored["keys"] or {}), **total.result(aggregations)})
            results.append((key[0], end, row, total.arrived))
        stored["total"], stored["open"] = vars(total), {end: vars(running) for end, running in opened.items()}
        state.update((json.dumps(stored),))
        if opened:
            state.setTimeoutTimestamp(max(min(opened) // 1_000, closed_ms + 1))
        yield pd.DataFrame(results, columns=["key", "end", "row", "arrived"])

    output = "key string, end long, row string, arrived long"
    closed = rows.groupBy("key").applyInPandasWithState(fold, output, "state string", "append", "EventTimeTimeout")
    return _results(closed, micros, after)


def _results(closed: DataFrame, window_us: int, after: Schema) -> DataFrame:
    """Turn closed windows, with their aggregates as JSON, into events."""
    kind = spark.StructType([spark.StructField(f.name, f.dataType) for f in to_spark(after)])
    opened = closed.select(
        F.from_json("row", kind, {"timestampFormat": TIME_FORMAT}).alias("e"),
        F.timestamp_micros(F.col("end") - window_us).alias("window_start"),
        F.timestamp_micros("end").alias("window_end"),
        F.timestamp_micros("end").alias("_clock"),
        F.concat("key", F.lit("@"), windows.time_text(F.timestamp_micros("end"))).alias("_key"),
        F.col("arrived"),
    )
    attributes = {
        f.name: F.col(f.name) if f.name in ("window_start", "window_end") else F.col("e").getField(f.name)
        for f in after.root
    }
    return windows.results(opened, attributes, {"_arrived": F.col("arrived")})
