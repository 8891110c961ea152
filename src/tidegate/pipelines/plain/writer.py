"""Appends the rows of a service to the log, each once, batch by batch, on the driver.

Follows the rules of the connector's `OutputWriter`, and writes the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.logs.writer import TIME_EVERY_BYTES, Writer
from tidegate.pipelines.output import COLUMNS
from tidegate.pipelines.plain.metrics import PlainMetrics
from tidegate.pipelines.plain.progress import BatchProgress
from tidegate.pipelines.plain.written import ByKey, ByPosition, EventIdentity, Written, last_place

SPARK_PARTITION = "own"
"""The column with the number of Spark's partition: it names the output partition of rows that name none."""


class ConstraintViolated(Exception):  # noqa: N818 - the name that the connector uses
    """A constraint was violated in a service with `on_violation: fail`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"a constraint is violated, and on_violation is fail: {reason}")


@dataclass(frozen=True)
class WriterOutputs:
    """The folders that a service writes to, and how it recognises records that are there already."""

    output: Path
    quarantine: Path
    identity: Literal["position", "key", "revision"]
    since_micros: int = 0
    """Time of the last checkpoint, for identity by key: events that were written later may be repeated."""
    floor: Mapping[str, int] = field(default_factory=dict)
    """End of each output partition when this version started: earlier records are those of another version."""

    def written(self, folder: Path) -> Written:
        """Read which events an output partition has."""
        if self.identity == "position":
            return ByPosition(last_place(folder))
        floor = self.floor.get(folder.name, 0) if folder.parent == self.output else 0
        return ByKey.of(folder, self.since_micros, floor, revised=self.identity == "revision")


@dataclass
class _Target:
    """An output partition, and the records of this batch for it."""

    file: Writer
    written: Written
    lines: list[bytes] = field(default_factory=list)
    """Records that are not written yet."""
    counts: list[tuple[str, int]] = field(default_factory=list)
    """Verdict of each of these records, and the time at which its input was appended."""

    def flush(self, metrics: PlainMetrics, seen_micros: int | None) -> None:
        """Append the lines, in chunks of the size of a step of the time index. The batch began at `seen_micros`."""
        chunk: list[bytes] = []
        size = 0
        for line in self.lines:
            chunk.append(line)
            size += len(line)
            if size >= TIME_EVERY_BYTES:
                self.file.append(chunk)
                chunk, size = [], 0
        if chunk:
            self.file.append(chunk)
        now = _now_micros()
        for verdict, arrived in self.counts:
            if verdict == "quarantine":
                metrics.count("quarantined")
                continue
            if verdict == "flag":
                metrics.count("flagged")
            metrics.count("written")
            if arrived:
                metrics.add_latency(now - arrived, None if seen_micros is None else now - seen_micros)
        self.lines, self.counts = [], []


class BatchWriter:
    """Writes the batches of one query; Spark calls it on the driver."""

    def __init__(
        self, outputs: WriterOutputs, metrics: PlainMetrics, progress: BatchProgress, segment_bytes: int
    ) -> None:
        self._outputs, self._metrics, self._progress = outputs, metrics, progress
        self._segment_bytes = segment_bytes
        self._targets: dict[Path, _Target] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write a batch, then save how far its sources were read."""
        rows = batch.select(*COLUMNS, F.spark_partition_id().cast("string").alias(SPARK_PARTITION)).toArrow()
        self._progress.start_batch(number)
        self.write(rows)
        self._progress.finish_batch()

    def write(self, rows: pyarrow.Table) -> None:
        """Write rows that are not there yet, up to the first with the verdict `fail`. Raises ConstraintViolated."""
        try:
            for row in _rows(rows):
                self._add(*row)
        finally:
            for target in self._targets.values():
                target.flush(self._metrics, self._progress.seen_micros)

    def close(self) -> None:
        """Close the files."""
        for target in self._targets.values():
            target.file.close()
        self._targets.clear()

    def _add(
        self,
        verdict: str,
        partition: str | None,
        key: str | None,
        revision: int,
        child: int,
        id_: str,
        source: str | None,
        arrived: int | None,
        body: bytes,
        own: str,
    ) -> None:
        if verdict == "drop":
            self._metrics.count("dropped")
            return
        if verdict == "fail":
            raise ConstraintViolated(body.decode("utf-8", "replace"))
        stream = self._outputs.quarantine if verdict == "quarantine" else self._outputs.output
        target = self._target(stream / (own if partition is None else partition))
        event = EventIdentity(key, revision, child)
        if target.written.has(event):
            self._metrics.count("skipped")
            return
        target.written.add(event)
        target.lines.append(line(id_, source, body))
        target.counts.append((verdict, arrived or 0))

    def _target(self, folder: Path) -> _Target:
        target = self._targets.get(folder)
        if target is None:
            folder.mkdir(parents=True, exist_ok=True)
            file = Writer(
                folder, "never", self._segment_bytes, _now_micros, skips_lost=False
            )  # truncates an incomplete last record
            target = self._targets[folder] = _Target(file, self._outputs.written(folder))
        return target


def line(id_: str, source: str | None, body: bytes) -> bytes:
    r"""Return a record: id and source, then the rest of its JSON object, with the same bytes as the connector.

    >>> line("a\n", "gps/0:7", b'{"n":1}')
    b'{"_id":"a\\u000a","_src":"gps/0:7","n":1}'
    """
    sourced = "" if source is None else f',"_src":{_quoted(source)}'
    return f'{{"_id":{_quoted(id_)}{sourced}{"," if len(body) > 2 else ""}'.encode() + body[1:]


_ESCAPES = {'"': '\\"', "\\": "\\\\", **{chr(n): f"\\u{n:04x}" for n in range(0x20)}}
_ESCAPING = str.maketrans(_ESCAPES)


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPING)}"'


def _rows(table: pyarrow.Table) -> Any:
    """Yield rows as tuples, with bodies as bytes."""
    columns = {name: table.column(name) for name in (*COLUMNS, SPARK_PARTITION)}
    columns["body"] = columns["body"].cast(pyarrow.binary())
    return zip(*(column.to_pylist() for column in columns.values()), strict=True)


def _now_micros() -> int:
    return time.time_ns() // 1_000
