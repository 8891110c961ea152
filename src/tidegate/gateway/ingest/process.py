"""The process that appends: it reads requests as they come and answers those that came together at once."""

from __future__ import annotations

import pickle
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread

from tidegate.errors import NotAcknowledged, TidegateError
from tidegate.gateway.ingest.core import Ingest, Outcome
from tidegate.gateway.ingest.frames import CONTROL, Frames, frame
from tidegate.gateway.ingest.settings import IngestSettings
from tidegate.logs import EventLog
from tidegate.scheduling import use_batch_scheduling

OpenLog = Callable[[], EventLog]
"""Opens the log in the process that appends; it travels there by pickle."""

_Message = tuple[int, bytes]
_Waiting = SimpleQueue[_Message | None]

_READ_BYTES = 1024 * 1024


def main(descriptor: int) -> None:
    """Be that process: answer until the other side closes its end, or dies; what has arrived by then is appended."""
    for each in (signal.SIGINT, signal.SIGTERM):  # for the parent, who drains, and whose end ends this
        signal.signal(each, signal.SIG_IGN)
    use_batch_scheduling()
    with socket.socket(fileno=descriptor) as link:
        waiting: _Waiting = SimpleQueue()
        # A thread of its own: while one group is forced to disk, the next gathers here and not in the socket,
        # which holds no more than a few requests.
        Thread(target=_receive, args=(link, waiting), name="ingest-receive", daemon=True).start()
        first = waiting.get()
        if first is not None:
            _serve(link, waiting, *pickle.loads(first[1]))


def _serve(link: socket.socket, waiting: _Waiting, open_log: OpenLog, settings: IngestSettings) -> None:
    log = open_log()
    ingest = Ingest(log, settings)
    try:
        _send(link, [frame(CONTROL, b"")])
        for group in _groups(waiting, settings.group_bytes):
            _send(link, _answers(ingest, group))
    finally:
        log.close()
        ingest.close()


def _receive(link: socket.socket, waiting: _Waiting) -> None:
    frames = Frames()
    with suppress(OSError):
        while data := link.recv(_READ_BYTES):
            for message in frames.feed(data):
                waiting.put(message)
    waiting.put(None)


def _groups(waiting: _Waiting, most_bytes: int) -> Iterator[list[_Message]]:
    """What waits together, up to a size; ends when nothing more can come."""
    while True:
        message = waiting.get()
        group: list[_Message] = []
        size = 0
        with suppress(Empty):
            while message is not None:
                group.append(message)
                size += len(message[1])
                if size >= most_bytes:
                    break
                message = waiting.get_nowait()
        if group:
            yield group
        if message is None:
            return


def _answers(ingest: Ingest, group: list[_Message]) -> list[bytes]:
    """Append a group, and give the frames of the answers; definitions count from where they stand."""
    answers: list[bytes] = []
    requests: list[_Message] = []
    for number, payload in group:
        if number == CONTROL:
            answers += _taken(ingest, requests)
            requests = []
            ingest.define(pickle.loads(payload))
        else:
            requests.append((number, payload))
    answers += _taken(ingest, requests)
    return answers


def _taken(ingest: Ingest, requests: list[_Message]) -> Iterator[bytes]:
    outcomes = ingest.take([pickle.loads(payload) for _, payload in requests])
    for (number, _), outcome in zip(requests, outcomes, strict=True):
        yield frame(number, _pickled(outcome))


def _pickled(outcome: Outcome) -> bytes:
    data = pickle.dumps(outcome)
    if isinstance(outcome, TidegateError):
        try:
            pickle.loads(data)
        except Exception:  # an error that can't be made again there is told in words
            return pickle.dumps(NotAcknowledged(f"{type(outcome).__name__}: {outcome}"))
    return data


def _send(link: socket.socket, frames: list[bytes]) -> None:
    with suppress(OSError):  # nobody is left to tell; the log has what it has
        link.sendall(b"".join(frames))
