"""What goes over a link: frames of a WebSocket, each one letter and what it says.

    c   a message in JSON: of `federation.routes`, or of those below
    e   events: one line of JSON with their service and the cursor behind them, then a record a line
    +   a part of a frame that is too large for one; the last part has the frame's own letter

Whoever dials says `open`, and hears `challenge`; says `proof`, and hears `welcome` or `refused`. Then both say
`offers` (services that the other may have), `resume` (where each service's events go on) and `hello`, and whenever
something changes `offers`, `update` and the like. `taken` answers each frame of events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import orjson

from tidegate.errors import FederationError

SUBPROTOCOL = "tidegate.link.v1"
PART_BYTES = 512 * 1024
"""Of one frame: what any gateway takes."""
MOST_BYTES = 32 * 1024 * 1024
"""Of one message, in all its parts."""
MIN_PART_BYTES = 64 * 1024
"""Of a frame that another follows: a message can't be cut into more parts than there is memory for."""

CONTROL, EVENTS, PART = b"c", b"e", b"+"


class LinkClosed(Exception):  # noqa: N818 - no error: links break
    """The other end is gone, or was let go of; the text says why, as far as is known."""


class Socket(Protocol):
    """A WebSocket, whoever opened it. Nothing but `LinkClosed` is raised."""

    async def send(self, data: bytes) -> None:
        """Send a frame, as soon as there is room."""

    async def receive(self) -> bytes:
        """The next frame."""

    async def close(self, reason: str) -> None:
        """Close, and say why."""


def frames(kind: bytes, body: bytes) -> list[bytes]:
    """A message as frames.

    >>> [frame[:2] for frame in frames(CONTROL, b"x" * (PART_BYTES + 1))]
    [b'+x', b'cx']
    """
    parts = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)] or [b""]
    return [*(PART + part for part in parts[:-1]), kind + parts[-1]]


def control(message: Mapping[str, Any]) -> list[bytes]:
    """A message in JSON."""
    return frames(CONTROL, orjson.dumps(message))


def events(head: Mapping[str, Any], records: Sequence[bytes]) -> list[bytes]:
    """Events; `head` says whose they are."""
    return frames(EVENTS, b"\n".join([orjson.dumps(head), *records]))


class Inbox:
    """Puts messages together out of frames."""

    def __init__(self, socket: Socket, most_bytes: int = MOST_BYTES) -> None:
        """`most_bytes` is what one message may have, in all its parts."""
        self._socket, self._most_bytes = socket, most_bytes

    async def next(self) -> tuple[bytes, bytes]:
        """The next message: its letter and what it says."""
        parts: list[bytes] = []
        size = 0
        while True:
            frame = await self._socket.receive()
            parts.append(frame[1:])
            size += len(frame)
            if size > self._most_bytes:
                raise FederationError(f"expected a message of at most {self._most_bytes:,} bytes over a link")
            if frame[:1] != PART:
                return frame[:1], b"".join(parts)
            if len(frame) < MIN_PART_BYTES:
                raise FederationError(f"expected a part of at least {MIN_PART_BYTES:,} bytes, not {len(frame):,}")

    async def message(self) -> dict[str, Any]:
        """The next message, which is to be JSON."""
        kind, body = await self.next()
        if kind != CONTROL:
            raise FederationError(f"expected a message in JSON, not one of kind {kind!r}")
        return read_control(body)


def read_control(body: bytes) -> dict[str, Any]:
    """A message in JSON, read."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise FederationError(f"expected a message in JSON, not {body[:60]!r}") from exc
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise FederationError(f"expected a message with a type, not {body[:60]!r}")
    return found


def read_events(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Events, read: whose they are, and the records."""
    head, *records = body.split(b"\n")
    try:
        found = orjson.loads(head)
        assert isinstance(found["service"], str)
        assert isinstance(found["cursor"], str)
    except (orjson.JSONDecodeError, KeyError, TypeError, AssertionError) as exc:
        raise FederationError(f"expected events with their service and cursor, not {head[:60]!r}") from exc
    return found, records
