"""One link while it is up: what is said goes out in order, what is heard comes in one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidegate.errors import FederationError
from tidegate.federation.link.bounds import Budget, NeighbourFault, cost_of
from tidegate.federation.link.settings import LinkSettings
from tidegate.federation.link.wire import (
    CONTROL,
    EVENTS,
    Inbox,
    LinkClosed,
    Socket,
    control,
    events,
    read_control,
    read_events,
)

FAREWELL_S = 1.0
"""How long the last words may take."""

MOST_WAITING = 20_000
"""Messages that have yet to be sent."""
MOST_BYTES = 64 * 1024 * 1024
"""Of what has yet to be sent, besides events, of which each service has a bounded number under way."""

Hear = Callable[[dict[str, Any]], Awaitable[None]]
Take = Callable[[dict[str, Any], list[bytes]], Awaitable[None]]


class Session:
    """A socket whose other end has proved who it is."""

    def __init__(self, socket: Socket, settings: LinkSettings) -> None:
        self._socket, self._settings = socket, settings
        self._outbox: asyncio.Queue[tuple[list[bytes], int]] = asyncio.Queue()
        """Events wait to be taken; of all else the bytes are counted. Who reads nothing of it for long is given up."""
        self._waiting_bytes = 0
        self._closing: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.said = self.heard = 0
        """Control messages."""
        self.budget = Budget(settings.bounds)
        """The work that the other end may cause."""
        self.fault: str | None = None
        """What the other end has done that it must not; None: nothing."""

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a message, some time soon."""
        self.said += message["type"] != "taken"
        frames = control(message)
        self._put(frames, sum(map(len, frames)))

    def give(self, head: Mapping[str, Any], records: Sequence[bytes]) -> None:
        """Send events, some time soon."""
        frames = events(head, records)
        self._put(frames, sum(map(len, frames)) if "history" in head else 0)

    def _put(self, frames: list[bytes], counted: int) -> None:
        if self._outbox.qsize() >= MOST_WAITING:
            self.end(f"{MOST_WAITING:,} messages wait, and the other end reads none")
        elif self._waiting_bytes >= MOST_BYTES:
            self.end(f"{MOST_BYTES:,} bytes wait, and the other end reads none")
        else:
            self._waiting_bytes += counted
            self._outbox.put_nowait((frames, counted))

    def end(self, reason: str) -> None:
        """Close, when what was said before is sent."""
        if not self._closing.done():
            self._closing.set_result(reason)

    async def run(self, hear: Hear, take: Take, beat: Callable[[], None]) -> str:
        """Carry messages until the link breaks; say why it did. `beat` is called every so often."""
        tasks = [asyncio.create_task(each) for each in (self._read(hear, take), self._write(), self._beat(beat))]
        try:
            waiting: list[asyncio.Future[Any]] = [*tasks, self._closing]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._closing in done:
                await self._farewell()
                return self._closing.result()
            problem = next(each.exception() for each in tasks if each in done)
            self.fault = str(problem) if isinstance(problem, NeighbourFault) else None
            if isinstance(problem, LinkClosed | FederationError):
                return str(problem)
            assert problem is not None
            raise problem
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _farewell(self) -> None:
        """Let what was said before be sent, if the other end reads it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._outbox.join()

    async def _read(self, hear: Hear, take: Take) -> None:
        bounds = self._settings.bounds
        inbox = Inbox(self._socket, max(bounds.control_bytes, bounds.event_bytes))
        while True:
            kind, body = await self._next(inbox)
            try:
                message = self._parsed(kind, body)
            except FederationError as problem:
                raise NeighbourFault(str(problem)) from problem
            if isinstance(message, tuple):
                await take(*message)
                continue
            self._check_size(message, len(body))
            await self.spend(cost_of(message, len(body)))
            self.heard += message["type"] != "taken"
            await hear(message)

    async def _next(self, inbox: Inbox) -> tuple[bytes, bytes]:
        try:
            async with asyncio.timeout(self._settings.silence_s):
                return await inbox.next()
        except TimeoutError:
            raise LinkClosed(f"nothing was heard for {self._settings.silence_s:g} s") from None
        except FederationError as problem:
            raise NeighbourFault(str(problem)) from problem

    def _parsed(self, kind: bytes, body: bytes) -> dict[str, Any] | tuple[dict[str, Any], list[bytes]]:
        """Return a control message, or events with what is said of them."""
        if kind not in (CONTROL, EVENTS):
            raise FederationError(f"expected a message of kind c or e, not {kind!r}")
        bounds = self._settings.bounds
        most = bounds.control_bytes if kind == CONTROL else bounds.event_bytes
        if len(body) > most:
            raise FederationError(f"expected a message of at most {most:,} bytes over a link, not {len(body):,}")
        return read_control(body) if kind == CONTROL else read_events(body)

    def _check_size(self, message: Mapping[str, Any], size_bytes: int) -> None:
        most = self._settings.bounds.offer_bytes
        if message["type"] == "offers" and size_bytes > most:
            raise NeighbourFault(f"expected offers of at most {most:,} bytes, not {size_bytes:,}")

    async def spend(self, units: float) -> None:
        """Let the other end cause some work, as soon as it may; other links get their turn first."""
        await asyncio.sleep(self.budget.spend(units))

    async def _write(self) -> None:
        while True:
            frames, counted = await self._outbox.get()
            for frame in frames:
                await self._socket.send(frame)
            self._waiting_bytes -= counted
            self._outbox.task_done()

    async def _beat(self, beat: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self._settings.beat_s)
            beat()
