"""The frames of a link over WebSocket. The first byte of each frame is its kind:

    c   a control message in JSON: one of `federation.routes.messages`, or one of those below
    e   events: a line of JSON with their service and the cursor after them, then one record per line
    +   a part of a message that is too large for one frame; the last part has the kind of the message

The broker that dials sends `open`, receives `challenge`, sends `proof`, and receives `welcome` or `refused`. Then both
ends send `offers` (the services that the neighbour may subscribe to), `resume` (the position at which each service's
events continue) and `hello`; and whenever something changes `offers`, `update` and so on. `taken` confirms each message
with events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import orjson

from tidegate.errors import FederationError

SUBPROTOCOL = "tidegate.link.v1"
PART_BYTES = 512 * 1024
"""Size of a frame that every gateway accepts."""
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Size of a message with all its parts."""
MIN_PART_BYTES = 64 * 1024
"""Size of every part but the last, so that a hostile neighbour can't fill the memory with tiny parts."""

CONTROL, EVENTS, PART = b"c", b"e", b"+"


class LinkClosed(Exception):  # noqa: N818 - not an error: links break
    """The connection was closed by either end. The text says why, if that is known."""


class LinkSocket(Protocol):
    """An open WebSocket, on either end. Its methods run on the event loop and raise nothing but `LinkClosed`."""

    async def send(self, data: bytes) -> None:
        """Send a frame. Waits while the send buffer is full."""

    async def receive(self) -> bytes:
        """Return the next frame."""

    async def close(self, reason: str) -> None:
        """Close the connection with a reason for the other end."""


def frames(kind: bytes, body: bytes) -> list[bytes]:
    """Return a message as frames.

    >>> [frame[:2] for frame in frames(CONTROL, b"x" * (PART_BYTES + 1))]
    [b'+x', b'cx']
    """
    parts = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)] or [b""]
    return [*(PART + part for part in parts[:-1]), kind + parts[-1]]


def control(message: Mapping[str, Any]) -> list[bytes]:
    """Return the frames of a control message."""
    return frames(CONTROL, orjson.dumps(message))


def events(head: Mapping[str, Any], records: Sequence[bytes]) -> list[bytes]:
    """Return the frames of a message with events; `head` has their `service` and `cursor`."""
    return frames(EVENTS, b"\n".join([orjson.dumps(head), *records]))


class Inbox:
    """Receives messages and joins their parts."""

    def __init__(self, socket: LinkSocket, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        """`max_bytes` is the size of one message with all its parts."""
        self._socket, self._max_bytes = socket, max_bytes

    async def next(self) -> tuple[bytes, bytes]:
        """Return the kind and the body of the next message.

        Raises `LinkClosed` if the connection ends, and a `FederationError` if a message or one of its parts has an
        illegal size.
        """
        parts: list[bytes] = []
        size = 0
        while True:
            frame = await self._socket.receive()
            parts.append(frame[1:])
            size += len(frame)
            if size > self._max_bytes:
                raise FederationError(f"expected a message of at most {self._max_bytes:,} bytes over a link")
            if frame[:1] != PART:
                return frame[:1], b"".join(parts)
            if len(frame) < MIN_PART_BYTES:
                raise FederationError(f"expected a part of at least {MIN_PART_BYTES:,} bytes, not {len(frame):,}")

    async def message(self) -> dict[str, Any]:
        """Return the next message, which must be a control message. Raises a `FederationError` if it is not."""
        kind, body = await self.next()
        if kind != CONTROL:
            raise FederationError(f"expected a message in JSON, not one of kind {kind!r}")
        return read_control(body)


def read_control(body: bytes) -> dict[str, Any]:
    """Parse a control message. Raises a `FederationError` if it is no JSON object with a `type`."""
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise FederationError(f"expected a message in JSON, not {body[:60]!r}") from exc
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FederationError(f"expected a message with a type, not {body[:60]!r}")
    return message


def read_events(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the head and the records of a message with events. Raises a `FederationError` if the head is malformed."""
    line, *records = body.split(b"\n")
    try:
        head = orjson.loads(line)
        assert isinstance(head["service"], str)
        assert isinstance(head["cursor"], str)
    except (orjson.JSONDecodeError, KeyError, TypeError, AssertionError) as exc:
        raise FederationError(f"expected events with their service and cursor, not {line[:60]!r}") from exc
    return head, records
