"""Finds where parts of a JSON text start and end, so that each part can be copied unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

# Integers are parsed as floats: Python refuses to parse integers of more than 4,300 digits.
_scan = json.JSONDecoder(parse_int=float).raw_decode
_skip = re.compile(r"[ \t\n\r]*").match


def items(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each item of an array. The text must be valid JSON.

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
    """Return start and end of a value of an object that starts at `begin`; the last one if the name is repeated.

    The text must be valid JSON.

    >>> text = '{"id": "1", "data": {"x": 1.10}}'
    >>> begin, end = member(text, "data")
    >>> text[begin:end]
    '{"x": 1.10}'
    """
    span = None
    at = _past(text, _past(text, begin) + 1)
    while text[at] != "}":
        key, end = _scan(text, at)
        at = _past(text, _past(text, end) + 1)  # the colon
        end = _scan(text, at)[1]
        if key == name:
            span = at, end
        at = _past(text, end)
        if text[at] == ",":
            at = _past(text, at + 1)
    return span


def _past(text: str, at: int) -> int:
    """Return the index after whitespace."""
    whitespace = _skip(text, at)
    return at if whitespace is None else whitespace.end()
