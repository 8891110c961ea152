"""Many SSE subscribers in a process of their own: `python -m benchmarks.delivery.listeners`.

Prints `connected`, and for each line on standard input what came since the last: JSON with the count and
percentiles of the events' ages, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from urllib.parse import quote

import uvloop

from benchmarks.measure import percentile

_SENT = re.compile(rb'"t":([0-9]+)')


class Listener(asyncio.Protocol):
    """One connection: asks, then notes how old each event is."""

    def __init__(self, request: bytes, ages: list[float]) -> None:
        self._request, self._ages = request, ages
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for events."""
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Note the ages of all whole events."""
        now = time.time_ns() / 1e3
        data = self._rest + data
        end = data.rfind(b"\n\n")
        if end < 0:
            self._rest = data
            return
        self._rest = data[end + 2 :]
        self._ages.extend((now - int(found[1])) / 1e3 for found in _SENT.finditer(data, 0, end))


async def listen(port: int, service: str, filters: list[str]) -> None:
    """Connect all, then answer standard input."""
    loop = asyncio.get_running_loop()
    ages: list[float] = []
    for text in filters:
        target = f"/v1/services/{service}/events?format=plain" + (f"&filter={quote(text)}" if text else "")
        request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
        await loop.create_connection(lambda request=request: Listener(request, ages), "127.0.0.1", port)  # type: ignore[misc]
    print("connected", flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        found, ages[:] = list(ages), []
        said = {"count": len(found)}
        if found:
            said |= {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "longest": max(found)}  # type: ignore[dict-item]
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    uvloop.run(listen(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])))
