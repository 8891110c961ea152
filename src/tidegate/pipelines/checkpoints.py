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
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.pipelines.checkpoint_files import CheckpointFiles, LocalFiles
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
    """The checkpoints of all services below one place. Used by one thread."""

    def __init__(self, files: Path | CheckpointFiles) -> None:
        """`files` is where they are; a folder is one that only this machine sees."""
        self._files: CheckpointFiles = LocalFiles(files) if isinstance(files, Path) else files

    @property
    def place(self) -> str:
        """The place of the checkpoints, with a host if only that one sees them."""
        return self._files.place

    def version_folder(self, service: str, version: int) -> str:
        """Return the folder of one version of a service, as Spark takes it."""
        return self._files.location(_folder(service, version))

    def main(self, service: str, version: int) -> str:
        """Return where Spark keeps the checkpoint of a version's query; an earlier version may have begun it."""
        return self._files.location(self._main(service, version))

    def _main(self, service: str, version: int) -> str:
        return f"{_folder(service, self._owner(service, version))}/main"

    def _owner(self, service: str, version: int) -> int:
        """Return the version whose checkpoint a version uses."""
        found = self._layout(service, version)
        return version if found is None else int(found["owner"])

    def _layout(self, service: str, version: int) -> Any:
        return self._read(f"{_folder(service, version)}/layout.json")

    def _read(self, path: str) -> Any:
        content = self._files.read(path)
        return None if content is None else json.loads(content)

    def _write(self, path: str, value: Mapping[str, Any]) -> None:
        self._files.write(path, json.dumps(value).encode())

    # Positions ------------------------------------------------------------------------

    def positions(self, service: str, version: int) -> Positions | None:
        """Return where a version began; None if it has not begun yet."""
        positions: Positions | None = self._read(f"{_folder(service, version)}/begin.json")
        return positions

    def save_positions(self, service: str, version: int, positions: Positions) -> None:
        """Write down where a version begins. From then on it has begun."""
        self._write(f"{_folder(service, version)}/begin.json", positions)

    def reached(self, service: str) -> Positions:
        """Return how far a service with state had read when it was last stopped; empty if it never was."""
        return self._read(f"{service}/reached.json") or {}

    def save_reached(self, service: str, positions: Positions) -> None:
        """Write down how far a service with state has read."""
        self._write(f"{service}/reached.json", positions)

    def drop_reached(self, service: str) -> None:
        """Forget how far a service had read."""
        self._files.delete(f"{service}/reached.json")

    def versions(self, service: str) -> list[int]:
        """Return the versions of a service that have begun, oldest first."""
        found = [int(name[1:]) for name in self._files.entries(service) if re.fullmatch("v[0-9]+", name)]
        return sorted(version for version in found if self.positions(service, version) is not None)

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
        self._write(f"{_folder(service, version)}/layout.json", document)

    def has_state(self, service: str, version: int) -> bool:
        """Return True if a version has a checkpoint."""
        return bool(self._files.entries(self._main(service, version)))

    def adapt_paths(self, service: str, version: int) -> None:
        """Let a checkpoint that was copied or moved here name its own files: Spark keeps absolute paths to schemas."""
        if not isinstance(self._files, LocalFiles):
            return  # a URI is moved with its name
        main = Path(self.main(service, version)).absolute()
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
        self._files.delete(self._main(service, version))

    def last_commit_us(self, service: str, version: int) -> int:
        """Return when a checkpoint was last committed, in microseconds; if never, when it was begun, or now."""
        main = self._main(service, version)
        commits = [time_us for name, time_us in self._files.entries(f"{main}/commits").items() if name.isdecimal()]
        return max(commits) if commits else self._files.entries(main).get("metadata", time.time_ns() // 1_000)

    def forget(self, service: str) -> None:
        """Delete everything that is kept of a service."""
        self._files.delete(service)


def _folder(service: str, version: int) -> str:
    return f"{service}/v{version}"


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
