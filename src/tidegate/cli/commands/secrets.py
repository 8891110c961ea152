"""`tidegate secrets`: the encryption of what webhooks and links are signed with."""

from __future__ import annotations

import typer

from tidegate.cli.data_folder import local_audit
from tidegate.cli.input import options
from tidegate.cli.profile import EMBEDDED

app = typer.Typer(help="How secrets in the registry are encrypted.", no_args_is_help=True, add_completion=False)


@app.callback()
def group() -> None:
    """How secrets in the registry are encrypted."""


@app.command("rotate")
def rotate(data: options.Data = options.DATA, profile: options.Profile = EMBEDDED) -> None:
    """Encrypt all secrets of webhooks and links with the key that the profile names now.

    First name the new key as secrets.key and the old one in secrets.previous, and restart every gateway with that.
    """
    home = options.home(data, profile)
    registry = home.existing_registry()
    try:
        count = registry.reseal()
    finally:
        registry.close()
    local_audit.record(home, "secrets.rotate", detail=f"{count} secrets")
    typer.echo(f"{count} secret{'s' * (count != 1)} encrypted with the present key; previous ones are needed no more")
