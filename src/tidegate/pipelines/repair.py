"""Makes lost segments of an output again from its input.

The records are the same, byte by byte, as the service that wrote them would write them again. So they fit between the
records that are left, and cursors stay valid.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.errors import ServiceError
from tidegate.logs.check import LogFinding
from tidegate.logs.files import TIME, Segment, segments_of
from tidegate.logs.marks import source_of
from tidegate.model import Schema
from tidegate.pipelines.compiler import Following, compile_service
from tidegate.pipelines.plain.writer import line
from tidegate.pipelines.resources import RunnerResources
from tidegate.pipelines.streams import Streams
from tidegate.services.definitions import Service

_VERDICTS = {False: ("pass", "flag"), True: ("quarantine",)}
"""The verdicts whose events are in the output (False) and in the quarantine (True)."""

_Place = tuple[int, int]
"""Position of a source record, and the number of the event that was made of it."""


def repair(
    lost: LogFinding,
    service: Service,
    inputs: Mapping[str, Schema],
    streams: Streams,
    root: Path,
    *,
    key: bytes,
    resources: RunnerResources,
) -> int:
    """Write the lost records of an output or quarantine again; return how many.

    Raises `ServiceError` if they can't be made again. No process may write to the log.
    """
    folder = root / lost.stream / lost.partition
    source = next((name for name in service.inputs if lost.partition.startswith(f"{name}.")), None)
    if source is None:
        raise ServiceError("the service has a state: apply its definition with --backfill")
    partition = lost.partition.removeprefix(f"{source}.")
    after, before = _places_around(folder, lost)

    def scan(name: str, _: Following | None, __: int, ___: int) -> DataFrame:
        frame = streams.retained(name)
        position = F.col("position")
        if name != source:
            return frame.where(F.lit(False))
        return frame.where((F.col("partition") == partition) & position.between(after[0], before[0]))

    compiled = compile_service(service, inputs, scan, key=key, obstacle=streams.obstacle, resources=resources)
    if compiled.plan.keyed:
        raise ServiceError("the service has a state: apply its definition with --backfill")
    verdicts = _VERDICTS[lost.stream == service.quarantine]
    columns = ("revision", "child", "id", "source", "body")
    rows = compiled.frame.where(F.col("verdict").isin(*verdicts) & (F.col("partition") == lost.partition))
    made = sorted(rows.select(*columns).collect(), key=lambda row: (row["revision"], row["child"]))
    records = [
        line(row["id"], row["source"], row["body"].encode())
        for row in made
        if after < (row["revision"], row["child"]) < before
    ]
    _write(folder, lost, records)
    return len(records)


def _places_around(folder: Path, lost: LogFinding) -> tuple[_Place, _Place]:
    """Return the source places of the last record before, and the first record after lost ones."""
    segments = segments_of(str(folder))
    earlier = next(segment for segment in reversed(segments) if segment.base < lost.begin)
    later = next(segment for segment in segments if segment.base == lost.end)
    with open(earlier.path, "rb") as file:
        last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    with open(later.path, "rb") as file:
        first = file.readline()
    places = []
    for record in (last, first):
        found = source_of(record)
        if found is None:
            raise ServiceError("a record beside the lost ones names no source: apply its definition with --backfill")
        places.append(found[1] if isinstance(found[1], tuple) else (found[1], 0))
    return places[0], places[1]


def _write(folder: Path, lost: LogFinding, records: list[bytes]) -> None:
    """Write a segment with exactly the lost offsets."""
    data = b"".join(record + b"\n" for record in records)
    if len(data) != lost.end - lost.begin:
        raise ServiceError(
            f"{lost.end - lost.begin:,} bytes are lost, but {len(data):,} were made again: the definition was changed, "
            "or its input has expired; apply it with --backfill"
        )
    segment = Segment(str(folder), lost.begin)
    earlier = next(each for each in reversed(segments_of(str(folder))) if each.base < lost.begin)
    Path(segment.times_path).write_bytes(TIME.pack(earlier.last_written(), lost.begin))
    draft = folder / "repaired.new"
    with open(draft, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(segment.path)
