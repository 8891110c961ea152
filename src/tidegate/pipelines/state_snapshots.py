"""Named copies of the state of a service, so that an upgrade can be undone.

A snapshot contains Spark's checkpoint at its last commit, and the files that the engine stores next to it. Files of a
checkpoint never change once they are complete, so a snapshot links them where it can. It can be made while the service
runs.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tidegate.errors import EnvironmentProblem, did_you_mean
from tidegate.pipelines.checkpoints import Checkpoints, read_json, write_json

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class StateSnapshot:
    """A saved state."""

    service: str
    name: str
    version: int
    """The version of the service that had the state."""
    saved_at: datetime
    size_bytes: int


class StateSnapshots:
    """The snapshots below one folder, of the checkpoints below another."""

    def __init__(self, root: Path, checkpoints: Path) -> None:
        self._root, self._checkpoints = root, Checkpoints(checkpoints)

    def save(self, service: str, name: str, now: datetime) -> StateSnapshot:
        """Save the state of a service under a name that is not taken.

        Raises `EnvironmentProblem` if the service has no state that was committed, or the name can't be used.
        """
        if not _NAME.fullmatch(name):
            raise EnvironmentProblem(f"the name {name!r} can't be used: expected up to 64 of A-Z a-z 0-9 . _ -")
        target = self._root / service / name
        if target.exists():
            raise EnvironmentProblem(f"service {service!r} has a snapshot {name!r}; choose another name")
        version = self._checkpoints.newest_version(service)
        if version is None:
            raise EnvironmentProblem(f"service {service!r} has not run here: it has no state to save")
        main = Path(self._checkpoints.main(service, version))
        commit = max((int(commit.name) for commit in (main / "commits").glob("[0-9]*")), default=None)
        if self._checkpoints.form(service, version) is None or not (main / "state").is_dir() or commit is None:
            raise EnvironmentProblem(f"service {service!r} has no state, or has not committed it yet")
        new = target.with_name(f".{name}.new")
        shutil.rmtree(new, ignore_errors=True)
        _link_checkpoint(main, new / "main", commit)
        folder = Path(self._checkpoints.version_folder(service, version))
        for file in ("begin.json", "layout.json"):
            shutil.copy2(folder / file, new / file)
        write_json(new / "snapshot.json", {"version": version, "saved_at": now.isoformat()})
        new.rename(target)
        return self._snapshot(target)

    def list(self, service: str | None = None) -> list[StateSnapshot]:
        """Return all snapshots, or those of one service, oldest first."""
        snapshots = [self._snapshot(file.parent) for file in self._root.glob(f"{service or '*'}/*/snapshot.json")]
        return sorted(snapshots, key=lambda each: each.saved_at)

    def restore(self, service: str, name: str) -> StateSnapshot:
        """Replace the state of a service by that of a snapshot. The service must not run.

        At its next start the service resumes at the position of the snapshot, if the registered version can use the
        state. Raises `EnvironmentProblem` if there is no such snapshot.
        """
        source = self._root / service / name
        if not _NAME.fullmatch(name) or not (source / "snapshot.json").exists():
            names = [snapshot.name for snapshot in self.list(service)]
            raise EnvironmentProblem(f"service {service!r} has no snapshot {name!r}{_hint(name, names)}")
        snapshot = self._snapshot(source)
        for version in self._checkpoints.versions(service):
            if version > snapshot.version:
                shutil.rmtree(self._checkpoints.version_folder(service, version))
        folder = Path(self._checkpoints.version_folder(service, snapshot.version))
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("begin.json", "layout.json"):
            shutil.copy2(source / file, folder / file)
        main = Path(self._checkpoints.main(service, snapshot.version))
        shutil.rmtree(main, ignore_errors=True)
        _link(source / "main", main)
        self._checkpoints.drop_reached(service)
        return snapshot

    def _snapshot(self, folder: Path) -> StateSnapshot:
        document = read_json(folder / "snapshot.json")
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        saved_at = datetime.fromisoformat(document["saved_at"]).astimezone(UTC)
        return StateSnapshot(folder.parent.name, folder.name, document["version"], saved_at, size)


def _hint(name: str, names: Collection[str]) -> str:
    return did_you_mean(name, names) or (f": it has {', '.join(names)}" if names else ": it has none")


def _link_checkpoint(main: Path, target: Path, commit: int) -> None:
    """Link the files of a checkpoint at a commit. Its query may keep running.

    Spark deletes only files of much older commits, so a file that disappears meanwhile is not needed.
    """
    for log in ("commits", "offsets"):
        for file in (main / log).glob("[0-9]*"):
            if int(file.name) <= commit:
                _link_file(file, target / log / file.name)
    for entry in main.iterdir():
        if entry.name not in ("commits", "offsets"):
            _link(entry, target / entry.name)


def _link(source: Path, target: Path) -> None:
    """Link a file, or all files below a folder."""
    if source.is_file():
        _link_file(source, target)
        return
    target.mkdir(parents=True, exist_ok=True)
    for file in source.rglob("*"):
        if file.is_file() and not file.name.startswith((".tmp", "_tmp")):
            _link_file(file, target / file.relative_to(source))


def _link_file(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it with its time if the file system can't."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(source, target)
