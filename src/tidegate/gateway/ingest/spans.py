"""Where the parts of a JSON text begin and end, so that each can be kept as it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

# Numbers are passed over, not read: Python refuses whole ones of more than 4,300 digits.
_scan = json.JSONDecoder(parse_int=float).raw_decode
_skip = re.compile(r"[ \t\n\r]*").match


def items(text: str) -> Iterator[tuple[int, int]]:
    """The places of an array's items, in a text that is surely JSON.

    >>> [" [1.10, {}]"[begin:end] for begin, end in items(" [1.10, {}]")]
    ['1.10', '{}']
    """
    at = _past(text, _past(text, 0) + 1)
    while text[at] != "]":
        end = _scan(text, at)[1]
        yield at, end
        at = _past(text, end)
        if text[at] == ",":
            at = _past(text, at + 1)


def member(text: str, name: str, begin: int = 0) -> tuple[int, int] | None:
    """The place of a value in an object that begins somewhere in a text that is surely JSON; of several the last.

    >>> text = '{"id": "1", "data": {"x": 1.10}}'
    >>> begin, end = member(text, "data")
    >>> text[begin:end]
    '{"x": 1.10}'
    """
    found = None
    at = _past(text, _past(text, begin) + 1)
    while text[at] != "}":
        key, end = _scan(text, at)
        at = _past(text, _past(text, end) + 1)  # the colon
        end = _scan(text, at)[1]
        if key == name:
            found = at, end
        at = _past(text, end)
        if text[at] == ",":
            at = _past(text, at + 1)
    return found


def _past(text: str, at: int) -> int:
    """The place of what follows white space."""
    found = _skip(text, at)
    return at if found is None else found.end()
