"""The ingest process: receives requests over a socket, appends those that wait together, and answers them."""

from __future__ import annotations

import pickle
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread

from tidegate.errors import NotAcknowledged, TidegateError
from tidegate.ingress.http.core import Ingest, IngestOutcome
from tidegate.ingress.http.frames import CONTROL, FrameDecoder, frame
from tidegate.ingress.http.settings import IngestSettings
from tidegate.logs import EventLog
from tidegate.scheduling import use_batch_scheduling

OpenLog = Callable[[], EventLog]
"""Opens the log in the ingest process. It is sent there by pickle."""

_Message = tuple[int, bytes]
_MessageQueue = SimpleQueue[_Message | None]

_READ_BYTES = 1024 * 1024


def main(descriptor: int) -> None:
    """Run the process until the gateway closes its end of the socket or dies. Appends everything received by then."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the gateway drains on them, then closes the socket
        signal.signal(number, signal.SIG_IGN)
    use_batch_scheduling()
    with socket.socket(fileno=descriptor) as link:
        queue: _MessageQueue = SimpleQueue()
        # Receive in a thread: while one group is written to disk, the next one gathers in the queue. The buffer of the
        # socket has room for a few requests only.
        Thread(target=_receive, args=(link, queue), name="ingest-receive", daemon=True).start()
        first = queue.get()
        if first is not None:
            _serve(link, queue, *pickle.loads(first[1]))


def _serve(link: socket.socket, queue: _MessageQueue, open_log: OpenLog, settings: IngestSettings) -> None:
    log = open_log()
    ingest = Ingest(log, settings)
    try:
        _send(link, [frame(CONTROL, b"")])
        for group in _groups(queue, settings.group_bytes):
            _send(link, _answers(ingest, group))
    finally:
        log.close()
        ingest.close()


def _receive(link: socket.socket, queue: _MessageQueue) -> None:
    decoder = FrameDecoder()
    with suppress(OSError):
        while data := link.recv(_READ_BYTES):
            for message in decoder.feed(data):
                queue.put(message)
    queue.put(None)


def _groups(queue: _MessageQueue, max_bytes: int) -> Iterator[list[_Message]]:
    """Yield all messages that wait, up to a size per group. Ends when the socket is closed."""
    while True:
        message = queue.get()
        group: list[_Message] = []
        size = 0
        with suppress(Empty):
            while message is not None:
                group.append(message)
                size += len(message[1])
                if size >= max_bytes:
                    break
                message = queue.get_nowait()
        if group:
            yield group
        if message is None:
            return


def _answers(ingest: Ingest, group: list[_Message]) -> list[bytes]:
    """Process a group of messages, and return the answers. New definitions apply to the requests after them."""
    answers: list[bytes] = []
    requests: list[_Message] = []
    for number, payload in group:
        if number == CONTROL:
            answers += _process(ingest, requests)
            requests = []
            ingest.define(pickle.loads(payload))
        else:
            requests.append((number, payload))
    answers += _process(ingest, requests)
    return answers


def _process(ingest: Ingest, requests: list[_Message]) -> Iterator[bytes]:
    outcomes = ingest.process([pickle.loads(payload) for _, payload in requests])
    for (number, _), outcome in zip(requests, outcomes, strict=True):
        yield frame(number, _pickle(outcome))


def _pickle(outcome: IngestOutcome) -> bytes:
    data = pickle.dumps(outcome)
    if isinstance(outcome, TidegateError):
        try:
            pickle.loads(data)
        except Exception:  # the gateway can't unpickle this error: send its text
            return pickle.dumps(NotAcknowledged(f"{type(outcome).__name__}: {outcome}"))
    return data


def _send(link: socket.socket, frames: list[bytes]) -> None:
    with suppress(OSError):  # the gateway has gone; accepted events are in the log
        link.sendall(b"".join(frames))
