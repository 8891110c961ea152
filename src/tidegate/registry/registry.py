"""What every registry promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from tidegate.services import Definitions, Service, Stream


@dataclass(frozen=True, slots=True)
class RegisteredStream:
    """A stream as it should be."""

    stream: Stream
    version: int
    """1, 2, ...; goes on where a name is removed and comes again."""
    changed_at: datetime
    forced: bool = False


@dataclass(frozen=True, slots=True)
class RegisteredService:
    """A service as it should run."""

    service: Service
    version: int
    changed_at: datetime
    forced: bool = False
    """Whether this version was applied although it breaks subscribers."""
    backfill: bool = False
    """Whether this version begins with all that its inputs still hold, and its output anew."""


@dataclass(frozen=True, slots=True)
class Past:
    """One version of a stream or service, old or present."""

    version: int
    document: Mapping[str, Any] | None
    """In the form of a service file; None: it was removed."""
    changed_at: datetime
    forced: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """What an `apply` did: names, each with the version that it has now (or had, if it was removed)."""

    added: Mapping[str, int]
    changed: Mapping[str, int]
    unchanged: Mapping[str, int]
    removed: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class Registry(Protocol):
    """Streams and services, in versions. Any number of processes may read and change it at once.

    Every change is all or nothing, and leaves definitions that hold together.
    """

    def apply(
        self, definitions: Definitions, *, force: bool = False, prune: bool = False, backfill: bool = False
    ) -> Changes:
        """Add and change streams and services; `prune`: remove all others.

        `backfill`: what is added or changed begins with all that its inputs
        still hold.

        Raises a `DefinitionError` where the whole would not hold together, and a
        `BreakingChange` where a service's subscribers would be broken, unless
        `force`.
        """

    def remove(self, name: str) -> int:
        """Remove a stream or service that nothing reads; give the version that it had."""

    def definitions(self) -> Definitions:
        """All that should run."""

    def streams(self) -> dict[str, RegisteredStream]:
        """All streams, by name."""

    def services(self) -> dict[str, RegisteredService]:
        """All services, by name."""

    def stream(self, name: str) -> RegisteredStream:
        """One stream; an error with a hint where it is not there."""

    def service(self, name: str) -> RegisteredService:
        """One service; an error with a hint where it is not there."""

    def history(self, name: str) -> list[Past]:
        """All versions of a name, the oldest first."""

    def revision(self) -> int:
        """A number that grows with every change; cheap to ask."""

    def close(self) -> None:
        """Let go of files and connections."""
