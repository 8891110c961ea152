"""`tidegate keys`: who may use the API, in a folder's registry, or with --url at a gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from tidegate.cli import connecting, durations, local_audit, options
from tidegate.cli.access import read_quota
from tidegate.cli.profile import EMBEDDED
from tidegate.model import units

if TYPE_CHECKING:
    from tidegate.registry import Key, PostgresRegistry, SqliteRegistry

app = typer.Typer(help="API keys: make, list, rotate and revoke them.", no_args_is_help=True, add_completion=False)

Id = Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `tidegate keys list` shows it.")]
Expires = Annotated[str | None, typer.Option(help="Open nothing after this long: 24h, 90d.")]


@app.command("create")
def create(
    context: typer.Context,
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
    expires: Expires = None,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a key and print its secret, which is shown this once."""
    quotas = _quotas(quota or ())
    gateway = options.url_rather_than_data(context, url)
    if gateway is not None:
        with connecting.client(gateway, key) as client:
            made = client.create_key(name, role, service or None, expires=_length(expires), quotas=quotas or None)
    else:
        services, until = service or None, _moment(expires)
        made = _change(data, profile, "create", lambda known: known.create_key(name, role, services, until, quotas))
    typer.echo(json.dumps(made, indent=2) if as_json else made["secret"])


@app.command("rotate")
def rotate(
    context: typer.Context,
    id_: Id,
    overlap: Annotated[str, typer.Option(help="How long the old secret still holds; 0s: it ends now.")] = "24h",
    expires: Expires = None,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Give a key a new secret and print it, this once; the old one holds for a while."""
    gateway = options.url_rather_than_data(context, url)
    if gateway is not None:
        with connecting.client(gateway, key) as client:
            made = client.rotate_key(id_, units.duration_text(durations.seconds(overlap)), expires=_length(expires))
    else:
        overlap_s, until = durations.seconds(overlap), _moment(expires)
        made = _change(data, profile, "rotate", lambda registry: registry.rotate_key(id_, overlap_s, until))
    typer.echo(json.dumps(made, indent=2) if as_json else made["secret"])


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
        with connecting.client(gateway, key) as client:
            found = client.keys()
    else:
        with closing(options.home(data, profile).existing_registry()) as registry:
            found = [_told(each) for each in registry.keys().values()]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print(found)


@app.command("revoke")
def revoke(
    context: typer.Context,
    id_: Id,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    url: options.Url = None,
    key: options.Key = None,
) -> None:
    """Let a key open nothing any more."""
    gateway = options.url_rather_than_data(context, url)
    if gateway is not None:
        with connecting.client(gateway, key) as client:
            found = client.revoke_key(id_)
    else:
        home = options.home(data, profile)
        with closing(home.existing_registry()) as registry:
            found = _told(registry.revoke_key(id_))
        local_audit.record(home, "key.revoke", id_, found["name"])
    typer.echo(f"{found['name']} ({found['id']}) opens nothing any more")


def _change(
    data: str, profile: str, verb: str, change: Callable[[SqliteRegistry | PostgresRegistry], tuple[Key, str]]
) -> dict[str, Any]:
    """Give a key of a folder's registry a secret; return the key as JSON has it, with the secret."""
    home = options.home(data, profile)
    with closing(home.registry() if verb == "create" else home.existing_registry()) as registry:
        found, secret = change(registry)
    local_audit.record(home, f"key.{verb}", found.id, f"{found.name}, {found.role}")
    return {**_told(found), "secret": secret}


def _quotas(given: Sequence[str]) -> dict[str, float]:
    quotas = {}
    for each in given:
        called, _, limit = each.partition("=")
        quotas[called] = read_quota(called, limit, f"--quota {each}")
    return quotas


def _moment(expires: str | None) -> datetime | None:
    return None if expires is None else datetime.now(UTC) + timedelta(seconds=durations.seconds(expires))


def _length(expires: str | None) -> str | None:
    return None if expires is None else units.duration_text(durations.seconds(expires))


def _print(found: Sequence[Mapping[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 2))
    for title in ("id", "name", "role", "services", "begins with", "made", "last used", "state"):
        table.add_column(title, no_wrap=True)
    for each in found:
        services = ", ".join(each["services"]) if each["services"] else "all"
        used = "never" if each["last_used_at"] is None else f"{each['last_used_at'][:19]} from {each['last_used_from']}"
        made = each["created_at"][:19]
        prefix = f"tg_{each['prefix']}"
        table.add_row(each["id"], each["name"], each["role"], services, prefix, made, used, each["state"])
    Console(soft_wrap=True, width=options.WIDTH).print(table)


def _told(key: Key) -> dict[str, Any]:
    from tidegate.gateway.auth.key_documents import described

    now = datetime.now(UTC)
    return {**described(key, now), "state": key.problem(now) or "good"}
