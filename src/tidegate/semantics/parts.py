"""The folder that a build works in, beside the space that it makes: what is finished there outlives the build.

space.building/  plan.json     what is built of what: another corpus, or other parameters, begin anew
                 lock          held by whoever builds
                 part-00000/   runs (`runs.py`); a part gets its name when it is whole
                 part-00001/   ...
                 counted       there when the corpus was read to its end
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.errors import SpaceError
from tidegate.semantics.runs import POSTINGS_IN_MEMORY, Counting
from tidegate.semantics.storage import Parameters
from tidegate.semantics.words import ANALYSIS

_FORMAT = 1
_PLAN, _LOCK, _COUNTED = "plan.json", "lock", "counted"


def plan_of(corpus: str, parameters: Parameters, builder: str) -> str:
    """What decides what is in the parts: the corpus as it is, how it is read, which documents count, who cuts it."""
    found = {"format": _FORMAT, "analysis": ANALYSIS, "corpus": corpus, "least_words": parameters.least_words}
    return json.dumps({**found, "builder": builder})


class Parts:
    """The parts of one build. With a plan they are kept when it fails, for the next with the same plan."""

    def __init__(self, space: Path, parameters: Parameters, plan: str | None) -> None:
        self.folder = space.parent / f"{space.name}.building"
        self._space = space
        self._parameters = parameters
        self._plan = plan

    def __enter__(self) -> Parts:
        if self._space.exists():
            raise SpaceError(f"{self._space} exists already: expected the name of a folder to make")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise SpaceError(f"{self._space} can't be made: {exc.strerror}") from exc
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise SpaceError(f"{self._space} is being built by another process: wait for it, or stop it") from None
        self._tidy()
        return self

    def _tidy(self) -> None:
        """Keep the finished parts of the same plan, and nothing else."""
        path = self.folder / _PLAN
        same = self._plan is not None and path.is_file() and path.read_text("utf-8") == self._plan
        for each in self.folder.iterdir():
            if each.name != _LOCK and not (same and (each.name in (_PLAN, _COUNTED) or _is_part(each))):
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        if self._plan is not None and not same:
            path.write_text(self._plan, "utf-8")

    def finished(self) -> list[int]:
        """The numbers of the parts that are whole, rising."""
        return sorted(int(each.name.removeprefix("part-")) for each in self.folder.iterdir() if _is_part(each))

    def runs(self) -> list[Path]:
        """All runs of all parts, in the order of parts."""
        folders = (self.folder / _name(number) for number in self.finished())
        return [run for folder in folders for run in sorted(folder.glob("run-*"), key=lambda run: int(run.name[4:]))]

    @property
    def is_counted(self) -> bool:
        """Whether the corpus was read to its end: what fails from here on would fail again."""
        return (self.folder / _COUNTED).exists()

    def all_counted(self) -> None:
        """Say that it was."""
        (self.folder / _COUNTED).touch()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        useless = error is None or self._plan is None or (self.is_counted and isinstance(error, SpaceError))
        kept = not useless and bool(self.folder.is_dir() and self.finished())
        if not kept:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        if isinstance(error, OSError):
            hint = "; what was counted is kept, and the same build goes on from there" if kept else ""
            raise SpaceError(f"{self._space} can't be written: {error.strerror or error}{hint}") from error


@contextmanager
def counting(
    folder: Path, number: int, parameters: Parameters, postings_in_memory: int = POSTINGS_IN_MEMORY
) -> Iterator[Counting]:
    """One part, which is whole, or not there: what was left of it by somebody who was killed is put away first."""
    unfinished = folder / f"unfinished-{number:05}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    found = Counting(unfinished, parameters, postings_in_memory)
    yield found
    found.spill()
    unfinished.rename(folder / _name(number))


def is_finished(folder: Path, number: int) -> bool:
    """Whether a part is whole."""
    return (folder / _name(number)).is_dir()


def _name(number: int) -> str:
    return f"part-{number:05}"


def _is_part(path: Path) -> bool:
    return path.name.startswith("part-") and path.is_dir()
