"""The answer to a producer: how many events were accepted, and why the others were not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Mode = Literal["all", "partial"]
"""What to append of a request that contains invalid events: nothing, or all valid ones."""

MODES: tuple[Mode, ...] = ("all", "partial")


@dataclass(frozen=True, slots=True)
class EventRefusal:
    """One problem of one event of a request."""

    index: int
    """Position of the event in the request, from 0."""
    path: str
    """The attribute as a filter names it; `event` for the whole event."""
    message: str
    """The value, and the expected one."""
    line: int | None = None
    """Line of the body, from 1; None if events are not lines."""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        document: dict[str, Any] = {"index": self.index, "pointer": self.path, "detail": self.message}
        return document if self.line is None else {**document, "line": self.line}


@dataclass(frozen=True, slots=True)
class IngestReceipt:
    """What happened to the events of a request. Accepted events are in the log."""

    accepted: int = 0
    duplicates: int = 0
    """Events whose ids are in the log already; they were not appended again."""
    refused: int = 0
    """Events with errors. In mode `all`, nothing is appended if there is one."""
    errors: tuple[EventRefusal, ...] = ()
    """The first errors."""
    error_count: int = 0
    """The number of all errors, including those that `errors` leaves out."""
    cursor: str | None = None
    """Cursor after these events; None if nothing was appended."""

    def with_cursor(self, cursor: str | None) -> IngestReceipt:
        """Return the same receipt with a cursor."""
        return replace(self, cursor=cursor)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        document: dict[str, Any] = {"accepted": self.accepted, "duplicates": self.duplicates, "refused": self.refused}
        if self.error_count:
            document |= {"errors": [error.to_json() for error in self.errors], "error_count": self.error_count}
        return document if self.cursor is None else {**document, "cursor": self.cursor}
