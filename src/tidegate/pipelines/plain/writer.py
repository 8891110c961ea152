"""Appends the rows of a service to the log, each just once, batch by batch, on the driver.

The rules are those of the connector's `OutputWriter`, and so are the bytes.
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
from tidegate.pipelines.plain.metrics import Metrics
from tidegate.pipelines.plain.progress import Progress
from tidegate.pipelines.plain.written import ByKey, ByPosition, Identity, Written, last_place

OWN = "own"
"""The column with the number of Spark's partition: the output's, where a row names none."""


class ConstraintViolated(Exception):  # noqa: N818 - named as the connector names it
    """What `on_violation: fail` ends a service with."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"a constraint is violated, and the service is told to fail: {reason}")


@dataclass(frozen=True)
class Outputs:
    """Where a service writes, and how it knows what is there already."""

    output: Path
    quarantine: Path
    identity: Literal["position", "key", "revision"]
    since_micros: int = 0
    """With keys: when the last checkpoint was made; what was written later may come again."""
    floor: Mapping[str, int] = field(default_factory=dict)
    """Where the output ended when this version began: what is before that is another version's."""

    def written(self, folder: Path) -> Written:
        """What a partition has."""
        if self.identity == "position":
            return ByPosition(last_place(folder))
        floor = self.floor.get(folder.name, 0) if folder.parent == self.output else 0
        return ByKey.of(folder, self.since_micros, floor, revised=self.identity == "revision")


@dataclass
class _Target:
    """One partition that is written to."""

    file: Writer
    written: Written
    lines: list[bytes] = field(default_factory=list)
    """Of this batch, not yet written."""
    counts: list[tuple[str, int]] = field(default_factory=list)
    """Of the same: verdict, and when it was read."""

    def flush(self, metrics: Metrics) -> None:
        """Append the lines, in pieces as long as the time index's steps."""
        piece: list[bytes] = []
        size = 0
        for line in self.lines:
            piece.append(line)
            size += len(line)
            if size >= TIME_EVERY_BYTES:
                self.file.append(piece)
                piece, size = [], 0
        if piece:
            self.file.append(piece)
        now = _now_micros()
        for verdict, arrived in self.counts:
            if verdict == "quarantine":
                metrics.count("quarantined")
                continue
            if verdict == "flag":
                metrics.count("flagged")
            metrics.count("written")
            if arrived:
                metrics.took(now - arrived)
        self.lines, self.counts = [], []


class BatchWriter:
    """Takes the batches of one query."""

    def __init__(self, outputs: Outputs, metrics: Metrics, progress: Progress, segment_bytes: int) -> None:
        self._outputs, self._metrics, self._progress = outputs, metrics, progress
        self._segment_bytes = segment_bytes
        self._targets: dict[Path, _Target] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write a batch, then note how far its sources are dealt with."""
        rows = batch.select(*COLUMNS, F.spark_partition_id().cast("string").alias(OWN)).toArrow()
        self._progress.read(number)
        self.write(rows)
        self._progress.done()

    def write(self, rows: pyarrow.Table) -> None:
        """Write rows that are not there yet, up to the first that fails."""
        try:
            for row in _rows(rows):
                self._take(*row)
        finally:
            for target in self._targets.values():
                target.flush(self._metrics)

    def close(self) -> None:
        """Close the files."""
        for target in self._targets.values():
            target.file.close()
        self._targets.clear()

    def _take(
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
        event = Identity(key, revision, child)
        if target.written.has(event):
            self._metrics.count("skipped")
            return
        target.written.note(event)
        target.lines.append(line(id_, source, body))
        target.counts.append((verdict, arrived or 0))

    def _target(self, folder: Path) -> _Target:
        found = self._targets.get(folder)
        if found is None:
            folder.mkdir(parents=True, exist_ok=True)
            file = Writer(folder, "never", self._segment_bytes, _now_micros)  # cuts off half a record at the end
            found = self._targets[folder] = _Target(file, self._outputs.written(folder))
        return found


def line(id_: str, source: str | None, body: bytes) -> bytes:
    r"""A record: id and source, then the rest of its JSON object, byte by byte as the connector writes it.

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
    """The rows as tuples; bodies as the bytes that they are."""
    columns = {name: table.column(name) for name in (*COLUMNS, OWN)}
    columns["body"] = columns["body"].cast(pyarrow.binary())
    return zip(*(column.to_pylist() for column in columns.values()), strict=True)


def _now_micros() -> int:
    return time.time_ns() // 1_000
