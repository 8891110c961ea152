"""A position in a stream: its generation and one offset per partition."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from tidegate.errors import CursorError

_URL_SAFE = bytes.maketrans(b"+/", b"-_")

Mark = int | tuple[int, int]
"""How far a source was read: a position in it, or a position and which of the records that were made of it."""


@dataclass(frozen=True)
class Cursor:
    """What a reader has seen of a stream; for others an opaque text.

    A partition that is not named was not read yet. A stream that is deleted and
    made again has another generation: a cursor of the old one is not taken for
    a position in the new. Where a log may hold a record twice, marks say how far
    each source was read, so that it is given once.

    >>> at = Cursor("a1b2", {"0": 4096})
    >>> Cursor.from_text(at.text) == at
    True
    """

    generation: str
    offsets: Mapping[str, int]
    marks: Mapping[str, Mark] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The cursor as base64url."""
        return encoded(self.json())

    def json(self) -> bytes:
        """What the text says, before it is made opaque."""
        parts = [self.generation, self.offsets, self.marks] if self.marks else [self.generation, self.offsets]
        return orjson.dumps(parts, default=dict, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_text(cls, text: str) -> Cursor:
        """Read a cursor's own text back."""
        try:
            said = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            generation, offsets, *rest = json.loads(said)
        except (binascii.Error, ValueError, TypeError, RecursionError) as exc:
            raise CursorError(f"{text[:60]!r} is no cursor; expected the text of one, as it was given") from exc
        marks = rest[0] if rest else {}
        whole = isinstance(generation, str) and isinstance(offsets, dict) and isinstance(marks, dict)
        if not whole or len(rest) > 1 or not all(map(_is_place, offsets.values())):
            raise CursorError(f"{text[:60]!r} is no cursor; expected a generation and an offset per partition")
        return cls(generation, offsets, {source: _mark(said, text) for source, said in marks.items()})

    def moved(self, partition: str, offset: int) -> Cursor:
        """The cursor with one partition elsewhere."""
        return Cursor(self.generation, {**self.offsets, partition: offset}, self.marks)

    def __hash__(self) -> int:
        return hash((self.generation, tuple(sorted(self.offsets.items()))))


def encoded(said: bytes) -> str:
    """The text of a cursor that says so; every event that is delivered carries one, so it is made by hand."""
    return binascii.b2a_base64(said, newline=False).rstrip(b"=").translate(_URL_SAFE).decode()


def _is_place(said: Any) -> bool:
    return type(said) is int and said >= 0


def _mark(said: Any, text: str) -> Mark:
    if _is_place(said):
        return int(said)
    if isinstance(said, list) and len(said) == 2 and all(map(_is_place, said)):
        return said[0], said[1]
    raise CursorError(f"{text[:60]!r} is no cursor; expected a position per source")
