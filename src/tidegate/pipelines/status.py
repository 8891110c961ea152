"""What is seen of running services and of the sources of raw streams, as events of the stream `_status`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tidegate.model import Schema, timestamps
from tidegate.services.quality import LATENCY_BOUNDS_S

STREAM = "_status"

State = Literal["starting", "running", "restarting", "stopped", "ended"]
"""`restarting`: it failed, and is tried again with backoff. `ended`: a source has no more to read."""
Kind = Literal["service", "source"]

SCHEMA = Schema(
    {
        "service": "string",
        "kind": "string",
        "version": "int64",
        "state": "string",
        "mode": "string",
        "reason": "string",
        "read_per_s": "float64",
        "written_per_s": "float64",
        "latency_p50_ms": "float64?",
        "latency_p99_ms": "float64?",
        "latencies": f"int64[{len(LATENCY_BOUNDS_S) + 1}]?",
        "latency_s": "float64?",
        "read": "int64",
        "written": "int64",
        "quarantined": "int64",
        "dropped": "int64",
        "flagged": "int64",
        "behind_bytes": "int64",
        "missed_bytes": "int64",
        "state_rows": "int64?",
        "restarts": "int64",
        "error": "string?",
        "time": "timestamp",
    },
    event_time="time",
)
"""Of the events of `_status`: counts are since the process began, rates and quantiles since the event before."""


@dataclass
class Status:
    """One service, or the source of one raw stream, at one moment."""

    service: str
    """Its name; of a source the raw stream's."""
    version: int
    state: State
    mode: str = ""
    reason: str = ""
    read_per_s: float = 0.0
    written_per_s: float = 0.0
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    latencies: tuple[int, ...] | None = None
    """How many events were within each of `LATENCY_BOUNDS_S`, and not within the one before; then all others."""
    latency_s: float | None = None
    """Of all of them together."""
    read: int = 0
    written: int = 0
    quarantined: int = 0
    dropped: int = 0
    flagged: int = 0
    behind_bytes: int = 0
    missed_bytes: int = 0
    state_rows: int | None = None
    restarts: int = 0
    error: str | None = None
    kind: Kind = "service"

    def measure(self, metrics: Mapping[str, Any], elapsed_s: float) -> None:
        """Take in the counts of its tasks; `self` holds those of `elapsed_s` ago."""
        self.read_per_s = max(0, metrics["read"] - self.read) / elapsed_s
        self.written_per_s = max(0, metrics["written"] - self.written) / elapsed_s
        for name in ("read", "written", "quarantined", "dropped", "flagged", "missed_bytes"):
            setattr(self, name, metrics[name])
        self.latency_p50_ms = metrics["latency_ms"]["p50"]
        self.latency_p99_ms = metrics["latency_ms"]["p99"]
        self.latencies = tuple(metrics["latencies"])
        self.latency_s = metrics["latency_micros"] / 1e6

    def record(self, micros: int) -> bytes:
        """As a record of the log."""
        moment = timestamps.to_text(micros)
        event = {"_id": f"{self.service}@{moment}", "_time": moment, **asdict(self), "time": moment}
        return json.dumps(event, separators=(",", ":")).encode()


_SOURCE_STATES: dict[str, State] = {
    "running": "running",
    "waiting": "restarting",
    "ended": "ended",
    "stopped": "stopped",
}


def of_source(stream: str, version: int, said: Mapping[str, Any]) -> Status:
    """Return the status of a stream's source, from what `Feeds.status` says of it."""
    state = _SOURCE_STATES[said["state"]]
    return Status(
        stream,
        version,
        state,
        reason=f"source: {said['source']}",
        read_per_s=said["rate"],
        written_per_s=said["rate"],
        read=said["events"] + said["refused"],
        written=said["events"],
        quarantined=said["refused"],
        restarts=said["restarts"],
        error=said["error"] if state == "restarting" else None,
        kind="source",
    )
