"""What a producer is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Mode = Literal["all", "partial"]
"""What becomes of a request with events that don't fit: nothing of it is appended, or all but these."""

MODES: tuple[Mode, ...] = ("all", "partial")


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that is wrong with one event of a request."""

    index: int
    """Which of them, from 0."""
    path: str
    """The attribute as a filter would write it; `event` for all of it."""
    message: str
    """The value, and what was expected."""
    line: int | None = None
    """Of the body, from 1, where events are lines."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        said: dict[str, Any] = {"index": self.index, "pointer": self.path, "detail": self.message}
        return said if self.line is None else {**said, "line": self.line}


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a request's events: what is accepted is in the log."""

    accepted: int = 0
    duplicates: int = 0
    """In the log already, by their ids: as good as accepted, and not appended again."""
    refused: int = 0
    """Events with errors. In mode `all` one is enough, and nothing is appended."""
    errors: tuple[Refusal, ...] = ()
    """The first of them."""
    error_count: int = 0
    """How many there are, also those that are not shown."""
    cursor: str | None = None
    """Where to read on behind these events; None where none was appended."""

    def behind(self, cursor: str | None) -> Receipt:
        """The same with a cursor."""
        return replace(self, cursor=cursor)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        said: dict[str, Any] = {"accepted": self.accepted, "duplicates": self.duplicates, "refused": self.refused}
        if self.error_count:
            said |= {"errors": [each.to_json() for each in self.errors], "error_count": self.error_count}
        return said if self.cursor is None else {**said, "cursor": self.cursor}
