"""The working folder of a build, beside the space that it builds. Finished parts survive a crash.

space.building/
  plan.json     the corpus and the parameters of the build; a build with another plan starts again
  lock          held by the process that builds
  part-00000/   runs (`runs.py`); a part gets its name when it is complete
  part-00001/   ...
  counted       exists after the corpus was read to its end
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
from tidegate.semantics.runs import POSTINGS_IN_MEMORY, RunWriter
from tidegate.semantics.storage import Parameters
from tidegate.semantics.words import ANALYSIS

_FORMAT = 1
_PLAN, _LOCK, _COUNTED = "plan.json", "lock", "counted"


def plan_of(corpus: str, parameters: Parameters, builder: str) -> str:
    """Return the plan of a build as JSON. Builds with equal plans have equal parts."""
    plan = {"format": _FORMAT, "analysis": ANALYSIS, "corpus": corpus, "least_words": parameters.least_words}
    return json.dumps({**plan, "builder": builder})


class BuildFolder:
    """The parts of one build, as a context manager.

    If a build with a plan fails, finished parts are kept for the next build with the same plan. Raises `SpaceError` on
    entry if the space exists or another process builds it.
    """

    def __init__(self, space: Path, parameters: Parameters, plan: str | None) -> None:
        self.folder = space.parent / f"{space.name}.building"
        self._space = space
        self._parameters = parameters
        self._plan = plan

    def __enter__(self) -> BuildFolder:
        if self._space.exists():
            raise SpaceError(f"{self._space} already exists: expected the name of a new folder")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise SpaceError(f"{self._space} can't be created: {exc.strerror}") from exc
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise SpaceError(f"{self._space} is being built by another process: wait for it, or stop it") from None
        self._tidy()
        return self

    def _tidy(self) -> None:
        """Delete everything except finished parts of the same plan."""
        path = self.folder / _PLAN
        same = self._plan is not None and path.is_file() and path.read_text("utf-8") == self._plan
        for entry in self.folder.iterdir():
            if entry.name != _LOCK and not (same and (entry.name in (_PLAN, _COUNTED) or _is_part(entry))):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if self._plan is not None and not same:
            path.write_text(self._plan, "utf-8")

    def finished(self) -> list[int]:
        """Return the numbers of the finished parts, ascending."""
        return sorted(int(entry.name.removeprefix("part-")) for entry in self.folder.iterdir() if _is_part(entry))

    def runs(self) -> list[Path]:
        """Return all runs of all parts, in the order of parts."""
        folders = (self.folder / _name(number) for number in self.finished())
        return [run for folder in folders for run in sorted(folder.glob("run-*"), key=lambda run: int(run.name[4:]))]

    @property
    def is_counted(self) -> bool:
        """True if the corpus was read to its end: a failure after that would happen again."""
        return (self.folder / _COUNTED).exists()

    def all_counted(self) -> None:
        """Record that the corpus was read to its end."""
        (self.folder / _COUNTED).touch()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        useless = error is None or self._plan is None or (self.is_counted and isinstance(error, SpaceError))
        resumable = not useless and bool(self.folder.is_dir() and self.finished())
        if not resumable:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        if isinstance(error, OSError):
            hint = "; the finished parts are kept, and the same build continues from them" if resumable else ""
            raise SpaceError(f"{self._space} can't be written: {error.strerror or error}{hint}") from error


@contextmanager
def counting(
    folder: Path, number: int, parameters: Parameters, postings_in_memory: int = POSTINGS_IN_MEMORY
) -> Iterator[RunWriter]:
    """Yield a writer for one part, which becomes visible when it is complete.

    Deletes what an earlier, killed process left of this part.
    """
    unfinished = folder / f"unfinished-{number:05}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    writer = RunWriter(unfinished, parameters, postings_in_memory)
    yield writer
    writer.spill()
    unfinished.rename(folder / _name(number))


def is_finished(folder: Path, number: int) -> bool:
    """Return True if a part is complete."""
    return (folder / _name(number)).is_dir()


def _name(number: int) -> str:
    return f"part-{number:05}"


def _is_part(path: Path) -> bool:
    return path.name.startswith("part-") and path.is_dir()
