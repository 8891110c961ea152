"""`tidegate apply`: change the definitions of streams and services."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.data_folder import local_audit
from tidegate.cli.input import gateway_client, options
from tidegate.cli.output.changes import change_lines
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem
from tidegate.services import load


def apply(
    context: typer.Context,
    files: options.Files,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
    force: options.Force = False,
    prune: Annotated[bool, typer.Option(help="Remove the streams and services that the files do not define.")] = False,
    backfill: options.Backfill = False,
    as_json: options.AsJson = False,
) -> None:
    """Apply service files, all or nothing, to a folder, or with --url to a gateway.

    A running `tidegate up` starts, restarts and stops services within a second. Files that are sent to a gateway may
    name only functions, connections and folders that its profile lists; paths in them are of its machine, and absolute.
    """
    gateway_url = options.url_rather_than_data(context, url)
    if gateway_url is None:
        home = options.home(data, profile)
        registry = home.registry()
        try:
            changes = registry.apply(
                options.trusted(load(files), home), force=force, prune=prune, backfill=backfill
            ).to_dict()
        finally:
            registry.close()
        local_audit.record_changes(home, changes)
    else:
        with gateway_client.connect(gateway_url, key) as client:
            changes = client.apply(_texts(files), force=force, prune=prune, backfill=backfill)
    if as_json:
        typer.echo(json.dumps(changes, indent=2))
        return
    for line in change_lines(changes):
        typer.echo(line)


def _texts(files: list[str]) -> dict[str, str]:
    texts = {}
    for name in files:
        try:
            texts[name] = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise EnvironmentProblem(f"{name}: can't read it: {reason}") from error
    return texts
