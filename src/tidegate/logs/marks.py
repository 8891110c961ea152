"""Records that a pipeline wrote again after a failure, and how a reader leaves them out.

A record that was made of another says so: `"_src":"<stream>/<partition>:<position>"`,
with `.<child>` behind it where several were made of one. All that come from one
partition of a source lie in its order, so whoever knows how far it has read
knows what is a repeat.
"""

from __future__ import annotations

import json
import re

from tidegate.logs.cursor import Mark

# Inside a JSON text every quote has a backslash before it, so this is a key, of the record or of an object in it.
_KEY = re.compile(rb'"_src"\s*:\s*"([^"\\]*)"')
_SOURCE = re.compile(r"(.+):([0-9]{1,19})(?:\.([0-9]{1,19}))?")


def is_repeat(record: bytes, marks: dict[str, Mark]) -> bool:
    """Say whether a record is at or below the mark of its source; if not, the mark moves up to it.

    >>> marks: dict[str, Mark] = {}
    >>> [is_repeat(b'{"_src":"gps/0:%d"}' % n, marks) for n in (1, 2, 1, 2, 3)]
    [False, False, True, True, False]
    >>> marks
    {'gps/0': 3}
    """
    source = source_of(record)
    if source is None:
        return False
    name, reached = source
    known = marks.get(name)
    if known is not None and _place(reached) <= _place(known):
        return True
    marks[name] = reached
    return False


def source_of(record: bytes) -> tuple[str, Mark] | None:
    """Which partition of which stream a record was made of, and of what in it; None where it does not say.

    >>> source_of(b'{"n":1,"_src":"gps/0:77.2"}')
    ('gps/0', (77, 2))
    """
    found = _KEY.search(record)
    if found is None:
        return None
    text: object = found[1].decode(errors="replace")
    if record.count(b"{") > 1:  # it may be a key of an inner object
        try:
            text = json.loads(record).get("_src")
        except ValueError:
            return None
    said = _SOURCE.fullmatch(text) if isinstance(text, str) else None
    if said is None:
        return None
    position = int(said[2])
    return said[1], position if said[3] is None else (position, int(said[3]))


def _place(mark: Mark) -> tuple[int, int]:
    return (mark, -1) if isinstance(mark, int) else mark
