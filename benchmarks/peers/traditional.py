"""A service for each subscriber: `python -m benchmarks.peers.traditional LOG SCHEMA`.

The traditional model of SDaaS's figure 8, in one process: whoever connects gets an instance of its own, a thread
that reads the raw streams it names, parses, filters, picks attributes and writes to its socket. It is made of the
gateway's own parts (batches, filters, the encoding, the socket): what differs is that nothing is shared.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvloop

from benchmarks.peers.listening import Saying
from tidegate.delivery.batch import Batch
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.live import MOST, PAUSE_S
from tidegate.delivery.subscriber import Member, Subscriber
from tidegate.filters import Filter
from tidegate.gateway.http.connections import Connections
from tidegate.gateway.server import THREAD_SWITCH_INTERVAL_S
from tidegate.gateway.settings import LimitSettings
from tidegate.gateway.telemetry.metrics import Tally
from tidegate.gateway.transports.outbox import Outbox
from tidegate.gateway.transports.protocol import Config, socket_of
from tidegate.gateway.transports.sse import SseSink
from tidegate.logs import SegmentLog
from tidegate.services import loads, stream_schemas


class Server:
    """Makes an instance for each request for `/v1/services/a,b,c/events`."""

    def __init__(self, log: SegmentLog, services: str) -> None:
        self._log, self._schemas = log, stream_schemas(loads(services))
        self._loop = asyncio.get_running_loop()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection until it hangs up."""
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"retry: 1000\n\n", "more_body": True})
        sink, ended = SseSink(socket_of(scope), Tally()), threading.Event()
        members = [self._member(name, sink, query) for name in scope["path"].split("/")[3].split(",")]
        sink.beat(None)
        threading.Thread(target=self._run, args=(members, ended), daemon=True).start()
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            ended.set()

    def _member(self, stream: str, sink: SseSink, query: dict[str, str]) -> Member:
        encoding = Encoding("plain", tuple(query["select"].split(",")) if "select" in query else None)
        filter_ = Filter(query["filter"], self._schemas[stream]) if "filter" in query else None
        return Member(Subscriber(stream, stream, filter_, sink, encoding, self._log.end(stream)))

    def _run(self, members: list[Member], ended: threading.Event) -> None:
        while not ended.is_set():
            for member in members:
                subscriber = member.subscriber
                place = subscriber.place
                assert place is not None
                if self._log.wait(subscriber.service, place, 0.0):
                    batch = Batch(subscriber.service, place, self._log.read(subscriber.service, place, MOST))
                    subscriber.place, rendered = batch.end, member.render(batch)
                    if rendered is not None:
                        self._loop.call_soon_threadsafe(subscriber.sink.write, rendered)
            time.sleep(PAUSE_S)


async def serve(folder: Path, services: str) -> None:
    """Listen until a signal says to stop."""
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    app = Server(SegmentLog(folder), services)
    limits = LimitSettings()
    config = Config(
        app,
        Outbox(),
        Connections(limits),
        limits,
        port=0,
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=1,
        backlog=4096,
    )
    await Saying(config).serve()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), Path(sys.argv[2]).read_text()))
