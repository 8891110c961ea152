"""Makes a backup while Tidegate runs.

The order makes it one consistent cut: the registry with the cursors of subscriptions, then the positions of sources and
the checkpoints, then outputs, each before its inputs, then raw streams. Earlier parts are older, so each part refers to
records that the later parts contain, and a start from the backup computes the missing results again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from tidegate import __version__
from tidegate.cli.backup.manifest import Manifest, digest_of
from tidegate.cli.data_folder.home import Home
from tidegate.cli.data_folder.permissions import private_umask
from tidegate.errors import EnvironmentProblem
from tidegate.logs.copying import copy_file, copy_streams, streams_of
from tidegate.logs.factory import FileLogSettings
from tidegate.registry import SqliteRegistry
from tidegate.registry.copying import copy_registry
from tidegate.services.check import ordered
from tidegate.services.definitions import Definitions
from tidegate.services.findings import Findings

KEYS = ("mask.key", "secrets.key", "signing.jwks")
"""Files of the data folder that a backup has only if its maker asks for them: with them its secrets can be read."""


def make_backup(home: Home, target: Path, *, with_keys: bool = False) -> Manifest:
    """Write a backup into a new folder. Raises an `EnvironmentProblem` if definitions are changed meanwhile."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise EnvironmentProblem(f"{str(target)!r} exists already; choose the name of a new folder")
    if home.folder.absolute() in (target.absolute(), *target.absolute().parents):
        raise EnvironmentProblem(f"{str(target)!r} is inside the data folder; choose a folder elsewhere")
    files: dict[str, tuple[int, str]] = {}

    def note(path: Path, size: int, digest: str) -> None:
        files[path.relative_to(target).as_posix()] = size, digest

    created_at = datetime.now(UTC).isoformat()
    with closing(home.existing_registry()) as registry:
        with private_umask():
            target.mkdir(parents=True, exist_ok=True)
            target.chmod(0o700)
            revision = registry.revision()
            definitions = registry.definitions()
            with closing(SqliteRegistry(target / "registry.sqlite")) as copy:
                copy_registry(registry, copy)
            _note_file(target / "registry.sqlite", note)
            _copy_tree(home.positions, target / "sources", note)
            _copy_tree(home.folder / "states", target / "states", note)
            _copy_tree(home.checkpoints, target / "checkpoints", note)
            has_files = isinstance(home.profile.log, FileLogSettings)
            if has_files:
                names = log_order(definitions, streams_of(home.log_folder))
                copy_streams(home.log_folder, target / "log", names, note)
            for name in KEYS if with_keys else ():
                with suppress(FileNotFoundError):
                    copy_file(home.folder / name, target / name, note)
        if registry.revision() != revision:
            raise EnvironmentProblem("definitions were changed during the backup; make it again, into another folder")
    manifest = Manifest(created_at, __version__, "files" if has_files else "kafka", with_keys, files)
    with private_umask():
        manifest.write(target)
    return manifest


def log_order(definitions: Definitions, streams: list[str]) -> list[str]:
    """Return streams in the order in which they are copied: each output before its quarantine and its inputs."""
    services = reversed(ordered(definitions.services, Findings()))
    outputs = [name for service in services for name in (service.name, service.quarantine, service.replays)]
    known = set(streams)
    first = [name for name in outputs if name in known]
    return [*first, *(name for name in streams if name not in set(first))]


def _copy_tree(source: Path, target: Path, note: Callable[[Path, int, str], None]) -> None:
    """Copy all files below a folder. Of a checkpoint, commits come first: they say which other files count.

    Files of a checkpoint do not change once they are complete, and those that Spark deletes are not needed.
    """
    paths = [path for path in source.rglob("*") if path.is_file() and not path.name.startswith((".tmp", "_tmp"))]
    for path in sorted(paths, key=lambda path: ("commits" not in path.parts, path)):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            copy_file(path, copy, note)


def _note_file(path: Path, note: Callable[[Path, int, str], None]) -> None:
    note(path, path.stat().st_size, digest_of(path))
