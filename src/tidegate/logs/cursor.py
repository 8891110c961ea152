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
"""How far a source partition was processed: an offset, or an offset and the number of a record derived from it."""


@dataclass(frozen=True)
class Cursor:
    """The position of a reader in a stream. Clients get it as an opaque text.

    A partition without an offset was not read yet. A stream that is deleted and created again has another
    generation, so a cursor of the old stream is never used as a position in the new one. Where a log may hold a
    record twice, `marks` say how far each source partition was read, so that readers skip the repeats.

    >>> at = Cursor("a1b2", {"0": 4096})
    >>> Cursor.from_text(at.text) == at
    True
    """

    generation: str
    offsets: Mapping[str, int]
    marks: Mapping[str, Mark] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The cursor as base64url text."""
        return encoded(self.json())

    def json(self) -> bytes:
        """Return the cursor as JSON: the content of `text` before base64."""
        parts = [self.generation, self.offsets, self.marks] if self.marks else [self.generation, self.offsets]
        return orjson.dumps(parts, default=dict, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_text(cls, text: str) -> Cursor:
        """Parse the text of a cursor. Raises CursorError for any other text."""
        try:
            document = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            generation, offsets, *rest = json.loads(document)
        except (binascii.Error, ValueError, TypeError, RecursionError) as exc:
            raise CursorError(f"{text[:60]!r} is no cursor; expected the text of one, unchanged") from exc
        marks = rest[0] if rest else {}
        has_parts = isinstance(generation, str) and isinstance(offsets, dict) and isinstance(marks, dict)
        if not has_parts or len(rest) > 1 or not all(map(_is_offset, offsets.values())):
            raise CursorError(f"{text[:60]!r} is no cursor; expected a generation and an offset per partition")
        return cls(generation, offsets, {source: _mark(value, text) for source, value in marks.items()})

    def moved(self, partition: str, offset: int) -> Cursor:
        """Return a copy with another offset for one partition."""
        return Cursor(self.generation, {**self.offsets, partition: offset}, self.marks)

    def __hash__(self) -> int:
        return hash((self.generation, tuple(sorted(self.offsets.items()))))


def encoded(document: bytes) -> str:
    """Return the text for a cursor's JSON. Runs once per delivered event: faster than `base64.urlsafe_b64encode`."""
    return binascii.b2a_base64(document, newline=False).rstrip(b"=").translate(_URL_SAFE).decode()


def _is_offset(value: Any) -> bool:
    return type(value) is int and value >= 0


def _mark(value: Any, text: str) -> Mark:
    if _is_offset(value):
        return int(value)
    if isinstance(value, list) and len(value) == 2 and all(map(_is_offset, value)):
        return value[0], value[1]
    raise CursorError(f"{text[:60]!r} is no cursor; expected an offset per source")
