"""Many subscriptions on a few WebSockets, in one process: `python -m benchmarks.delivery.sockets`.

Arguments: port, service, and how many sockets, subscriptions on each and cells; the subscription's cell is drawn, with
a seed. Prints `connected` when all subscriptions are confirmed, and for each line on standard input what came since
the last.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import sys
import time
from typing import cast

import uvloop

from benchmarks.delivery.listeners import Came, summary

SEED = 7
_EVENT = re.compile(rb'"subscriptions":\[([^\]]*)\].*?"id":"([^"]*)".*?"t":([0-9]+)')
_UPGRADE = (
    b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: tidegate.v1\r\n\r\n"
)


def frame(text: bytes, opcode: int = 1) -> bytes:
    """Return a client's frame, masked with zeros, which do not change the payload.

    >>> frame(b"{}")
    b'\\x81\\x82\\x00\\x00\\x00\\x00{}'
    """
    size = len(text)
    head = bytes((0x80 | opcode, 0x80 | size)) if size < 126 else bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2)
    return head + bytes(4) + text


def frames(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return the complete messages in some bytes, each with its opcode, and the remaining bytes.

    >>> frames(b'\\x81\\x02{}\\x81\\x05{"a"')
    ([(1, b'{}')], b'\\x81\\x05{"a"')
    """
    found, at, end = [], 0, len(data)
    while end - at >= 2:
        size, begin = data[at + 1], at + 2
        if size >= 126:
            begin += 2 if size == 126 else 8
            if begin > end:
                break
            size = int.from_bytes(data[at + 2 : begin])
        if begin + size > end:
            break
        found.append((data[at] & 15, data[begin : begin + size]))
        at = begin + size
    return found, data[at:]


class Counted(Came):
    """Counters of all sockets; `total` counts subscriptions, `received` counts frames."""

    repeated: int = 0
    """Repeated frames for one event: all subscriptions of a socket should share one frame."""


class Socket(asyncio.Protocol):
    """One WebSocket and its subscriptions."""

    def __init__(self, messages: list[bytes], came: Counted, live: asyncio.Future[None]) -> None:
        self._messages, self._came, self._live = messages, came, live
        self._rest, self._is_open, self._confirmed, self._last = b"", False, 0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the upgrade request."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport has the same methods
        self._transport.write(_UPGRADE % base64.b64encode(bytes(16)))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - why is not asked
        """Release the tasks that wait for this connection."""
        if not self._live.done():
            self._live.set_exception(RuntimeError(f"not served: {self._rest[-500:].decode(errors='replace')}"))

    def data_received(self, data: bytes) -> None:
        """Record all complete messages."""
        now = time.time_ns() / 1e3
        self._came.bytes += len(data)
        data = self._rest + data
        if not self._is_open:
            head, end, data = data.partition(b"\r\n\r\n")
            if not end:
                self._rest = head
                return
            self._is_open = True
            self._transport.write(b"".join(frame(each) for each in self._messages))
        found, self._rest = frames(data)
        for opcode, message in found:
            if opcode == 9:
                self._transport.write(frame(message, 10))
            elif event := _EVENT.search(message):
                self._take(event[1], event[2], int(event[3]), now)
            elif message.startswith(b'{"op":"subscribed"'):
                self._confirmed += 1
                if self._confirmed == len(self._messages):
                    self._live.set_result(None)
            elif message.startswith(b'{"op":"error"') and not self._live.done():
                self._live.set_exception(RuntimeError(message.decode()))

    def _take(self, labels: bytes, id_: bytes, sent: int, now: float) -> None:
        came = self._came
        came.ages.append((now - sent) / 1e3)
        came.received += 1
        came.total += labels.count(b",") + 1
        came.repeated += id_ == self._last
        self._last = id_


async def listen(port: int, service: str, sockets: int, each: int, cells: int) -> None:
    """Connect all sockets, then answer standard input."""
    loop = asyncio.get_running_loop()
    came, drawn = Counted(), random.Random(SEED)
    waiting: list[asyncio.Future[None]] = []
    for _ in range(sockets):
        messages = [
            json.dumps(
                {"op": "subscribe", "id": str(k), "service": service, "filter": f"cell = {drawn.randrange(cells)}"}
            ).encode()
            for k in range(each)
        ]
        live = loop.create_future()
        waiting.append(live)
        made = Socket(messages, came, live)
        await loop.create_connection(lambda made=made: made, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*waiting)
    print("connected", flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(summary(came) | {"repeated": came.repeated}), flush=True)


if __name__ == "__main__":
    port_, service_, *numbers = sys.argv[1:]
    uvloop.run(listen(int(port_), service_, *map(int, numbers)))
