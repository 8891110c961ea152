"""The status of services and of the sources of raw streams, as events of the stream `_status`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tidegate.model import Schema, timestamps
from tidegate.services.quality import LATENCY_BOUNDS_S

STREAM = "_status"

ServiceState = Literal["starting", "running", "restarting", "stopped", "ended"]
"""`restarting`: it failed, and is retried with backoff. `ended`: a source has read all of its input."""
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
        "processing_p50_ms": "float64?",
        "processing_p99_ms": "float64?",
        "processing": f"int64[{len(LATENCY_BOUNDS_S) + 1}]?",
        "processing_s": "float64?",
        "read": "int64",
        "written": "int64",
        "quarantined": "int64",
        "dropped": "int64",
        "flagged": "int64",
        "filtered": "int64?",
        "late": "int64?",
        "results": "int64?",
        "used": "int64?",
        "held": "int64?",
        "restored": "int64?",
        "skipped": "int64?",
        "behind_bytes": "int64",
        "missed_bytes": "int64",
        "missing_tasks": "int64",
        "state_rows": "int64?",
        "restarts": "int64",
        "error": "string?",
        "time": "timestamp",
    },
    event_time="time",
)
"""Schema of `_status`. Counts are totals since the process started; those of a service with state in real-time mode,
which reads some events again after a failure, are totals since the service started. Rates and quantiles cover the time
since the last event."""


STATE_COUNTS = ("late", "results", "used", "held", "restored")
"""Counts that only the state engine knows."""


@dataclass
class Status:
    """The status of one service, or of the source of one raw stream."""

    service: str
    """Name of the service or of the raw stream."""
    version: int
    state: ServiceState
    mode: str = ""
    reason: str = ""
    read_per_s: float = 0.0
    written_per_s: float = 0.0
    latency_p50_ms: float | None = None
    """Median time from the append of an input event to the append of the output event."""
    latency_p99_ms: float | None = None
    latencies: tuple[int, ...] | None = None
    """Latency histogram: events per bucket with the upper bounds `LATENCY_BOUNDS_S`, and a last one without a bound."""
    latency_s: float | None = None
    """Sum of the latencies of all events."""
    processing_p50_ms: float | None = None
    """Median of the part of the latency since the input was read; the rest is the wait in the log."""
    processing_p99_ms: float | None = None
    processing: tuple[int, ...] | None = None
    """Histogram of that part, as `latencies`."""
    processing_s: float | None = None
    read: int = 0
    written: int = 0
    quarantined: int = 0
    dropped: int = 0
    flagged: int = 0
    filtered: int | None = None
    """Events that a filter or another operator removed; None: not known, as Python reads and writes the log."""
    late: int | None = None
    """Events that came after their window was closed. They are counted as quarantined or dropped too."""
    results: int | None = None
    """Events that operators with state made of others."""
    used: int | None = None
    """Events that the state has done with: results hold them, or can't any longer."""
    held: int | None = None
    """Events in the state, for later results; None: not known, as an earlier version of Tidegate wrote the state."""
    restored: int | None = None
    """Events in the state when the service started."""
    skipped: int | None = None
    """Events that were in the output already when the service started again."""
    behind_bytes: int = 0
    missed_bytes: int = 0
    missing_tasks: int = 0
    """Real-time tasks for which Spark has no slot."""
    state_rows: int | None = None
    restarts: int = 0
    error: str | None = None
    kind: Kind = "service"

    def measure(self, metrics: Mapping[str, Any], elapsed_s: float) -> None:
        """Update from the metrics of the tasks. The last update was `elapsed_s` ago."""
        self.read_per_s = max(0, metrics["read"] - self.read) / elapsed_s
        self.written_per_s = max(0, metrics["written"] - self.written) / elapsed_s
        for name in ("read", "written", "quarantined", "dropped", "flagged", "missed_bytes"):
            setattr(self, name, metrics[name])
        self.filtered, self.skipped = metrics.get("filtered"), metrics.get("skipped")
        for name in STATE_COUNTS:
            setattr(self, name, metrics.get(name))
        self.latency_p50_ms = metrics["latency_ms"]["p50"]
        self.latency_p99_ms = metrics["latency_ms"]["p99"]
        self.latencies = tuple(metrics["latency_counts"])
        self.latency_s = metrics["latency_micros"] / 1e6
        self.processing_p50_ms = metrics["processing_ms"]["p50"]
        self.processing_p99_ms = metrics["processing_ms"]["p99"]
        self.processing = tuple(metrics["processing_counts"])
        self.processing_s = metrics["processing_micros"] / 1e6

    def record(self, micros: int) -> bytes:
        """Return the record for the log, with this time."""
        time = timestamps.to_text(micros)
        event = {"_id": f"{self.service}@{time}", "_time": time, **asdict(self), "time": time}
        return json.dumps(event, separators=(",", ":")).encode()


_SOURCE_STATES: dict[str, ServiceState] = {
    "running": "running",
    "waiting": "restarting",
    "ended": "ended",
    "stopped": "stopped",
}


def of_source(stream: str, version: int, feed_status: Mapping[str, Any]) -> Status:
    """Return the status of a stream's source from its entry in `Feeds.status()`."""
    state = _SOURCE_STATES[feed_status["state"]]
    return Status(
        stream,
        version,
        state,
        reason=f"source: {feed_status['source']}",
        read_per_s=feed_status["rate"],
        written_per_s=feed_status["rate"],
        read=feed_status["events"] + feed_status["refused"],
        written=feed_status["events"],
        quarantined=feed_status["refused"],
        restarts=feed_status["restarts"],
        error=feed_status["error"] if state == "restarting" else None,
        kind="source",
    )
