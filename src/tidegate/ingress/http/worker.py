"""The gateway's side of the ingest process, which is separate so that ingest never stalls delivery."""

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
from tidegate.ingress.http.core import IngestOutcome, IngestRequest
from tidegate.ingress.http.frames import CONTROL, FrameDecoder, frame
from tidegate.ingress.http.process import OpenLog
from tidegate.ingress.http.receipt import IngestReceipt, Mode
from tidegate.ingress.http.settings import IngestSettings
from tidegate.services.definitions import Stream
from tidegate.timing import NO_JITTER, Backoff

_log = logging.getLogger(__name__)

_ENVELOPE_PREFIX = "ce-"

Process = subprocess.Popen[bytes]

_EXIT_TIMEOUT_S = 5.0
"""How long a process may take to exit after its socket has closed."""


class IngestWorker:
    """Starts the one process that appends to raw streams, sends it requests, and returns its answers.

    Runs on the event loop of the gateway. The process ends when the gateway ends. If the process dies, pending requests
    fail with NotAcknowledged, and a new process is started.
    """

    def __init__(self, open_log: OpenLog, settings: IngestSettings | None = None) -> None:
        self._settings = settings or IngestSettings()
        self._initial_message = pickle.dumps((open_log, self._settings))
        self._definitions = pickle.dumps({})
        self._link: _Link | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._is_closing = False
        self._last_number = 0
        self._pending: dict[int, tuple[asyncio.Future[IngestReceipt], int]] = {}
        self._in_flight_bytes = 0
        self._backoff = Backoff(self._settings.restart_s, self._settings.restart_most_s, NO_JITTER)

    @property
    def pid(self) -> int | None:
        """Process id; None while there is no process."""
        return None if self._link is None else self._link.process.pid

    @property
    def is_ready(self) -> bool:
        """True if the process has opened the log."""
        return self._link is not None and self._link.is_ready

    async def start(self) -> None:
        """Start the process. Requests may be sent before it is ready."""
        self._link = await self._launch()
        self._supervisor = asyncio.create_task(self._supervise(self._link), name="ingest-supervisor")

    async def close(self) -> None:
        """Wait for pending requests, then stop the process; kills it after `drain_s`. Refuses new requests at once."""
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
            _log.warning("ingest did not finish within %g s: its process is killed", self._settings.drain_s)
            if self._link is not None:
                self._link.process.kill()
        with suppress(asyncio.CancelledError):
            await supervisor

    def define(self, streams: Mapping[str, Stream]) -> None:
        """Replace the definitions; requests that are sent from now on are checked against them."""
        self._definitions = pickle.dumps(dict(streams))
        if self._link is not None:
            self._link.send(CONTROL, self._definitions)

    async def ingest(
        self, stream: str, content_type: str | None, headers: Mapping[str, str], body: bytes, mode: Mode = "all"
    ) -> IngestReceipt:
        """Append the events of a body. Events that the receipt counts as accepted are in the log.

        Raises `Overloaded` if too many bytes are pending, `NotAcknowledged` if the process dies before it answers, and
        other errors for a request that is not valid.
        """
        link = self._need_capacity(len(body))
        envelope = {name: value for name, value in headers.items() if name.lower().startswith(_ENVELOPE_PREFIX)}
        self._last_number += 1
        answer: asyncio.Future[IngestReceipt] = asyncio.get_running_loop().create_future()
        self._pending[self._last_number] = answer, len(body)
        self._in_flight_bytes += len(body)
        link.send(self._last_number, pickle.dumps(IngestRequest(stream, content_type, envelope, body, mode)))
        return await answer

    def _need_capacity(self, size_bytes: int) -> _Link:
        if self._is_closing:
            raise Overloaded("ingest is closing; no event was appended")
        if self._link is None:
            raise Overloaded("the ingest process is starting; no event was appended, send the request again soon")
        max_bytes = self._settings.in_flight_bytes
        if self._pending and self._in_flight_bytes + size_bytes > max_bytes:
            raise Overloaded(
                f"{self._in_flight_bytes:,} bytes wait to be appended, and {size_bytes:,} more would exceed the "
                f"limit of {max_bytes:,}; no event was appended, send the request again later"
            )
        return self._link

    # Answers -------------------------------------------------------------------

    def on_answer(self, number: int, payload: bytes) -> None:
        """Complete the request with this number. Called by the socket's protocol."""
        outcome: IngestOutcome = pickle.loads(payload)
        answer = self._pop_pending(number)
        if answer.done():
            return  # the caller was cancelled
        if isinstance(outcome, IngestReceipt):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)

    def _pop_pending(self, number: int) -> asyncio.Future[IngestReceipt]:
        answer, size_bytes = self._pending.pop(number)
        self._in_flight_bytes -= size_bytes
        return answer

    def _fail_pending(self, reason: str) -> None:
        for number in list(self._pending):
            answer = self._pop_pending(number)
            if not answer.done():
                answer.set_exception(
                    NotAcknowledged(f"{reason}; these events may be in the log or not: send them again, with ids")
                )

    # The process ---------------------------------------------------------------

    async def _supervise(self, link: _Link) -> None:
        """Start a new process whenever one ends, until `close`."""
        failures = 0
        while True:
            await link.lost
            self._link = None
            exit_code = await asyncio.to_thread(_wait_for_exit, link.process)
            self._fail_pending(_exit_message(link, exit_code))
            if self._is_closing:
                return
            _log.error("%s; starting a new one", _exit_message(link, exit_code))
            failures = 0 if link.is_ready else failures + 1
            link = self._link = await self._relaunch(failures)

    async def _relaunch(self, failures: int) -> _Link:
        while True:
            await asyncio.sleep(self._backoff.delay_s(failures))
            try:
                return await self._launch()
            except OSError as exc:
                _log.error("the ingest process can't be started: %s", exc)
                failures += 1

    async def _launch(self) -> _Link:
        ours, theirs = socket.socketpair()
        with theirs:  # our copy must be closed, so that the socket closes when the process dies
            try:
                process = await asyncio.to_thread(_start_process, theirs.fileno())
            except BaseException:
                ours.close()
                raise
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: _Link(self, process), sock=ours)
        link.send(CONTROL, self._initial_message)
        link.send(CONTROL, self._definitions)
        return link

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Link(asyncio.Protocol):
    """The socket to one process. Runs on the event loop."""

    def __init__(self, worker: IngestWorker, process: Process) -> None:
        self.process, self.is_ready = process, False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._worker, self._decoder = worker, FrameDecoder()
        self._transport: asyncio.Transport | None = None

    def send(self, number: int, payload: bytes) -> None:
        """Send a message. Does not block; the worker limits how many bytes are pending."""
        assert self._transport is not None
        self._transport.write(frame(number, payload))

    def finish(self) -> None:
        """Close the sending direction: the process answers pending requests, then exits."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write_eof()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Pass answers to the worker."""
        for number, payload in self._decoder.feed(data):
            if number == CONTROL:
                self.is_ready = True
            else:
                self._worker.on_answer(number, payload)

    def connection_lost(self, _: Exception | None) -> None:
        """Tell the supervisor that the process has ended or closed the socket."""
        if not self.lost.done():
            self.lost.set_result(None)


def _exit_message(link: _Link, exit_code: int) -> str:
    return f"the ingest process ended with exit code {exit_code}{'' if link.is_ready else ' before it was ready'}"


# Not multiprocessing: it would import the main script of the caller again. That of a server takes longer to import than
# everything that is needed here, and one without a `__main__` guard would start itself.
_MAIN = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from tidegate.ingress.http.process import main
main(int(sys.argv[1]))
"""


def _start_process(descriptor: int) -> Process:
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])
    command = [sys.executable, "-c", _MAIN, str(descriptor), path]
    return subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.DEVNULL)


def _wait_for_exit(process: Process) -> int:
    """Return the exit code of a process; kill it if it does not exit, since its partitions get a new writer."""
    try:
        return process.wait(_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
