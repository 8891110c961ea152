"""`tidegate keys`: manage API keys, in a folder's registry or with --url at a gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from tidegate.cli.data_folder import local_audit
from tidegate.cli.input import durations, gateway_client, options
from tidegate.cli.profile import EMBEDDED
from tidegate.cli.profile.access import read_quota
from tidegate.model import units

if TYPE_CHECKING:
    from tidegate.registry import Key, PostgresRegistry, SqliteRegistry

app = typer.Typer(help="API keys: create, list, rotate and revoke them.", no_args_is_help=True, add_completion=False)

Id = Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `tidegate keys list` shows it.")]
Expires = Annotated[str | None, typer.Option(help="The key expires after this time: 24h, 90d.")]


@app.command("create")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name of the key's owner or purpose.")],
    role: Annotated[
        Literal["consumer", "publisher", "provider", "admin"], typer.Option(help="What the key may do.")
    ] = "consumer",
    service: Annotated[
        list[str] | None,
        typer.Option(help="Limit the key to this service or stream; may be repeated. A publisher needs one."),
    ] = None,
    quota: Annotated[
        list[str] | None, typer.Option(help="A quota of this key, such as connections=100; may be repeated.")
    ] = None,
    expires: Expires = None,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Create a key and print its secret, which is shown only once."""
    quotas = _quotas(quota or ())
    gateway = options.url_rather_than_data(context, url)
    if gateway is not None:
        with gateway_client.connect(gateway, key) as client:
            created = client.create_key(name, role, service or None, expires=_duration(expires), quotas=quotas or None)
    else:
        services, until = service or None, _expiry(expires)
        created = _change(
            data, profile, "create", lambda registry: registry.create_key(name, role, services, until, quotas)
        )
    typer.echo(json.dumps(created, indent=2) if as_json else created["secret"])


@app.command("rotate")
def rotate(
    context: typer.Context,
    id_: Id,
    overlap: Annotated[str, typer.Option(help="How long the old secret stays valid; 0s: it ends now.")] = "24h",
    expires: Expires = None,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Give a key a new secret and print it, only once; the old one stays valid for a while."""
    gateway = options.url_rather_than_data(context, url)
    if gateway is not None:
        with gateway_client.connect(gateway, key) as client:
            rotated = client.rotate_key(
                id_, units.duration_text(durations.seconds(overlap)), expires=_duration(expires)
            )
    else:
        overlap_s, until = durations.seconds(overlap), _expiry(expires)
        rotated = _change(data, profile, "rotate", lambda registry: registry.rotate_key(id_, overlap_s, until))
    typer.echo(json.dumps(rotated, indent=2) if as_json else rotated["secret"])


@app.command("list")
def list_(
    context: typer.Context,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Show all keys, without their secrets."""
    gateway = options.url_rather_than_data(context, url)
    if gateway is not None:
        with gateway_client.connect(gateway, key) as client:
            listed = client.keys()
    else:
        with closing(options.home(data, profile).existing_registry()) as registry:
            listed = [_described(api_key) for api_key in registry.keys().values()]
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
    else:
        _print(listed)


@app.command("revoke")
def revoke(
    context: typer.Context,
    id_: Id,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
) -> None:
    """Revoke a key: its secret is refused from now on."""
    gateway = options.url_rather_than_data(context, url)
    if gateway is not None:
        with gateway_client.connect(gateway, key) as client:
            revoked = client.revoke_key(id_)
    else:
        home = options.home(data, profile)
        with closing(home.existing_registry()) as registry:
            revoked = _described(registry.revoke_key(id_))
        local_audit.record(home, "key.revoke", id_, revoked["name"])
    typer.echo(f"{revoked['name']} ({revoked['id']}) is revoked")


def _change(
    data: str, profile: str, verb: str, change: Callable[[SqliteRegistry | PostgresRegistry], tuple[Key, str]]
) -> dict[str, Any]:
    """Create or rotate a key in a folder's registry; return the key as a JSON object, with its secret."""
    home = options.home(data, profile)
    with closing(home.registry() if verb == "create" else home.existing_registry()) as registry:
        changed, secret = change(registry)
    local_audit.record(home, f"key.{verb}", changed.id, f"{changed.name}, {changed.role}")
    return {**_described(changed), "secret": secret}


def _quotas(texts: Sequence[str]) -> dict[str, float]:
    quotas = {}
    for text in texts:
        name, _, limit = text.partition("=")
        quotas[name] = read_quota(name, limit, f"--quota {text}")
    return quotas


def _expiry(expires: str | None) -> datetime | None:
    return None if expires is None else datetime.now(UTC) + timedelta(seconds=durations.seconds(expires))


def _duration(expires: str | None) -> str | None:
    return None if expires is None else units.duration_text(durations.seconds(expires))


def _print(listed: Sequence[Mapping[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 2))
    for title in ("id", "name", "role", "services", "prefix", "created", "last used", "state"):
        table.add_column(title, no_wrap=True)
    for key in listed:
        services = ", ".join(key["services"]) if key["services"] else "all"
        used = "never" if key["last_used_at"] is None else f"{key['last_used_at'][:19]} from {key['last_used_from']}"
        created = key["created_at"][:19]
        prefix = f"tg_{key['prefix']}"
        table.add_row(key["id"], key["name"], key["role"], services, prefix, created, used, key["state"])
    Console(soft_wrap=True, width=options.WIDTH).print(table)


def _described(key: Key) -> dict[str, Any]:
    from tidegate.gateway.auth.key_documents import described

    now = datetime.now(UTC)
    return {**described(key, now), "state": key.problem(now) or "good"}
