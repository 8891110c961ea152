"""A stream of positions, bodies of them, and what became of a body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.ingress.kit import until
from tidegate.errors import LogError
from tidegate.ingress.http import DirectIngest, IngestReceipt, Mode
from tidegate.logs import SegmentLog
from tidegate.model import Schema
from tidegate.services.definitions import Stream

GPS = Schema(
    {
        "vid": "string",
        "time": "timestamp",
        "longitude": "float64",
        "latitude": "float64",
        "speed": "float64",
        "direction": "float64",
        "satellites": "int32",
    },
    event_time="time",
)
PLAIN = Schema({"n": "int64", "x": "float64?"})
NOW = "2026-01-01T00:00:00.000000Z"

JSON = "application/json"
LINES = "application/x-ndjson"
CLOUD = "application/cloudevents+json"
CLOUDS = "application/cloudevents-batch+json"
ARROW = "application/vnd.apache.arrow.stream"


def gps(n: int, **more: Any) -> dict[str, Any]:
    return {
        **more,
        "vid": f"BJ{n}",
        "time": "2026-11-15T12:00:00.000001Z",
        "longitude": 116.25,
        "latitude": 39.5,
        "speed": 61.5,
        "direction": 270.0,
        "satellites": 9,
    }


def lines(events: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def streams(*of: Stream) -> dict[str, Stream]:
    return {each.name: each for each in of}


def send(
    ingest: DirectIngest,
    body: bytes,
    content_type: str | None = LINES,
    headers: Mapping[str, str] | None = None,
    mode: Mode = "all",
    stream: str = "s",
) -> IngestReceipt:
    return asyncio.run(ingest.ingest(stream, content_type, headers or {}, body, mode))


# Logs that travel to another process, which so need not import the tests ------------


class Stuck(SegmentLog):
    """Appends only while a file is there."""

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        until(lambda: (self._root / "go").exists())
        return super().append(stream, partition, records)


class Broken(SegmentLog):
    """Can't be opened before it is mended."""

    def __init__(self, root: Path) -> None:
        if not (root / "mended").exists():
            raise LogError("no such disk")
        super().__init__(root)
