"""`tidegate keys`: who may use the API."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from tidegate.cli import durations, options
from tidegate.cli.access import read_quota
from tidegate.cli.profile import EMBEDDED

if TYPE_CHECKING:
    from tidegate.registry import Key

app = typer.Typer(help="API keys: make, list and revoke them.", no_args_is_help=True, add_completion=False)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="What the key is for, or whose it is.")],
    role: Annotated[
        Literal["consumer", "publisher", "provider", "admin"], typer.Option(help="What it may do.")
    ] = "consumer",
    service: Annotated[
        list[str] | None, typer.Option(help="Just this service or stream; may be repeated. A publisher needs one.")
    ] = None,
    quota: Annotated[
        list[str] | None, typer.Option(help="A limit of its own, such as connections=100; may be repeated.")
    ] = None,
    expires: Annotated[str | None, typer.Option(help="Open nothing after this long: 24h, 90d.")] = None,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    as_json: options.AsJson = False,
) -> None:
    """Make a key and print its secret, which is shown this once."""
    until = None if expires is None else datetime.now(UTC) + timedelta(seconds=durations.seconds(expires))
    quotas = {}
    for each in quota or ():
        called, _, limit = each.partition("=")
        quotas[called] = read_quota(called, limit, f"--quota {each}")
    registry = options.home(data, profile).registry()
    try:
        key, secret = registry.create_key(name, role, service or None, until, quotas)
    finally:
        registry.close()
    typer.echo(json.dumps({**_told(key), "secret": secret}, indent=2) if as_json else secret)


@app.command("list")
def list_(
    data: options.Data = options.DATA, profile: options.Profile = EMBEDDED, as_json: options.AsJson = False
) -> None:
    """Show all keys, without their secrets."""
    registry = options.home(data, profile).existing_registry()
    try:
        found = [_told(each) for each in registry.keys().values()]
    finally:
        registry.close()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    table = Table(box=None, padding=(0, 2))
    for title in ("id", "name", "role", "services", "begins with", "made", "state"):
        table.add_column(title, no_wrap=True)
    for each in found:
        services = ", ".join(each["services"]) if each["services"] else "all"
        made = each["created_at"][:19]
        table.add_row(each["id"], each["name"], each["role"], services, f"tg_{each['prefix']}", made, each["state"])
    Console(soft_wrap=True, width=options.WIDTH).print(table)


@app.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(help="The key's id, as `tidegate keys list` shows it.")],
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
) -> None:
    """Let a key open nothing any more."""
    registry = options.home(data, profile).existing_registry()
    try:
        found = registry.revoke_key(key)
    finally:
        registry.close()
    typer.echo(f"{found.name} ({found.id}) opens nothing any more")


def _told(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "services": None if key.services is None else list(key.services),
        "quotas": dict(key.quotas),
        "prefix": key.prefix,
        "created_at": key.created_at.isoformat(),
        "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
        "state": key.problem(datetime.now(UTC)) or "good",
    }
