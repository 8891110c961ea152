"""Parses server-sent events as the HTML standard defines them, from chunks of any size. Does no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseMessage:
    """The fields between two empty lines of a stream."""

    data: str | None
    """None if the message has only an id: the position moves, and there is nothing to process."""
    name: str = "message"
    id: str = ""
    """The last id of the stream, from this message or an earlier one."""


class SseParser:
    """Turns the bytes of one connection into messages.

    A message is complete when the empty line after it has arrived. An incomplete message is dropped with its id
    when the connection ends, so a client that reconnects receives it again.

    >>> parser = SseParser()
    >>> parser.feed(b"id: 7\\ndata: on"), parser.feed(b"e\\n\\nid: 8\\n")
    ([], [SseMessage(data='one', name='message', id='7')])
    """

    def __init__(self, last_id: str = "") -> None:
        """`last_id` is the last id of the previous connection."""
        self.retry_ms: int | None = None
        """Reconnection time that the server has asked for; None if it has not."""
        self._unfinished_line: list[bytes] = []
        self._is_first_line, self._skips_lf = True, False
        self._id, self._name, self._has_id = last_id, "", False
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[SseMessage]:
        """Return the messages that these bytes complete."""
        if not data:
            return []
        if self._skips_lf and data.startswith(b"\n"):  # second half of a CR LF
            data = data[1:]
        self._skips_lf = data.endswith(b"\r")
        # Chunks without a line end are only collected: joining at every chunk would be quadratic for a long line.
        if _LINE_END.search(data) is None:
            self._unfinished_line.append(data)
            return []
        lines = _LINE_END.split(b"".join([*self._unfinished_line, data]))
        self._unfinished_line = [lines.pop()]
        messages = (self._parse_line(line) for line in lines)
        return [message for message in messages if message is not None]

    def _parse_line(self, line: bytes) -> SseMessage | None:
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._end_message()
        name, _, value = line.partition(b":")
        self._set_field(name, value.removeprefix(b" ").decode(errors="replace"))
        return None

    def _set_field(self, name: bytes, value: str) -> None:
        match name:  # a comment has an empty name
            case b"data":
                self._data.append(value)
            case b"event":
                self._name = value
            case b"id" if "\0" not in value:
                self._id, self._has_id = value, True
            case b"retry" if value.isascii() and value.isdigit():
                self.retry_ms = int(value)

    def _end_message(self) -> SseMessage | None:
        message = None
        if self._data:
            message = SseMessage("\n".join(self._data), self._name or "message", self._id)
        elif self._has_id:
            message = SseMessage(None, self._name or "message", self._id)
        self._data, self._name, self._has_id = [], "", False
        return message
