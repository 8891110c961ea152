"""How far the sources of a query are read, as its checkpoint says of each batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.logs.files import Partition
from tidegate.pipelines.plain.metrics import Metrics
from tidegate.pipelines.plain.source import STREAM, positions
from tidegate.pipelines.plain.written import note_mark

Offsets = dict[str, dict[str, int]]
"""By stream, by partition."""


class Progress:
    """Counts what was read, and notes it beside an output when it is dealt with.

    Spark writes where a batch ends to its checkpoint before the batch runs;
    there is no other way to know it while the batch is written.
    """

    def __init__(
        self, root: Path, checkpoint: Path, starts: Mapping[str, Mapping[str, int]], metrics: Metrics, marks: str | None
    ) -> None:
        """`starts`: where the streams were begun to be read. `marks`: the stream beside which it is noted."""
        self._root, self._offsets, self._metrics = root, checkpoint / "offsets", metrics
        self._starts = starts
        self._marks = None if marks is None else root / marks
        self._reached: Offsets = {}
        self._batch: Offsets = {}

    def read(self, number: int) -> None:
        """Count what a batch has read."""
        begins = self._reached or self._at(number - 1)
        self._batch = self._at(number)
        for stream, ends in self._batch.items():
            for name, end in ends.items():
                begin = begins.get(stream, {}).get(name, self._starts.get(stream, {}).get(name))
                self._count(self._root / stream / name, begin, end)
                self._metrics.reach(f"{stream}/{name}", end)

    def done(self) -> None:
        """Note that what the batch has read is dealt with."""
        if self._marks is not None:
            for stream, ends in self._batch.items():
                for name, end in ends.items():
                    if self._reached.get(stream, {}).get(name) != end:
                        folder = self._marks / f"{stream}.{name}"
                        folder.mkdir(parents=True, exist_ok=True)
                        note_mark(folder, end)
        self._reached = self._batch

    def _at(self, number: int) -> Offsets:
        try:
            _, _, *lines = (self._offsets / str(number)).read_text().splitlines()
        except FileNotFoundError:
            return {}
        found: list[dict[str, Any]] = [json.loads(line) for line in lines if line.startswith("{")]
        return {each[STREAM]: positions(each) for each in found if STREAM in each}  # the connector's do not say whose

    def _count(self, folder: Path, begin: int | None, end: int) -> None:
        partition = Partition(folder)
        oldest = partition.begin()
        first = oldest if begin is None else begin
        self._metrics.count("missed_bytes", max(0, min(end, oldest) - first))
        first = max(first, oldest)
        if first < end:
            self._metrics.count("bytes", end - first)
            self._metrics.count("read", _records(partition, first, end))


def _records(partition: Partition, begin: int, end: int) -> int:
    """How many records end between two offsets."""
    total = 0
    for segment in partition.segments():
        with open(segment.path, "rb") as file:
            file.seek(max(0, begin - segment.base))
            total += file.read(max(0, end - max(begin, segment.base))).count(b"\n")
    return total
