"""Detects records that a pipeline wrote again after a failure, so that readers can skip them.

A record that was derived from another names its source: `"_src":"<stream>/<partition>:<offset>"`, followed by
`.<number>` if several records were derived from one. Records from one source partition are stored in the order of that
partition. So a record at or below the highest source offset read so far is a repeat.
"""

from __future__ import annotations

import json
import re

from tidegate.logs.cursor import Mark

# Quotes inside a JSON string are escaped, so a match is a key: of the record itself, or of an object in it.
_KEY = re.compile(rb'"_src"\s*:\s*"([^"\\]*)"')
_SOURCE = re.compile(r"(.+):([0-9]{1,19})(?:\.([0-9]{1,19}))?")


def is_repeat(record: bytes, marks: dict[str, Mark]) -> bool:
    """True if a record is at or below the mark of its source partition; otherwise moves the mark up to it.

    Call it for each record in the order of its partition. `marks` belongs to one reader of that partition.

    >>> marks: dict[str, Mark] = {}
    >>> [is_repeat(b'{"_src":"gps/0:%d"}' % n, marks) for n in (1, 2, 1, 2, 3)]
    [False, False, True, True, False]
    >>> marks
    {'gps/0': 3}
    """
    source = source_of(record)
    if source is None:
        return False
    partition, position = source
    mark = marks.get(partition)
    if mark is not None and _comparable(position) <= _comparable(mark):
        return True
    marks[partition] = position
    return False


def source_of(record: bytes) -> tuple[str, Mark] | None:
    """Return the source partition of a record and the position in it; None if the record names no source.

    >>> source_of(b'{"n":1,"_src":"gps/0:77.2"}')
    ('gps/0', (77, 2))
    """
    key = _KEY.search(record)
    if key is None:
        return None
    text: object = key[1].decode(errors="replace")
    if record.count(b"{") > 1:  # the key may belong to an inner object
        try:
            text = json.loads(record).get("_src")
        except ValueError:
            return None
    source = _SOURCE.fullmatch(text) if isinstance(text, str) else None
    if source is None:
        return None
    offset = int(source[2])
    return source[1], offset if source[3] is None else (offset, int(source[3]))


def _comparable(mark: Mark) -> tuple[int, int]:
    return (mark, -1) if isinstance(mark, int) else mark
