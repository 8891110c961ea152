"""Sockets to other gateways, and how long to wait before one is tried again."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Iterator
from itertools import count

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from tidegate.errors import TidegateError
from tidegate.federation.link.settings import LinkSettings
from tidegate.federation.link.wire import PART_BYTES, SUBPROTOCOL, LinkClosed
from tidegate.timing import Backoff

PATH = "/v1/link"
_LONGEST_REASON = 123
"""Bytes, as RFC 6455 has it."""


class Dialled:
    """A WebSocket that we opened."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        """Send a frame, as soon as there is room."""
        try:
            await self._connection.send(data)
        except ConnectionClosed as exc:
            raise _closed(exc) from exc

    async def receive(self) -> bytes:
        """The next frame."""
        try:
            frame = await self._connection.recv(decode=False)
        except ConnectionClosed as exc:
            raise _closed(exc) from exc
        return bytes(frame)

    async def close(self, reason: str) -> None:
        """Close, and say why; where that is given up, without."""
        try:
            await self._connection.close(1000, reason.encode()[:_LONGEST_REASON].decode(errors="ignore"))
        except asyncio.CancelledError:
            self._connection.transport.abort()
            raise


async def dial(url: str, settings: LinkSettings) -> Dialled:
    """Open a socket to the gateway at a URL."""
    scheme, _, rest = url.rstrip("/").partition("://")
    is_secure = scheme in ("https", "wss")
    address = f"{'wss' if is_secure else 'ws'}://{rest}{PATH}"
    try:
        context = None if not is_secure else (settings.tls or ssl.create_default_context)()
        connection = await connect(
            address,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            max_size=PART_BYTES * 2,
            open_timeout=settings.handshake_timeout_s,
            close_timeout=1.0,
            ping_interval=None,  # heartbeats are our own, both ways
            proxy=None,
            ssl=context,
        )
    except TidegateError as exc:
        raise LinkClosed(f"can't reach {url}: {exc}") from exc
    except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as exc:
        raise LinkClosed(f"can't reach {url}: {exc}") from exc
    return Dialled(connection)


def retry_delays(settings: LinkSettings, rng: random.Random) -> Iterator[float]:
    """How long to wait before each try, for ever.

    Each is somewhere between half of its length and all of it: brokers that lost the same one do not all come at once.

    >>> settings = LinkSettings("a", first_retry_s=1.0, max_retry_s=4.0)
    >>> [0.5 <= pause / full <= 1 for pause, full in zip(retry_delays(settings, random.Random(1)), (1, 2, 4, 4))]
    [True, True, True, True]
    """
    backoff = Backoff(settings.first_retry_s, settings.max_retry_s)
    for failures in count(1):
        yield backoff.delay_s(failures, rng.random)


def _closed(exc: ConnectionClosed) -> LinkClosed:
    reason = exc.rcvd.reason if exc.rcvd is not None and exc.rcvd.reason else "the link broke"
    return LinkClosed(reason)
