"""Services compiled over static records, or over files as micro-batches: what a writer would get."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.model import Schema, timestamps
from tidegate.services import check, loads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.pipelines.resources import RunnerResources

KEY = b"a secret of the tests"
START = 1_767_225_600_000_000
"""2026-01-01."""
OBSTACLE = "the test runs batches"
"""Why nothing is real-time: a static frame has no ticks."""
COLUMNS = "partition string, position long, arrived long, value string, tick int, caught_up long"
AFTER_SILENCE = START + 10**15
"""Closes every window: the source was silent for years."""

Lines = Sequence[str | Mapping[str, Any]]


@dataclass(frozen=True)
class Written:
    """One row that a writer gets."""

    verdict: str
    key: str | None
    revision: int
    child: int
    id: str
    source: str | None
    text: str

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text)
        return found

    def has(self, *names: str) -> tuple[Any, ...]:
        return tuple(self.body[name] for name in names)


def moment(second: float) -> str:
    return timestamps.to_text(START + round(second * 1e6))


def table(lines: Lines, partition: str = "0", first: int = 0, caught_up: int | None = None) -> pa.Table:
    """Records as a source gives them, and a tick, if `caught_up`, that all was read then."""
    values = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    places = range(first, first + len(values))
    records = pa.table(
        {
            "partition": pa.array([partition] * len(values), pa.string()),
            "position": pa.array(places, pa.int64()),
            "arrived": pa.array([START + n for n in places], pa.int64()),
            "value": pa.array(values, pa.string()),
            "tick": pa.nulls(len(values), pa.int32()),
            "caught_up": pa.nulls(len(values), pa.int64()),
        }
    )
    if caught_up is None:
        return records
    tick = [[partition], [first + len(values)], [caught_up], [None], [0], [caught_up]]
    return pa.concat_tables([records, pa.table(tick, schema=records.schema)])


def scanned(spark: SparkSession, lines: Lines, ticks: int = 0) -> DataFrame:
    """Records as a static frame, in one task; with ticks its source falls silent."""
    return spark.createDataFrame(table(lines, caught_up=AFTER_SILENCE if ticks else None)).coalesce(1)


def run(spark: SparkSession, text: str, remote: RunnerResources | None = None, /, **streams: Lines) -> list[Written]:
    """All that the one service of a file gives for its inputs.

    `remote`: it came over the network, and may use these resources.
    """
    service, inputs = _service(text)
    from tidegate.pipelines.compiler import compile_service

    if remote is not None:
        service = replace(service, origin="remote")
    compiled = compile_service(
        service,
        inputs,
        lambda name, _, ticks, __: scanned(spark, streams[name], ticks),
        key=KEY,
        obstacle=OBSTACLE,
        resources=remote,
    )
    return _rows(compiled.frame)


def stream(spark: SparkSession, folder: Path, text: str, batches: Sequence[Mapping[str, Lines]]) -> list[Written]:
    """Return the output of a service with one input, whose records arrive in batches of lines by partition.

    After the last batch its source is silent.
    """
    from pyarrow import parquet

    from tidegate.pipelines.compiler import compile_service

    service, inputs = _service(text)
    source = folder / "in"
    source.mkdir(parents=True)
    reached: dict[str, int] = {}
    for n, batch in enumerate(batches):
        pieces = []
        for partition, lines in batch.items():
            first = reached.get(partition, 0)
            silence = AFTER_SILENCE if n == len(batches) - 1 else START
            pieces.append(table(lines, partition, first, silence))
            reached[partition] = first + len(lines)
        file = source / f"{n}.parquet"
        parquet.write_table(pa.concat_tables(pieces), file)
        os.utime(file, (1_000_000 + n, 1_000_000 + n))

    def scan(_name: str, _following: object, _ticks: int, _reading: int) -> DataFrame:
        return spark.readStream.name("input").schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))

    compiled = compile_service(service, inputs, scan, key=KEY, obstacle=OBSTACLE)
    name = f"memory_{abs(hash(folder))}"
    query = (
        compiled.frame.writeStream.format("memory")
        .queryName(name)
        .outputMode(compiled.plan.output)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return _rows(spark.table(name))


def _service(text: str) -> tuple[Any, Mapping[str, Schema]]:
    definitions = loads(text)
    check(definitions)
    (service,) = definitions.services.values()
    return service, {name: definitions.streams[name].schema for name in service.inputs}


def _rows(frame: DataFrame) -> list[Written]:
    return [Written(r[0], r[2], r[3], r[4], r[5], r[6], r[8]) for r in frame.collect()]
