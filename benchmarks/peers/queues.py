"""A plain event server: uvicorn on uvloop, one queue per connection: `python -m benchmarks.peers.queues`.

What one writes first. It tails the same log as the gateway, parses each record once, and knows beforehand which
connections want which cell, so that matching costs it nothing. Then each event goes through a queue, a task and
ASGI's `send` for each who gets it. It has no cursors, and a slow reader's queue grows.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import orjson
import uvicorn
import uvloop

from benchmarks.peers.listening import Saying
from tidegate.logs import SegmentLog

_BETWEEN = re.compile(r"cell BETWEEN ([0-9]+) AND ([0-9]+)")
_HEADERS = [(b"content-type", b"text/event-stream")]
Queue = asyncio.Queue[bytes]


class Server:
    """Puts appended events into the queues of matching subscribers."""

    def __init__(self, log: SegmentLog, stream: str) -> None:
        self._log, self._stream = log, stream
        self._of_cell: defaultdict[int, set[Queue]] = defaultdict(set)
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._tail, daemon=True).start()

    def _tail(self) -> None:
        place = self._log.end(self._stream)
        while True:
            if self._log.wait(self._stream, place, 1.0):
                read = self._log.read(self._stream, place, 2_000)
                place = read.cursor
                found = [(orjson.loads(record)["cell"], b"data: %s\n\n" % record) for record in read.records]
                self._loop.call_soon_threadsafe(self._hand, found)

    def _hand(self, found: list[tuple[int, bytes]]) -> None:
        for cell, data in found:
            for queue in self._of_cell.get(cell, ()):
                queue.put_nowait(data)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection until it closes."""
        query = parse_qs(scope["query_string"].decode())
        wanted = _BETWEEN.fullmatch(query["filter"][0])
        assert wanted is not None, query
        cells = range(int(wanted[1]), int(wanted[2]) + 1)
        queue: Queue = asyncio.Queue()
        for cell in cells:
            self._of_cell[cell].add(queue)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": b"\n:\n\n", "more_body": True})
        writing = asyncio.create_task(self._write(queue, send))
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            writing.cancel()
            for cell in cells:
                self._of_cell[cell].discard(queue)

    async def _write(self, queue: Queue, send: Any) -> None:
        while True:
            data = await queue.get()
            await send({"type": "http.response.body", "body": data, "more_body": True})


async def serve(folder: Path, stream: str) -> None:
    """Listen until a signal stops the process."""
    app = Server(SegmentLog(folder), stream)
    config = uvicorn.Config(app, port=0, lifespan="off", log_level="warning", timeout_graceful_shutdown=1, backlog=4096)
    await Saying(config).serve()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), sys.argv[2]))
