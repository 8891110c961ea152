"""`tidegate apply`: change what should run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from tidegate.cli import options
from tidegate.cli.profile import EMBEDDED
from tidegate.services import load


def apply(
    files: options.Files,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    force: Annotated[bool, typer.Option(help="Apply also what breaks subscribers.")] = False,
    prune: Annotated[bool, typer.Option(help="Remove all that the files do not name.")] = False,
    backfill: Annotated[bool, typer.Option(help="Run what is new or changed over the retained history first.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Apply service files to a folder, all or nothing; a `tidegate up` on it follows within a second."""
    registry = options.home(data, profile).registry()
    try:
        changes = registry.apply(load(files), force=force, prune=prune, backfill=backfill)
    finally:
        registry.close()
    if as_json:
        typer.echo(json.dumps({word: dict(names) for word, names in asdict(changes).items()}, indent=2))
        return
    for word in ("added", "changed", "removed", "unchanged"):
        for name, version in getattr(changes, word).items():
            typer.echo(f"{word:<9}  {name}  version {version}")
