"""`tidegate secrets`: the encryption of the secrets of webhooks and links in the registry."""

from __future__ import annotations

import typer

from tidegate.cli.data_folder import local_audit
from tidegate.cli.input import options
from tidegate.cli.profile import EMBEDDED

app = typer.Typer(help="The encryption of secrets in the registry.", no_args_is_help=True, add_completion=False)


@app.callback()
def group() -> None:
    """The encryption of secrets in the registry."""


@app.command("rotate")
def rotate(data: options.Data = options.DATA, profile: options.Profile = EMBEDDED) -> None:
    """Encrypt all secrets of webhooks and links again, with the current key of the profile.

    Before that, put the new key into secrets.key of the profile and the old one into secrets.previous, and restart
    every gateway.
    """
    home = options.home(data, profile)
    registry = home.existing_registry()
    try:
        count = registry.reseal()
    finally:
        registry.close()
    local_audit.record(home, "secrets.rotate", detail=f"{count} secrets")
    typer.echo(f"{count} secret{'s' * (count != 1)} encrypted with the current key; previous keys are no longer needed")
