"""How far a query has read its sources, by the offsets of each batch in its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.logs.files import Partition
from tidegate.pipelines.plain.metrics import PlainMetrics
from tidegate.pipelines.plain.source import SEEN, STREAM, positions
from tidegate.pipelines.plain.written import save_mark

Offsets = dict[str, dict[str, int]]
"""By stream, by partition."""


class BatchProgress:
    """Counts the records of each batch, and saves a mark next to the output when the batch is written.

    Spark writes the end offsets of a batch to its checkpoint before the batch runs. This is the only way to know them
    while the batch is written.
    """

    def __init__(
        self,
        root: Path,
        checkpoint: Path,
        starts: Mapping[str, Mapping[str, int]],
        metrics: PlainMetrics,
        marks: str | None,
    ) -> None:
        """`starts` are the offsets at which streams were first read. `marks` is the stream that gets marks, if any."""
        self._root, self._offsets, self._metrics = root, checkpoint / "offsets", metrics
        self._starts = starts
        self._marks = None if marks is None else root / marks
        self._reached: Offsets = {}
        self._batch: Offsets = {}
        self.seen_micros: int | None = None
        """Time at which the end of the current batch was determined."""

    def start_batch(self, number: int) -> None:
        """Count the records of a batch."""
        starts = self._reached or self._offsets_of(number - 1)
        self._batch = self._offsets_of(number)
        self.seen_micros = min(
            (int(offset[SEEN]) for offset in self._sources_of(number) if SEEN in offset), default=None
        )
        for stream, ends in self._batch.items():
            for name, end in ends.items():
                start = starts.get(stream, {}).get(name, self._starts.get(stream, {}).get(name))
                self._count(self._root / stream / name, start, end)
                self._metrics.set_reached(f"{stream}/{name}", end)

    def finish_batch(self) -> None:
        """Save marks: everything that the batch has read is written."""
        if self._marks is not None:
            for stream, ends in self._batch.items():
                for name, end in ends.items():
                    if self._reached.get(stream, {}).get(name) != end:
                        folder = self._marks / f"{stream}.{name}"
                        folder.mkdir(parents=True, exist_ok=True)
                        save_mark(folder, end)
        self._reached = self._batch

    def _offsets_of(self, number: int) -> Offsets:
        sources = self._sources_of(number)
        return {offset[STREAM]: positions(offset) for offset in sources if STREAM in offset}  # not by the connector

    def _sources_of(self, number: int) -> list[dict[str, Any]]:
        try:
            _, _, *lines = (self._offsets / str(number)).read_text().splitlines()
        except FileNotFoundError:
            return []
        # A line is the name of a source and its offset: `stream_a:{"0": 806}`.
        named = [line.partition(":")[2] for line in lines]
        return [json.loads(offset) for offset in named if offset.startswith("{")]

    def _count(self, folder: Path, start: int | None, end: int) -> None:
        partition = Partition(folder)
        oldest = partition.begin()
        first = oldest if start is None else start
        self._metrics.count("missed_bytes", max(0, min(end, oldest) - first))
        first = max(first, oldest)
        if first < end:
            self._metrics.count("bytes", end - first)
            self._metrics.count("read", _records(partition, first, end))


def _records(partition: Partition, begin: int, end: int) -> int:
    """Return the number of records between two offsets."""
    total = 0
    for segment in partition.segments():
        with open(segment.path, "rb") as file:
            file.seek(max(0, begin - segment.base))
            size = min(end, segment.base + segment.size()) - max(begin, segment.base)
            total += file.read(max(0, size)).count(b"\n")
    return total
