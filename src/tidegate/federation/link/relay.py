"""Lets all gateways of a broker read history through the one that holds the links.

    gateway without links ── request ──▶ registry ──▶ gateway with the links ──▶ neighbour
                          ◀── page ─── registry ◀──

A message is a line of JSON, and for an answer the records after it, one a line.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import orjson

from tidegate.errors import TidegateError
from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.wire import LinkClosed

SERVE_INTERVAL_S = 0.25
"""Between two looks of the gateway with the links for requests."""
COLLECT_INTERVAL_S = 0.1
"""Between two looks for answers, while some are awaited."""
VALID_S = 40.0
"""How long a message may be taken: a little longer than a request waits for its answer."""
MAX_RELAYED = 100
"""Requests that are answered at a time."""

Answer = tuple[dict[str, Any], list[bytes]]
"""The head of a page of history and its records."""
Ask = Callable[[str, Mapping[str, Any]], Awaitable[Answer]]


class HistoryRelay:
    """Sends requests for history to the gateway with the links, and answers those of others. Used on the event loop."""

    def __init__(self, context: LinkContext, ask_neighbour: Ask) -> None:
        """`ask_neighbour` sends a request over a link, and returns the answer."""
        self._context, self._ask_neighbour = context, ask_neighbour
        self._me = f"history_{secrets.token_hex(8)}"
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._collector: asyncio.Task[None] | None = None
        self._serving = 0

    @property
    def _holder(self) -> str:
        """The recipient that requests are sent to: whichever gateway of the broker has the links."""
        return f"links of {self._context.name}"

    async def request(self, service: str, request: Mapping[str, Any], timeout_s: float) -> Answer:
        """Send a request to the gateway with the links, and return its answer. Raises `LinkClosed` if none comes."""
        id_ = secrets.token_hex(8)
        answer: asyncio.Future[Answer] = self._context.runtime.loop.create_future()
        self._waiting[id_] = answer
        message = {"from": self._me, "id": id_, "service": service, "request": dict(request)}
        try:
            await self._send(self._holder, orjson.dumps(message))
            if self._collector is None or self._collector.done():
                self._collector = self._context.runtime.spawn(self._collect())
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise LinkClosed(f"the gateway that holds the links of {self._context.name} does not answer") from None
        finally:
            self._waiting.pop(id_, None)

    async def _collect(self) -> None:
        """Take answers while requests wait for them."""
        while self._waiting:
            for message in await self._take(self._me):
                head, _, records = message.partition(b"\n")
                document = orjson.loads(head)
                waiting = self._waiting.get(document["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result((document["head"], records.split(b"\n") if records else []))
            await asyncio.sleep(COLLECT_INTERVAL_S)

    async def serve(self) -> None:
        """Take the requests of other gateways, and answer them in the background. Called periodically."""
        context = self._context
        if not context.has_lease or not context.neighbours or self._serving >= MAX_RELAYED:
            return
        for message in await self._take(self._holder):
            self._serving += 1
            context.runtime.spawn(self._answer(orjson.loads(message)))

    async def _answer(self, message: Mapping[str, Any]) -> None:
        try:
            try:
                head, records = await self._ask_neighbour(message["service"], message["request"])
            except (TidegateError, LinkClosed) as problem:
                head, records = {"problem": str(problem)}, []
            line = orjson.dumps({"id": message["id"], "head": head})
            await self._send(message["from"], b"\n".join([line, *records]))
        finally:
            self._serving -= 1

    async def _send(self, recipient: str, body: bytes) -> None:
        send = partial(self._context.registry.send_message, recipient, body, VALID_S)
        await self._context.runtime.in_history_thread(send)

    async def _take(self, recipient: str) -> list[bytes]:
        return await self._context.runtime.in_history_thread(partial(self._context.registry.take_messages, recipient))
