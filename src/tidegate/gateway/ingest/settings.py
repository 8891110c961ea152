"""What may be set of ingest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """Limits; each with a default that suits one machine."""

    remembered_ids: int = 1_000_000
    """Ids of a stream that are known as duplicates when they come again: about 120 bytes each."""
    remembered_s: float = 600.0
    """How long an id is known at most: longer than a producer tries again."""
    in_flight_bytes: int = 64 * 1024 * 1024
    """Bodies that are sent and not answered. Beyond, producers are told to wait: memory is not the queue."""
    group_bytes: int = 4 * 1024 * 1024
    """Bodies that share one append. More would make the first of them wait for the last."""
    request_events: int = 100_000
    """Events of one request, whatever its format: all requests are judged one after the other, and a larger one would
    keep other producers waiting for seconds."""
    decoded_bytes: int = 64 * 1024 * 1024
    """What an Arrow body may take as JSON, and its buffers in memory."""
    errors: int = 100
    """Errors that an answer shows; the rest is counted."""
    restart_s: float = 0.1
    """Before a process that ended without having been ready starts again; doubles up to `restart_most_s`."""
    restart_most_s: float = 10.0
    drain_s: float = 30.0
    """How long what was sent may take to be appended on close, before the process is ended."""
    sole: Path | None = None
    """The lock of whoever appends to streams in files; None: the log takes several writers, or there is but one."""
    name: str = "another gateway"
    """What others are told of the one that has the lock."""
