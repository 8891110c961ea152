"""Ingest in a process of its own, so that it never stalls delivery; seen from the gateway."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Self, cast

from tidegate.errors import NotAcknowledged, Overloaded
from tidegate.gateway.ingest.core import Outcome, Request
from tidegate.gateway.ingest.frames import CONTROL, Frames, frame
from tidegate.gateway.ingest.process import OpenLog
from tidegate.gateway.ingest.receipt import Mode, Receipt
from tidegate.gateway.ingest.settings import IngestSettings
from tidegate.services.definitions import Stream
from tidegate.timing import NO_JITTER, Backoff

_log = logging.getLogger(__name__)

_PREFIX = "ce-"

Process = subprocess.Popen[bytes]

_JOIN_S = 5.0
"""How long a process may take to end after its end of the link has closed."""


class IngestWorker:
    """Sends requests to the one process that appends to raw streams, and its answers to whoever waits.

    The process ends when this one does. When it dies, what it has not answered
    fails as not acknowledged, and another takes its place.
    """

    def __init__(self, open_log: OpenLog, settings: IngestSettings | None = None) -> None:
        self._settings = settings or IngestSettings()
        self._beginning = pickle.dumps((open_log, self._settings))
        self._definitions = pickle.dumps({})
        self._link: _Link | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._is_closing = False
        self._numbers = 0
        self._pending: dict[int, tuple[asyncio.Future[Receipt], int]] = {}
        self._in_flight = 0
        self._backoff = Backoff(self._settings.restart_s, self._settings.restart_most_s, NO_JITTER)

    @property
    def pid(self) -> int | None:
        """The process; None while there is none."""
        return None if self._link is None else self._link.process.pid

    @property
    def is_ready(self) -> bool:
        """Whether the process has opened the log."""
        return self._link is not None and self._link.is_ready

    async def start(self) -> None:
        """Start the process; requests may be sent before it is ready."""
        self._link = await self._launched()
        self._supervisor = asyncio.create_task(self._supervise(self._link), name="ingest-supervisor")

    async def close(self) -> None:
        """Finish what was sent, then end the process; new requests are refused meanwhile."""
        self._is_closing = True
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        if self._link is None:
            supervisor.cancel()
        else:
            self._link.finish()
        done, _ = await asyncio.wait([supervisor], timeout=self._settings.drain_s)
        if not done:
            _log.warning("ingest did not finish within %g s: its process is ended", self._settings.drain_s)
            if self._link is not None:
                self._link.process.kill()
        with suppress(asyncio.CancelledError):
            await supervisor

    def define(self, streams: Mapping[str, Stream]) -> None:
        """Take events for just these streams: what is sent from now on is judged by them."""
        self._definitions = pickle.dumps(dict(streams))
        if self._link is not None:
            self._link.send(CONTROL, self._definitions)

    async def ingest(
        self, stream: str, content_type: str | None, headers: Mapping[str, str], body: bytes, mode: Mode = "all"
    ) -> Receipt:
        """Append the events of a body; what the receipt counts as accepted is in the log.

        Raises `Overloaded` where too much is under way, `NotAcknowledged` where the
        process dies before it has answered, and what is wrong with the request.
        """
        link = self._need_room(len(body))
        envelope = {name: value for name, value in headers.items() if name.lower().startswith(_PREFIX)}
        self._numbers += 1
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._pending[self._numbers] = answer, len(body)
        self._in_flight += len(body)
        link.send(self._numbers, pickle.dumps(Request(stream, content_type, envelope, body, mode)))
        return await answer

    def _need_room(self, size_bytes: int) -> _Link:
        if self._is_closing:
            raise Overloaded("ingest is closing; nothing of this was taken")
        if self._link is None:
            raise Overloaded("the ingest process is starting; nothing of this was taken, send it again soon")
        most = self._settings.in_flight_bytes
        if self._pending and self._in_flight + size_bytes > most:
            raise Overloaded(
                f"{self._in_flight:,} bytes wait to be appended, and {size_bytes:,} more would be above the limit of "
                f"{most:,}; nothing of this was taken, send it again later"
            )
        return self._link

    # Answers -------------------------------------------------------------------

    def answered(self, number: int, payload: bytes) -> None:
        """Hand an answer to whoever waits for it."""
        outcome: Outcome = pickle.loads(payload)
        answer = self._settle(number)
        if answer.done():
            return  # nobody waits any more
        if isinstance(outcome, Receipt):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)

    def _settle(self, number: int) -> asyncio.Future[Receipt]:
        answer, size_bytes = self._pending.pop(number)
        self._in_flight -= size_bytes
        return answer

    def _abandon(self, why: str) -> None:
        for number in list(self._pending):
            answer = self._settle(number)
            if not answer.done():
                answer.set_exception(
                    NotAcknowledged(f"{why}; these events may be in the log or not: send them again, with ids")
                )

    # The process ---------------------------------------------------------------

    async def _supervise(self, link: _Link) -> None:
        """Start another process whenever one ends, until closing."""
        failures = 0
        while True:
            await link.lost
            self._link = None
            exit_code = await asyncio.to_thread(_reaped, link.process)
            self._abandon(_obituary(link, exit_code))
            if self._is_closing:
                return
            _log.error("%s; another takes its place", _obituary(link, exit_code))
            failures = 0 if link.is_ready else failures + 1
            link = self._link = await self._relaunched(failures)

    async def _relaunched(self, failures: int) -> _Link:
        while True:
            await asyncio.sleep(self._backoff.delay_s(failures))
            try:
                return await self._launched()
            except OSError as exc:
                _log.error("the ingest process can't be started: %s", exc)
                failures += 1

    async def _launched(self) -> _Link:
        ours, theirs = socket.socketpair()
        with theirs:  # so that the process's death ends the link
            try:
                process = await asyncio.to_thread(_started, theirs.fileno())
            except BaseException:
                ours.close()
                raise
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: _Link(self, process), sock=ours)
        link.send(CONTROL, self._beginning)
        link.send(CONTROL, self._definitions)
        return link

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Link(asyncio.Protocol):
    """The socket to one process."""

    def __init__(self, worker: IngestWorker, process: Process) -> None:
        self.process, self.is_ready = process, False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._worker, self._frames = worker, Frames()
        self._transport: asyncio.Transport | None = None

    def send(self, number: int, payload: bytes) -> None:
        """Put a message on its way; how much may be is the worker's to bound."""
        assert self._transport is not None
        self._transport.write(frame(number, payload))

    def finish(self) -> None:
        """Say that nothing more comes."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write_eof()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what is written to."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Hand on answers."""
        for number, payload in self._frames.feed(data):
            if number == CONTROL:
                self.is_ready = True
            else:
                self._worker.answered(number, payload)

    def connection_lost(self, _: Exception | None) -> None:
        """The process has ended, or closed its end."""
        if not self.lost.done():
            self.lost.set_result(None)


def _obituary(link: _Link, exit_code: int) -> str:
    return f"the ingest process ended with exit code {exit_code}{'' if link.is_ready else ' before it was ready'}"


# Not by multiprocessing, which would run the caller's main script again: a server's takes longer to import than all
# that is needed here, and one without a guard would start itself.
_MAIN = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from tidegate.gateway.ingest.process import main
main(int(sys.argv[1]))
"""


def _started(descriptor: int) -> Process:
    path = json.dumps([os.path.abspath(each) for each in sys.path])
    command = [sys.executable, "-c", _MAIN, str(descriptor), path]
    return subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.DEVNULL)


def _reaped(process: Process) -> int:
    """Make sure that a process is no more: its partitions are to have another writer."""
    try:
        return process.wait(_JOIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
