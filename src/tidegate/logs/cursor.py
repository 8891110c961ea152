"""A position in a stream: its generation and one offset per partition."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.errors import CursorError


@dataclass(frozen=True)
class Cursor:
    """What a reader has seen of a stream; for others an opaque text.

    A partition that is not named was not read yet. A stream that is deleted and
    made again has another generation: a cursor of the old one is not taken for
    a position in the new.

    >>> at = Cursor("a1b2", {"0": 4096})
    >>> Cursor.from_text(at.text) == at
    True
    """

    generation: str
    offsets: Mapping[str, int]

    @property
    def text(self) -> str:
        """The cursor as base64url."""
        said = json.dumps([self.generation, dict(sorted(self.offsets.items()))], separators=(",", ":"))
        return base64.urlsafe_b64encode(said.encode()).decode().rstrip("=")

    @classmethod
    def from_text(cls, text: str) -> Cursor:
        """Read a cursor's own text back."""
        try:
            said = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            generation, offsets = json.loads(said)
        except (binascii.Error, ValueError, TypeError) as exc:
            raise CursorError(f"{text[:60]!r} is no cursor; expected the text of one, as it was given") from exc
        whole = isinstance(generation, str) and isinstance(offsets, dict)
        if not whole or not all(type(offset) is int and offset >= 0 for offset in offsets.values()):
            raise CursorError(f"{text[:60]!r} is no cursor; expected a generation and an offset per partition")
        return cls(generation, offsets)

    def moved(self, partition: str, offset: int) -> Cursor:
        """The cursor with one partition elsewhere."""
        return Cursor(self.generation, {**self.offsets, partition: offset})

    def __hash__(self) -> int:
        return hash((self.generation, tuple(sorted(self.offsets.items()))))
