"""Settings of ingest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """Limits of ingest. The defaults suit one machine."""

    remembered_ids: int = 1_000_000
    """Newest ids of a stream that are checked for duplicates; about 120 bytes each."""
    remembered_s: float = 600.0
    """How long an id is remembered; longer than producers retry."""
    in_flight_bytes: int = 64 * 1024 * 1024
    """Bodies that wait for an answer. Beyond it, new requests are refused, so that memory is not used as a queue."""
    group_bytes: int = 4 * 1024 * 1024
    """Bodies that share one append. A larger group would delay its first request."""
    request_events: int = 100_000
    """Events of one request. Requests are processed one after the other, and a larger one would delay other producers
    by seconds."""
    decoded_bytes: int = 64 * 1024 * 1024
    """Size of an Arrow body as JSON, and of its buffers in memory."""
    errors: int = 100
    """Errors that a receipt lists; the others are only counted."""
    restart_s: float = 0.1
    """Delay before a process that ended before it was ready is started again; doubles up to `restart_most_s`."""
    restart_most_s: float = 10.0
    drain_s: float = 30.0
    """How long `close` waits for pending requests before it kills the process."""
    writer_lock: Path | None = None
    """Lock file of the process that appends to segment files; None: the log allows several writers, or there is one."""
    has_other_writers: bool = False
    """True if other processes append to the same streams: their ids are read from the log before each append."""
    lock_owner: str = "another gateway"
    """How messages of other processes name the owner of the lock."""
