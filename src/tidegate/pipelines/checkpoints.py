"""The folder of each service's checkpoints: where each version began, how far it came, and whose state it uses.

    <service>/reached.json      how far a service with state has read, written when it is stopped
    <service>/v3/begin.json     where version 3 began in its inputs, and where its output ended then
    <service>/v3/layout.json    what its state holds, the engine that wrote it, and the version whose `main` it uses
    <service>/v3/main           Spark's checkpoint, with the state

A new version that can use the state of the version before uses its `main` too.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.services.operators.state_layout import StateChange, StateLayout, compare_layouts

_SCHEMA_PATH = re.compile(r'"file:[^"]*/state/([0-9]+/_stateSchema/[^"]*)"')

Positions = dict[str, dict[str, int]]
"""Offsets by stream and partition: where to begin in inputs, and where the output ended."""


@dataclass(frozen=True)
class StateForm:
    """The form of a state: the engine that wrote it, and the layout of each operator. No other engine can read it."""

    engine: str
    layouts: tuple[StateLayout, ...]

    def change_from(self, old: StateForm | None) -> StateChange:
        """Return what happens to a state of another form; None: its form is not known."""
        if old is None:
            return StateChange("starts anew", ("an earlier release of Tidegate wrote the state",))
        if old.engine != self.engine:
            return StateChange("starts anew", (f"{old.engine} wrote the state, and {self.engine} can't read it",))
        return compare_layouts(old.layouts, self.layouts)


class Checkpoints:
    """The checkpoints of all services below one folder. Used by one thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def place(self) -> str:
        """The host and folder of the checkpoints."""
        return f"{socket.gethostname()}:{self._root.absolute()}"

    def version_folder(self, service: str, version: int) -> Path:
        """Return the folder of one version of a service."""
        return self._root / service / f"v{version}"

    def main(self, service: str, version: int) -> Path:
        """Return where Spark keeps the checkpoint of a version's query; an earlier version may have begun it."""
        return self.version_folder(service, self._owner(service, version)) / "main"

    def _owner(self, service: str, version: int) -> int:
        """Return the version whose checkpoint a version uses."""
        document = self._layout(service, version)
        return version if document is None else int(document["owner"])

    def _layout(self, service: str, version: int) -> Any:
        return read_json(self.version_folder(service, version) / "layout.json")

    # Positions ------------------------------------------------------------------------

    def positions(self, service: str, version: int) -> Positions | None:
        """Return where a version began; None if it has not begun yet."""
        positions: Positions | None = read_json(self.version_folder(service, version) / "begin.json")
        return positions

    def save_positions(self, service: str, version: int, positions: Positions) -> None:
        """Store where a version begins. After that it counts as begun."""
        write_json(self.version_folder(service, version) / "begin.json", positions)

    def reached(self, service: str) -> Positions:
        """Return how far a service with state had read when it was last stopped; empty if it never was."""
        return read_json(self._root / service / "reached.json") or {}

    def save_reached(self, service: str, positions: Positions) -> None:
        """Store how far a service with state has read."""
        write_json(self._root / service / "reached.json", positions)

    def drop_reached(self, service: str) -> None:
        """Delete the stored position of a service."""
        (self._root / service / "reached.json").unlink(missing_ok=True)

    def versions(self, service: str) -> list[int]:
        """Return the versions of a service that have begun, oldest first."""
        return sorted(int(path.parent.name[1:]) for path in (self._root / service).glob("v*/begin.json"))

    def newest_version(self, service: str) -> int | None:
        """Return the newest version of a service that has begun; None: no version has."""
        return max(self.versions(service), default=None)

    # States ---------------------------------------------------------------------------

    def form(self, service: str, version: int) -> StateForm | None:
        """Return the form of a version's state; None if an earlier release wrote it or there is none."""
        document = self._layout(service, version)
        if document is None:
            return None
        return StateForm(document["engine"], tuple(map(StateLayout.from_dict, document["layouts"])))

    def save_form(self, service: str, version: int, form: StateForm, *, adopts: int | None = None) -> None:
        """Store the form of the state that a version will write.

        `adopts` is the version whose checkpoint it continues; None: its own, or the one that it adopted before.
        """
        owner = self._owner(service, version if adopts is None else adopts)
        document = {"engine": form.engine, "layouts": [layout.to_dict() for layout in form.layouts], "owner": owner}
        write_json(self.version_folder(service, version) / "layout.json", document)

    def has_state(self, service: str, version: int) -> bool:
        """Return True if a version has a checkpoint."""
        return self.main(service, version).exists()

    def adapt_paths(self, service: str, version: int) -> None:
        """Correct the absolute paths in a checkpoint that was copied or moved: Spark stores those of state schemas."""
        main = self.main(service, version).absolute()
        for file in main.glob("state/*/_metadata/v2/[0-9]*"):
            old = file.read_text()
            new = _SCHEMA_PATH.sub(lambda found: f'"file:{main}/state/{found[1]}"', old)
            if new != old:
                # Replaced, as a snapshot may share the file. Hadoop would compare it with the checksum of the old one.
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
                replacement = file.with_name(f"{file.name}.new")
                replacement.write_text(new)
                replacement.replace(file)

    def drop_state(self, service: str, version: int) -> None:
        """Delete the checkpoint of a version."""
        shutil.rmtree(self.main(service, version), ignore_errors=True)

    def last_commit_us(self, service: str, version: int) -> int:
        """Return when a checkpoint was last committed, in microseconds; if never, when it was begun, or now."""
        checkpoint = self.main(service, version)
        commits = [commit.stat().st_mtime_ns for commit in (checkpoint / "commits").glob("[0-9]*")]
        if commits:
            return max(commits) // 1_000
        begun = checkpoint / "metadata"
        return (begun.stat().st_mtime_ns if begun.exists() else time.time_ns()) // 1_000

    def forget(self, service: str) -> None:
        """Delete all files of a service."""
        shutil.rmtree(self._root / service, ignore_errors=True)


def read_json(path: Path) -> Any:
    """Return the value in a file; None if there is no file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a file by one with a value, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    new.replace(path)
