"""One session of a link: sends messages in order, and hands received ones over one after the other."""

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
    LinkSocket,
    control,
    events,
    read_control,
    read_events,
)

DRAIN_TIMEOUT_S = 1.0
"""How long the outbox may take to be sent when the session is ended."""
MAX_WAITING = 20_000
"""Messages in the outbox. Beyond it the session ends."""
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Bytes in the outbox, without forwarded events: each service has a bounded number of those in flight."""

OnMessage = Callable[[dict[str, Any]], Awaitable[None]]
OnEvents = Callable[[dict[str, Any], list[bytes]], Awaitable[None]]


class Session:
    """A socket whose other end is authenticated. Used on the event loop only."""

    def __init__(self, socket: LinkSocket, settings: LinkSettings) -> None:
        self._socket, self._settings = socket, settings
        self._outbox: asyncio.Queue[tuple[list[bytes], int]] = asyncio.Queue()
        """Frames to send, with the bytes that count against `MAX_WAITING_BYTES`."""
        self._waiting_bytes = 0
        self._closing: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.sent = self.received = 0
        """Control messages, without `taken`."""
        self.budget = Budget(settings.bounds)
        """The work that the other end may cause."""
        self.fault: str | None = None
        """How the other end broke the protocol. None: it did not."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a control message. Never blocks; ends the session if the outbox is full."""
        self.sent += message["type"] != "taken"
        frames = control(message)
        self._put(frames, sum(map(len, frames)))

    def send_events(self, head: Mapping[str, Any], records: Sequence[bytes]) -> None:
        """Queue events. Never blocks; ends the session if the outbox is full."""
        frames = events(head, records)
        self._put(frames, sum(map(len, frames)) if "history" in head else 0)

    def _put(self, frames: list[bytes], counted_bytes: int) -> None:
        if self._outbox.qsize() >= MAX_WAITING:
            self.end(f"{MAX_WAITING:,} messages wait, and the other end reads none")
        elif self._waiting_bytes >= MAX_WAITING_BYTES:
            self.end(f"{MAX_WAITING_BYTES:,} bytes wait, and the other end reads none")
        else:
            self._waiting_bytes += counted_bytes
            self._outbox.put_nowait((frames, counted_bytes))

    def end(self, reason: str) -> None:
        """End the session once the queued messages are sent. The first reason counts."""
        if not self._closing.done():
            self._closing.set_result(reason)

    async def run(self, on_message: OnMessage, on_events: OnEvents, on_heartbeat: Callable[[], None]) -> str:
        """Run the session and return the reason for its end.

        `on_message` and `on_events` are awaited one after the other, so a slow one delays reading. `on_heartbeat` is
        called every `LinkSettings.heartbeat_interval_s`. An exception of theirs ends the session: `LinkClosed` and
        `FederationError` become the reason, others are raised.
        """
        work = (self._read(on_message, on_events), self._write(), self._send_heartbeats(on_heartbeat))
        tasks = [asyncio.create_task(loop) for loop in work]
        try:
            waiting: list[asyncio.Future[Any]] = [*tasks, self._closing]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._closing in done:
                await self._drain()
                return self._closing.result()
            problem = next(task.exception() for task in tasks if task in done)
            self.fault = str(problem) if isinstance(problem, NeighbourFault) else None
            if isinstance(problem, LinkClosed | FederationError):
                return str(problem)
            assert problem is not None
            raise problem
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _drain(self) -> None:
        """Wait until the outbox is sent, if the other end reads it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await self._outbox.join()

    async def _read(self, on_message: OnMessage, on_events: OnEvents) -> None:
        bounds = self._settings.bounds
        inbox = Inbox(self._socket, max(bounds.control_bytes, bounds.event_bytes))
        while True:
            kind, body = await self._next(inbox)
            try:
                message = self._parse(kind, body)
            except FederationError as problem:
                raise NeighbourFault(str(problem)) from problem
            if isinstance(message, tuple):
                await on_events(*message)
                continue
            self._check_size(message, len(body))
            await self.charge(cost_of(message, len(body)))
            self.received += message["type"] != "taken"
            await on_message(message)

    async def _next(self, inbox: Inbox) -> tuple[bytes, bytes]:
        try:
            async with asyncio.timeout(self._settings.silence_timeout_s):
                return await inbox.next()
        except TimeoutError:
            raise LinkClosed(f"nothing was heard for {self._settings.silence_timeout_s:g} s") from None
        except FederationError as problem:
            raise NeighbourFault(str(problem)) from problem

    def _parse(self, kind: bytes, body: bytes) -> dict[str, Any] | tuple[dict[str, Any], list[bytes]]:
        """Return a control message, or the head and records of events."""
        if kind not in (CONTROL, EVENTS):
            raise FederationError(f"expected a message of kind c or e, not {kind!r}")
        bounds = self._settings.bounds
        max_bytes = bounds.control_bytes if kind == CONTROL else bounds.event_bytes
        if len(body) > max_bytes:
            raise FederationError(f"expected a message of at most {max_bytes:,} bytes over a link, not {len(body):,}")
        return read_control(body) if kind == CONTROL else read_events(body)

    def _check_size(self, message: Mapping[str, Any], size_bytes: int) -> None:
        max_bytes = self._settings.bounds.offer_bytes
        if message["type"] == "offers" and size_bytes > max_bytes:
            raise NeighbourFault(f"expected offers of at most {max_bytes:,} bytes, not {size_bytes:,}")

    async def charge(self, units: float) -> None:
        """Charge the other end for work, and wait if it has used up its rate. Raises `NeighbourFault` on a flood.

        Other links run at least once before this returns.
        """
        await asyncio.sleep(self.budget.spend(units))

    async def _write(self) -> None:
        while True:
            frames, counted_bytes = await self._outbox.get()
            for frame in frames:
                await self._socket.send(frame)
            self._waiting_bytes -= counted_bytes
            self._outbox.task_done()

    async def _send_heartbeats(self, on_heartbeat: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval_s)
            on_heartbeat()
