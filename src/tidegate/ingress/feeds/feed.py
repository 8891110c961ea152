"""The protocol of a feed, and what every feed is built with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Protocol

from tidegate.errors import SourceError
from tidegate.ingress.connections import FeedResources
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import EventLog
from tidegate.logs.clock import Clock, SystemClock
from tidegate.services.definitions import Stream
from tidegate.services.trust import OR_STATE_AGAIN


class Feed(Protocol):
    """Appends the events of one source to one raw stream. Runs in a thread of its own."""

    def run(self, stop: Event) -> None:
        """Append events until the input ends or `stop` is set; look at `stop` several times per second.

        Raises SourceError, or anything else, on failure. The supervisor then calls `run` again after a delay, and the
        feed resumes from what the log holds.
        """


@dataclass(frozen=True)
class FeedContext:
    """What all feeds of a process share."""

    log: EventLog
    state: Path | None = None
    """Folder for positions. Without one, a feed reads its whole raw stream to find where to resume."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, for `password_env`."""
    clock: Clock = field(default_factory=SystemClock)
    resources: FeedResources = field(default_factory=FeedResources)
    """Connections and folders that the profile lists."""


Report = Callable[[str], None]
"""Shows a problem in the status of a feed that continues to run. Thread-safe."""


@dataclass(frozen=True)
class FeedRequest:
    """What the factory of a source gets: the stream to feed, its writer, and the shared context."""

    stream: Stream
    writer: RawStreamWriter
    context: FeedContext
    report: Report

    def need_operator(self) -> None:
        """Raise SourceError if the definition is remote: it must name a connection of the profile, not a host."""
        if self.stream.origin != "operator":
            raise SourceError(
                "a definition that came over the network names no host of its own: expected a connection of the "
                f"profile, {OR_STATE_AGAIN}"
            )
