"""Processes that each hold a part of an index and answer questions about it.

Knows nothing of trees or events: what a part becomes in a worker and how it
answers are two functions, named when the workers are made. A part travels to
its worker once; a question is pickled once for all.
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

Make = Callable[[bytes], Any]
Answer = Callable[[Any, Any], Any]

_PATIENCE_S = 5.0
"""How long a worker may take to end after its pipe is closed."""


@dataclass(slots=True)
class _Worker:
    """A process, the pipe to it, and the part it holds."""

    process: BaseProcess
    pipe: Connection
    part: bytes | None = None
    answered: bool = False

    def send(self, part: bytes, question: bytes) -> None:
        """Ask; the part goes along if the worker holds another."""
        self.pipe.send((None if self.part is part else part, question))
        self.part = part

    def receive(self) -> Any:
        """Wait for the answer."""
        answer = self.pipe.recv()
        self.answered = True
        return answer

    def stop(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join(_PATIENCE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@dataclass(frozen=True, slots=True)
class _Failed:
    """An answer that is an error."""

    error: Exception


class Workers:
    """As many processes as there are parts, started when they are first asked.

    One question is under way at a time. A worker that dies fails the question
    that it dies of; the next question starts another in its place.
    """

    def __init__(self, make: Make, answer: Answer) -> None:
        self._make, self._answer = make, answer
        self._lock = Lock()
        self._running: list[_Worker | None] = []
        weakref.finalize(self, _stop, self._running)

    def ask(self, parts: Sequence[bytes], question: Any) -> list[Any]:
        """Ask worker n about part n, all at once, and give the answers in order."""
        pickled = _pickled(question)
        with self._lock:
            try:
                answers = self._exchange(parts, pickled)
            except BaseException:  # Ctrl-C: an answer that nobody waits for must not be taken for the next
                _stop(self._running)
                raise
        for answer in answers:
            if isinstance(answer, _Failed):
                raise answer.error
        return answers

    def close(self) -> None:
        """End all processes; the next question starts new ones."""
        with self._lock:
            _stop(self._running)

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the workers that have been started."""
        return [worker.process.pid for worker in self._running if worker is not None]

    def _exchange(self, parts: Sequence[bytes], question: bytes) -> list[Any]:
        self._start(len(parts))
        for n, part in enumerate(parts):
            with suppress(OSError):  # it has died: so says the end of its answers
                self._worker(n).send(part, question)
        return [self._received(n) for n in range(len(parts))]

    def _start(self, wanted: int) -> None:
        self._running.extend([None] * (wanted - len(self._running)))
        for n in range(wanted):
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
            return _Failed(MatcherError(_obituary(worker)))
        if isinstance(answer, _Failed):
            worker.part = None  # whatever it holds now
        return answer


def _obituary(worker: _Worker) -> str:
    died = f"a worker (process {worker.process.pid}) has died with exit code {worker.process.exitcode}"
    if worker.answered:
        return f"{died}; match again: another takes its place"
    return f"{died} before its first answer; a script that uses workers must guard itself by __name__ == '__main__'"


def _pickled(question: Any) -> bytes:
    try:
        return pickle.dumps(question)
    except Exception as exc:  # pickle raises what the value's own methods raise
        raise MatcherError(f"these events can't be sent to a worker: {exc}") from exc


def _started(make: Make, answer: Answer) -> _Worker:
    # spawn: a fork would copy Arrow's and numba's locks, but not the threads that hold them.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, make, answer), name="tidegate-worker", daemon=True)
    process.start()
    theirs.close()  # so that its death ends the pipe
    return _Worker(process, ours)


def _stop(running: list[_Worker | None]) -> None:
    stopping = [worker for worker in running if worker is not None]
    running.clear()
    for worker in stopping:
        worker.stop()


def _serve(pipe: Connection, make: Make, answer: Answer) -> None:
    """Answer questions until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end ends this
    held: Any = None
    with suppress(EOFError, OSError):
        while True:
            part, question = pipe.recv()
            try:
                if part is not None:
                    held = make(part)
                found = answer(held, pickle.loads(question))
            except Exception as exc:
                found = _Failed(_sendable(exc))
            pipe.send(found)


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return MatcherError(f"a worker failed: {error!r}")
    return error
