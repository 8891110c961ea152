"""Server-sent events out of bytes, however they are cut: the HTML standard's event streams."""

from __future__ import annotations

import re
from dataclasses import dataclass

_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """What stood between two empty lines."""

    data: str | None
    """None: there was no data, just an id; the place moves, and nothing is to be done."""
    name: str = "message"
    id: str = ""
    """The last that was given, here or in a block before."""


class Parser:
    """Takes bytes, gives blocks.

    A block counts when the empty line behind it has come. Of one that was cut
    off nothing remains, its id neither: whoever comes back gets it again.

    >>> parser = Parser()
    >>> parser.feed(b"id: 7\\ndata: on"), parser.feed(b"e\\n\\nid: 8\\n")
    ([], [Block(data='one', name='message', id='7')])
    """

    def __init__(self, last_id: str = "") -> None:
        """`last_id`: of the connection before."""
        self.retry_ms: int | None = None
        """How long the server wants whoever lost it to wait; None: it has not said."""
        self._pieces: list[bytes] = []
        self._is_first_line, self._skips_lf = True, False
        self._id, self._name, self._has_id = last_id, "", False
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[Block]:
        """Take some bytes; give the blocks that they end."""
        if not data:
            return []
        if self._skips_lf and data.startswith(b"\n"):  # the other half of a CR LF
            data = data[1:]
        self._skips_lf = data.endswith(b"\r")
        if _END.search(data) is None:  # joined once, not again with every piece of a long line
            self._pieces.append(data)
            return []
        lines = _END.split(b"".join([*self._pieces, data]))
        self._pieces = [lines.pop()]
        found = (self._take(line) for line in lines)
        return [each for each in found if each is not None]

    def _take(self, line: bytes) -> Block | None:
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._end_block()
        name, _, value = line.partition(b":")
        self._take_field(name, value.removeprefix(b" ").decode(errors="replace"))
        return None

    def _take_field(self, name: bytes, value: str) -> None:
        match name:  # a comment has an empty name
            case b"data":
                self._data.append(value)
            case b"event":
                self._name = value
            case b"id" if "\0" not in value:
                self._id, self._has_id = value, True
            case b"retry" if value.isascii() and value.isdigit():
                self.retry_ms = int(value)

    def _end_block(self) -> Block | None:
        found = None
        if self._data:
            found = Block("\n".join(self._data), self._name or "message", self._id)
        elif self._has_id:
            found = Block(None, self._name or "message", self._id)
        self._data, self._name, self._has_id = [], "", False
        return found
