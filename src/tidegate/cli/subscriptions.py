"""`tidegate subscriptions`: durable subscriptions of a gateway."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tidegate.cli import connecting, durations, options

app = typer.Typer(help="Durable subscriptions: make, list, change and remove them.", add_completion=False)

Id = Annotated[str, typer.Argument(help="The subscription's id, as `tidegate subscriptions list` shows it.")]
Filter = Annotated[str | None, typer.Option("--filter", help='Just events that match; "" is everything.')]
Params = Annotated[list[str] | None, typer.Option("--param", help="Values of %0, %1, ...; may be repeated.")]
Hook = Annotated[str | None, typer.Option("--webhook", help="Send events to this URL.")]
Select = Annotated[str | None, typer.Option("--select", help="Attributes, separated by commas.")]
Every = Annotated[str | None, typer.Option("--every", help="At most the latest event of each key in so long.")]
KeyOf = Annotated[str | None, typer.Option("--every-key", help="The attribute that --every tells events apart by.")]
Description = Annotated[str | None, typer.Option("--description", help="For people.")]


@app.callback(invoke_without_command=True)
def subscriptions(
    context: typer.Context,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Durable subscriptions: make, list, change and remove them. Without a command: all of them."""
    if context.invoked_subcommand is None:
        list_(None, url, key, as_json)
    else:  # what is said before a command is said of it
        said = {"url": url, "key": key, "as_json": as_json}
        context.default_map = dict.fromkeys(COMMANDS, said)


@app.command("list")
def list_(
    service: Annotated[str | None, typer.Argument(help="Just of this service.")] = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Show durable subscriptions, of one service or of all."""
    with connecting.client(url, key) as client:
        names = [service] if service is not None else [each["name"] for each in client.services()]
        found = [each for name in names for each in client.subscriptions(name)]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    table = Table(box=None, padding=(0, 2))
    for title in ("id", "service", "state", "deliver", "connected", "filter", "params", "description"):
        table.add_column(title, no_wrap=True)
    for each in found:
        params = ", ".join(json.dumps(value) for value in each["params"])
        row = (each["id"], each["service"], each["state"], _way(each), str(each.get("connected", 0)))
        table.add_row(*row, each["filter"] or "all", params, each["description"])
    Console(soft_wrap=True, width=options.WIDTH).print(table)


@app.command("show")
def show(
    id_: Id, url: options.Gateway = options.GATEWAY, key: options.Key = None, as_json: options.AsJson = False
) -> None:
    """Show one, with where its cursor is and how delivery does."""
    with connecting.client(url, key) as client:
        _print(client.subscription(id_), as_json)


@app.command("create", hidden=True)
@app.command("add")
def add(
    service: Annotated[str, typer.Argument(help="The service.")],
    wanted: Annotated[
        str | None, typer.Argument(metavar="[FILTER]", help="Just events that match; --filter does the same.")
    ] = None,
    filter_: Filter = None,
    param: Params = None,
    webhook: Hook = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Events in one request of a webhook, at most.")] = 1,
    handshake: Annotated[bool, typer.Option(help="Ask the webhook first whether it wants events.")] = True,
    since: Annotated[
        str | None, typer.Option("--from", help="now, beginning, a moment, or 10m for ten minutes ago.", metavar="WHEN")
    ] = None,
    select: Select = None,
    plain: Annotated[bool, typer.Option("--plain", help="Events as objects alone, not as CloudEvents.")] = False,
    every: Every = None,
    every_key: KeyOf = None,
    description: Description = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Make one and print its id; that of a webhook with its secret, which is shown this once."""
    if wanted is not None and filter_ is not None:
        raise typer.BadParameter("expected one filter, not one behind the service and another with --filter")
    hook = None if webhook is None else {"url": webhook, "batch": batch, "handshake": handshake}
    with connecting.client(url, key) as client:
        found = client.create_subscription(
            service,
            filter_ if wanted is None else wanted,
            params=[_value(each) for each in param or ()],
            webhook=hook,
            since=since,
            select=select,
            format="plain" if plain else "cloudevents",
            every=None if every is None else durations.seconds(every),
            key=every_key,
            description=description or "",
        )
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo(found["id"])
    if webhook is not None:
        typer.echo(f"secret: {found['deliver']['webhook']['secret']}", err=True)


@app.command("change")
def change(
    id_: Id,
    filter_: Filter = None,
    param: Params = None,
    webhook: Hook = None,
    pull: Annotated[bool, typer.Option("--pull", help="Deliver to whoever asks, no more by webhook.")] = False,
    select: Select = None,
    every: Every = None,
    every_key: KeyOf = None,
    description: Description = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Change what is given; whoever consumes it goes on with it at once."""
    said: dict[str, Any] = {
        "filter": filter_,
        "params": None if param is None else [_value(each) for each in param],
        "webhook": webhook,
        "select": select,
        "every": None if every is None else durations.seconds(every),
        "key": every_key,
        "description": description,
    }
    fields = {name: value for name, value in said.items() if value is not None}
    if pull:
        fields["webhook"] = None
    if filter_ is not None and param is None:
        fields["params"] = None  # those of the filter before are none of this one's
    if not fields:
        raise typer.BadParameter("expected something to change, such as --filter or --param")
    with connecting.client(url, key) as client:
        _print(client.change_subscription(id_, **fields), as_json)


@app.command("delete", hidden=True)
@app.command("remove")
def remove(id_: Id, url: options.Gateway = options.GATEWAY, key: options.Key = None) -> None:
    """Remove one, and its dead letters."""
    with connecting.client(url, key) as client:
        client.delete_subscription(id_)
    typer.echo(f"{id_} is gone")


@app.command("enable")
def enable(
    id_: Id, url: options.Gateway = options.GATEWAY, key: options.Key = None, as_json: options.AsJson = False
) -> None:
    """Deliver one that was disabled again, from its cursor on."""
    with connecting.client(url, key) as client:
        _print(client.enable_subscription(id_), as_json)


@app.command("renew")
def renew(
    id_: Id, url: options.Gateway = options.GATEWAY, key: options.Key = None, as_json: options.AsJson = False
) -> None:
    """Deliver a webhook by what your token says now, and for longer; a stopped one goes on from its cursor."""
    with connecting.client(url, key) as client:
        _print(client.renew_subscription(id_), as_json)


@app.command("adopt")
def adopt(
    id_: Id,
    owner: Annotated[
        str | None, typer.Option(help="The id of the API key that owns it from now on; else the caller.")
    ] = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Take over a subscription that nobody owns, or give it to an API key; for admins."""
    with connecting.client(url, key) as client:
        _print(client.adopt_subscription(id_, owner), as_json)


@app.command("dead-letters")
def dead_letters(
    id_: Id,
    after: Annotated[int, typer.Option(min=0, help="Behind the one with this id.")] = 0,
    most: Annotated[int, typer.Option("--max", min=1, max=1_000, help="So many at most.")] = 100,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what a webhook could not be given, the oldest first."""
    with connecting.client(url, key) as client:
        found = client.dead_letters(id_, after=after, most=most)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for each in found:
        typer.echo(f"{each['id']}  {each['at'][:19]}  {each['attempts']} attempts  {each['error']}")


@app.command("redeliver")
def redeliver(
    id_: Id,
    letters: Annotated[list[int] | None, typer.Argument(metavar="[LETTER]...", help="Just these; else all.")] = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Send dead letters once more, now."""
    with connecting.client(url, key) as client:
        found = client.redeliver(id_, letters or "all")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    counts = ", ".join(f"{len(found[name])} {name}" for name in ("delivered", "failed", "untried"))
    typer.echo("\n".join([counts, *(f"{each['id']}: {each['error']}" for each in found["failed"])]))


COMMANDS = tuple(each.name or "" for each in app.registered_commands)


def _value(text: str) -> Any:
    """A parameter: a number or a boolean where it is written as one, else a text.

    >>> _value("60"), _value("B17"), _value('"60"')
    (60, 'B17', '60')
    """
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, str | int | float | bool) else text


def _way(said: dict[str, Any]) -> str:
    deliver = said["deliver"]
    return deliver if isinstance(deliver, str) else str(deliver["webhook"]["url"])


def _print(said: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(said, indent=2))
        return
    width = max(map(len, said))
    for name, value in said.items():
        typer.echo(f"{name:{width}}  {value if isinstance(value, str) else json.dumps(value)}")
