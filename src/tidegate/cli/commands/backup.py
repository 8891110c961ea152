"""`tidegate backup` and `tidegate restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.data_folder import local_audit
from tidegate.cli.input import options
from tidegate.cli.profile import EMBEDDED


def backup(
    target: Annotated[Path, typer.Argument(help="A new folder for the backup.", show_default=False)],
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Include the keys of the folder: who has the backup can read secrets.")
    ] = False,
) -> None:
    """Copy the registry, checkpoints and log at one consistent cut, while Tidegate runs or not.

    A log in Kafka is not in it, and neither are the profile and the semantic space.
    """
    from tidegate.cli.backup.saving import KEYS, make_backup

    home = options.home(data, profile)
    manifest = make_backup(home, target, with_keys=with_keys)
    local_audit.record(home, "backup", str(target))
    typer.echo(f"{len(manifest.files):,} files, {manifest.size_bytes / 1e6:,.1f} MB in {target}")
    if not with_keys:
        typer.echo(f"keys are not in it; keep copies of {', '.join(KEYS)} elsewhere, or use --with-keys", err=True)


def restore(
    source: Annotated[Path, typer.Argument(help="A folder that `tidegate backup` made.", show_default=False)],
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
) -> None:
    """Write a backup into an empty data folder, and into an empty database if the profile names one."""
    from tidegate.cli.backup.restoring import restore_backup

    home = options.home(data, profile)
    manifest = restore_backup(home, source)
    local_audit.record(home, "restore", str(source))
    typer.echo(f"restored the backup of {manifest.created_at[:19]}Z into {home.folder}; start tidegate up")
    if not manifest.has_keys:
        typer.echo("it has no keys; put back mask.key, secrets.key and signing.jwks before the start", err=True)
