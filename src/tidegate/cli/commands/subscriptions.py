"""`tidegate subscriptions`: manage the durable subscriptions of a gateway."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tidegate.cli.input import durations, gateway_client, options

app = typer.Typer(help="Durable subscriptions: add, list, change and remove them.", add_completion=False)

Id = Annotated[str, typer.Argument(help="The subscription's id, as `tidegate subscriptions list` shows it.")]
Filter = Annotated[str | None, typer.Option("--filter", help='Only events that match; "": all events.')]
Params = Annotated[list[str] | None, typer.Option("--param", help="Values of %0, %1, ...; may be repeated.")]
Hook = Annotated[str | None, typer.Option("--webhook", help="Send events to this URL.")]
Deliver = Annotated[str | None, typer.Option("--deliver", metavar="JSON", help="A push target: {KIND: {...}}.")]
Select = Annotated[str | None, typer.Option("--select", help="Attributes, separated by commas.")]
Every = Annotated[str | None, typer.Option("--every", help="At most one event, the latest, per key in this interval.")]
KeyOf = Annotated[str | None, typer.Option("--every-key", help="The attribute that --every groups events by.")]
Description = Annotated[str | None, typer.Option("--description", help="A description for readers.")]


@app.callback(invoke_without_command=True)
def subscriptions(
    context: typer.Context,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Durable subscriptions: add, list, change and remove them. Without a command, list all."""
    if context.invoked_subcommand is None:
        list_(None, url, key, as_json)
    else:  # options before the command's name are its defaults
        shared = {"url": url, "key": key, "as_json": as_json}
        context.default_map = dict.fromkeys(COMMANDS, shared)


@app.command("list")
def list_(
    service: Annotated[str | None, typer.Argument(help="Only subscriptions of this service.")] = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Show durable subscriptions, of one service or of all."""
    with gateway_client.connect(url, key) as client:
        names = [service] if service is not None else [offered["name"] for offered in client.services()]
        listed = [subscription for name in names for subscription in client.subscriptions(name)]
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
        return
    table = Table(box=None, padding=(0, 2))
    for title in ("id", "service", "state", "deliver", "connected", "filter", "params", "description"):
        table.add_column(title, no_wrap=True)
    for subscription in listed:
        params = ", ".join(json.dumps(value) for value in subscription["params"])
        row = [subscription["id"], subscription["service"], subscription["state"], _delivery(subscription)]
        row += [str(subscription.get("connected", 0)), subscription["filter"] or "all", params]
        table.add_row(*row, subscription["description"])
    Console(soft_wrap=True, width=options.WIDTH).print(table)


@app.command("show")
def show(
    id_: Id, url: options.Gateway = options.GATEWAY, key: options.Key = None, as_json: options.AsJson = False
) -> None:
    """Show one subscription, with its cursor and the state of its delivery."""
    with gateway_client.connect(url, key) as client:
        _print(client.subscription(id_), as_json)


@app.command("create", hidden=True)
@app.command("add")
def add(
    service: Annotated[str, typer.Argument(help="The service.")],
    filter_argument: Annotated[
        str | None, typer.Argument(metavar="[FILTER]", help="Only events that match; the same as --filter.")
    ] = None,
    filter_: Filter = None,
    param: Params = None,
    webhook: Hook = None,
    deliver: Deliver = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="The maximum number of events in one webhook request.")
    ] = 1,
    handshake: Annotated[bool, typer.Option(help="Ask the webhook first whether it accepts events.")] = True,
    since: Annotated[
        str | None, typer.Option("--from", help="now, beginning, a time, or 10m for ten minutes ago.", metavar="WHEN")
    ] = None,
    select: Select = None,
    plain: Annotated[bool, typer.Option("--plain", help="Send events as plain objects, not as CloudEvents.")] = False,
    every: Every = None,
    every_key: KeyOf = None,
    description: Description = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Add a subscription and print its id; for a push target also its secret, which is shown only once."""
    if filter_argument is not None and filter_ is not None:
        raise typer.BadParameter("expected one filter, not one after the service and another with --filter")
    target = _target(deliver, webhook)
    hook = None if webhook is None else {"url": webhook, "batch": batch, "handshake": handshake}
    with gateway_client.connect(url, key) as client:
        created = client.create_subscription(
            service,
            filter_ if filter_argument is None else filter_argument,
            params=[_value(text) for text in param or ()],
            webhook=hook,
            deliver=target,
            since=since,
            select=select,
            format="plain" if plain else "cloudevents",
            every=None if every is None else durations.seconds(every),
            key=every_key,
            description=description or "",
        )
    if as_json:
        typer.echo(json.dumps(created, indent=2))
        return
    typer.echo(created["id"])
    for described in created["deliver"].values() if isinstance(created["deliver"], dict) else ():
        if "secret" in described:
            typer.echo(f"secret: {described['secret']}", err=True)


@app.command("change")
def change(
    id_: Id,
    filter_: Filter = None,
    param: Params = None,
    webhook: Hook = None,
    deliver: Deliver = None,
    pull: Annotated[
        bool, typer.Option("--pull", help="Deliver to clients that connect, no longer by webhook.")
    ] = False,
    select: Select = None,
    every: Every = None,
    every_key: KeyOf = None,
    description: Description = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Change the fields that the options name; a connected consumer uses them at once."""
    options_given: dict[str, Any] = {
        "filter": filter_,
        "params": None if param is None else [_value(text) for text in param],
        "webhook": webhook,
        "deliver": _target(deliver, "--pull" if pull else webhook),
        "select": select,
        "every": None if every is None else durations.seconds(every),
        "key": every_key,
        "description": description,
    }
    fields = {name: value for name, value in options_given.items() if value is not None}
    if pull:
        fields["webhook"] = None
    if filter_ is not None and param is None:
        fields["params"] = None  # the old parameters belong to the old filter
    if not fields:
        raise typer.BadParameter("expected something to change, such as --filter or --param")
    with gateway_client.connect(url, key) as client:
        _print(client.change_subscription(id_, **fields), as_json)


@app.command("delete", hidden=True)
@app.command("remove")
def remove(id_: Id, url: options.Gateway = options.GATEWAY, key: options.Key = None) -> None:
    """Remove a subscription and its dead letters."""
    with gateway_client.connect(url, key) as client:
        client.delete_subscription(id_)
    typer.echo(f"{id_} is removed")


@app.command("enable")
def enable(
    id_: Id, url: options.Gateway = options.GATEWAY, key: options.Key = None, as_json: options.AsJson = False
) -> None:
    """Enable a disabled subscription; delivery resumes at its cursor."""
    with gateway_client.connect(url, key) as client:
        _print(client.enable_subscription(id_), as_json)


@app.command("renew")
def renew(
    id_: Id, url: options.Gateway = options.GATEWAY, key: options.Key = None, as_json: options.AsJson = False
) -> None:
    """Renew a webhook with the permissions of your current token; a stopped one resumes at its cursor."""
    with gateway_client.connect(url, key) as client:
        _print(client.renew_subscription(id_), as_json)


@app.command("adopt")
def adopt(
    id_: Id,
    owner: Annotated[
        str | None, typer.Option(help="The id of the API key that will own it; default: the caller.")
    ] = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Take over a subscription without an owner, or assign it to an API key. For admins."""
    with gateway_client.connect(url, key) as client:
        _print(client.adopt_subscription(id_, owner), as_json)


@app.command("dead-letters")
def dead_letters(
    id_: Id,
    after: Annotated[int, typer.Option(min=0, help="Only dead letters after the one with this id.")] = 0,
    limit: Annotated[int, typer.Option("--max", min=1, max=1_000, help="The maximum number of dead letters.")] = 100,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the events that could not be delivered to a webhook, oldest first."""
    with gateway_client.connect(url, key) as client:
        letters = client.dead_letters(id_, after=after, most=limit)
    if as_json:
        typer.echo(json.dumps(letters, indent=2))
        return
    for letter in letters:
        typer.echo(f"{letter['id']}  {letter['at'][:19]}  {letter['attempts']} attempts  {letter['error']}")


@app.command("redeliver")
def redeliver(
    id_: Id,
    letters: Annotated[
        list[int] | None, typer.Argument(metavar="[LETTER]...", help="The ids of dead letters; default: all.")
    ] = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Send dead letters to the webhook again, now."""
    with gateway_client.connect(url, key) as client:
        result = client.redeliver(id_, letters or "all")
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    counts = ", ".join(f"{len(result[name])} {name}" for name in ("delivered", "failed", "untried"))
    typer.echo("\n".join([counts, *(f"{letter['id']}: {letter['error']}" for letter in result["failed"])]))


COMMANDS = tuple(command.name or "" for command in app.registered_commands)


def _value(text: str) -> Any:
    """Parse a parameter: a JSON number, boolean or string; any other text is a string.

    >>> _value("60"), _value("B17"), _value('"60"')
    (60, 'B17', '60')
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text


def _target(deliver: str | None, other: str | None) -> dict[str, Any] | None:
    """Parse `--deliver`. Raises a `BadParameter` for other text than an object, and for two ways of delivery."""
    if deliver is None:
        return None
    if other is not None:
        raise typer.BadParameter("expected one of --deliver, --webhook and --pull")
    try:
        target = json.loads(deliver)
    except ValueError:
        target = None
    if not isinstance(target, dict):
        raise typer.BadParameter(f'--deliver: expected JSON such as {{"webhook": {{"url": "..."}}}}, not {deliver!r}')
    return target


def _delivery(subscription: dict[str, Any]) -> str:
    deliver = subscription["deliver"]
    if isinstance(deliver, str):
        return deliver
    kind, target = next(iter(deliver.items()))
    if "topic" in target:
        return f"{kind} {target['connection']}/{target['topic']}"
    return str(target.get("url", kind))


def _print(subscription: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(subscription, indent=2))
        return
    width = max(map(len, subscription))
    for name, value in subscription.items():
        typer.echo(f"{name:{width}}  {value if isinstance(value, str) else json.dumps(value)}")
