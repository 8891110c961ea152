"""Restores a backup into an empty data folder, and an empty database if the profile names one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tidegate.cli.backup.manifest import Manifest, check_files, read_manifest
from tidegate.cli.data_folder.home import Home
from tidegate.cli.data_folder.permissions import private_umask
from tidegate.errors import EnvironmentProblem
from tidegate.logs.copying import continue_far_away, copy_file
from tidegate.logs.factory import FileLogSettings
from tidegate.registry import SqliteRegistry
from tidegate.registry.copying import copy_registry

_LOCKS = ("lock", "ingest.lock", "audit")


def restore_backup(home: Home, source: Path) -> Manifest:
    """Check a backup, and write it into an empty data folder. Nothing is written if a file of it is damaged."""
    manifest = read_manifest(source)
    kind = "files" if isinstance(home.profile.log, FileLogSettings) else "kafka"
    if manifest.log != kind:
        raise EnvironmentProblem(f"the backup is of a log of {manifest.log}, but the profile has {kind}")
    check_files(source, manifest)
    with private_umask(), home.locked():
        found = sorted(path.name for path in home.folder.iterdir() if path.name not in _LOCKS)
        if found:
            raise EnvironmentProblem(
                f"{str(home.folder)!r} is not empty: it has {', '.join(found[:5])}; restore into a new folder"
            )
        for name in manifest.files:
            if name == "registry.sqlite" and home.profile.database is not None:
                continue
            target = home.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_file(source / name, target, lambda *_: None)
        if home.profile.database is not None:
            with closing(SqliteRegistry(source / "registry.sqlite")) as copy, closing(home.registry()) as registry:
                copy_registry(copy, registry)
        if kind == "files" and home.log_folder.is_dir():
            continue_far_away(home.log_folder)
        home.protect()  # of a shared folder the group may read
    return manifest
