"""Worker processes that each hold a part of an index and answer questions about it.

Knows nothing of trees or events: the caller passes one function that loads a part in a worker, and one that answers a
question. A part is sent to its worker once; a question is pickled once for all workers.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Lock
from typing import Any

from tidegate.errors import MatcherError

LoadPart = Callable[[bytes], Any]
AnswerFunction = Callable[[Any, Any], Any]

_STOP_TIMEOUT_S = 5.0
"""Time that a worker has to end after its pipe is closed, before it is killed."""


@dataclass(slots=True)
class _Worker:
    """A process, the pipe to it, and the part that it holds."""

    process: BaseProcess
    pipe: Connection
    part: bytes | None = None
    answered: bool = False

    def send(self, part: bytes, question: bytes) -> None:
        """Send a question, and the part if the worker holds another."""
        self.pipe.send((None if self.part is part else part, question))
        self.part = part

    def receive(self) -> Any:
        """Block until the answer arrives. Raises `EOFError` or `OSError` if the process has died."""
        answer = self.pipe.recv()
        self.answered = True
        return answer

    def stop(self) -> None:
        """Close the pipe and wait for the process; kill it after `_STOP_TIMEOUT_S`."""
        self.pipe.close()
        self.process.join(_STOP_TIMEOUT_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@dataclass(frozen=True, slots=True)
class _Failed:
    """An answer that is an error."""

    error: Exception


class MatchWorkers:
    """One process per part, started at the first question. Thread-safe: one question at a time.

    If a worker dies, its question fails, and the next question starts a new process.
    """

    def __init__(self, make: LoadPart, answer: AnswerFunction) -> None:
        self._make, self._answer = make, answer
        self._lock = Lock()
        self._running: list[_Worker | None] = []
        weakref.finalize(self, _stop, self._running)

    def ask(self, parts: Sequence[bytes], question: Any) -> list[Any]:
        """Send a question to all workers, worker n about part n, and return the answers in order.

        Raises the error of a worker, or `MatcherError` if a worker dies or the question can't be pickled.
        """
        pickled = _pickled(question)
        with self._lock:
            try:
                answers = self._exchange(parts, pickled)
            except BaseException:  # e.g. Ctrl-C: a pending answer must not be read as the next one
                _stop(self._running)
                raise
        for answer in answers:
            if isinstance(answer, _Failed):
                raise answer.error
        return answers

    def close(self) -> None:
        """Stop all processes; the next question starts new ones."""
        with self._lock:
            _stop(self._running)

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the running workers."""
        return [worker.process.pid for worker in self._running if worker is not None]

    def _exchange(self, parts: Sequence[bytes], question: bytes) -> list[Any]:
        self._start(len(parts))
        for n, part in enumerate(parts):
            with suppress(OSError):  # the worker has died; reading its answer will tell
                self._worker(n).send(part, question)
        return [self._received(n) for n in range(len(parts))]

    def _start(self, count: int) -> None:
        self._running.extend([None] * (count - len(self._running)))
        for n in range(count):
            if self._running[n] is None:
                self._running[n] = _started(self._make, self._answer)

    def _worker(self, n: int) -> _Worker:
        worker = self._running[n]
        assert worker is not None
        return worker

    def _received(self, n: int) -> Any:
        worker = self._worker(n)
        try:
            answer = worker.receive()
        except (EOFError, OSError):
            self._running[n] = None
            worker.stop()
            return _Failed(MatcherError(_death_message(worker)))
        if isinstance(answer, _Failed):
            worker.part = None  # it may hold neither part
        return answer


def _death_message(worker: _Worker) -> str:
    died = f"a worker (process {worker.process.pid}) has died with exit code {worker.process.exitcode}"
    if worker.answered:
        return f"{died}; match again: another takes its place"
    return f"{died} before its first answer; a script that uses workers must guard itself by __name__ == '__main__'"


def _pickled(question: Any) -> bytes:
    try:
        return pickle.dumps(question)
    except Exception as exc:  # pickle passes on any exception of a method of the value
        raise MatcherError(f"these events can't be sent to a worker: {exc}") from exc


def _started(make: LoadPart, answer: AnswerFunction) -> _Worker:
    # spawn, because a fork would copy the locks of Arrow and numba without the threads that hold them.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, make, answer), name="tidegate-worker", daemon=True)
    process.start()
    theirs.close()  # so that the pipe closes when the worker dies
    return _Worker(process, ours)


def _stop(running: list[_Worker | None]) -> None:
    stopping = [worker for worker in running if worker is not None]
    running.clear()
    for worker in stopping:
        worker.stop()


def _serve(pipe: Connection, make: LoadPart, answer: AnswerFunction) -> None:
    """Answer questions until the other side closes the pipe. Runs in the worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and then closes the pipe
    loaded: Any = None
    with suppress(EOFError, OSError):
        while True:
            part, question = pipe.recv()
            try:
                if part is not None:
                    loaded = make(part)
                reply = answer(loaded, pickle.loads(question))
            except Exception as exc:
                reply = _Failed(_sendable(exc))
            pipe.send(reply)


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return MatcherError(f"a worker failed: {error!r}")
    return error
