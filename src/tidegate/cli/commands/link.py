"""`tidegate link`: links of a broker to others."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tidegate.cli.commands import link_keys
from tidegate.cli.input import gateway_client, options
from tidegate.cli.profile.secret_files import read_secret_file, write_secret_file
from tidegate.errors import EnvironmentProblem

app = typer.Typer(
    help="Links to other brokers: make, list and remove them.", no_args_is_help=True, add_completion=False
)

app.command("trust")(link_keys.trust)
app.command("distrust")(link_keys.distrust)
app.add_typer(link_keys.app, name="key")

_TITLES = (
    "broker",
    "state",
    "services",
    "asked for",
    "asked of us",
    "sent",
    "stopped",
    "received",
    "dropped",
    "passes on",
    "public",
    "problem",
)
_FIGURES = ("forwarded", "stopped", "asked", "excess", "dropped", "coarsened", "tightened")
"""Of what goes to a neighbour, of one service; see `docs/spec/federation.md`."""

Name = Annotated[str, typer.Argument(help="The name of the broker at the other end.")]
Transit = Annotated[
    list[str] | None,
    typer.Option("--transit", metavar="BROKER", help="It may pass on services of this broker, too; *: of any."),
]
Public = Annotated[
    list[str] | None,
    typer.Option("--public", metavar="SERVICE", help="Guests may read this service, if its origin says so; *: any."),
]


@app.command("add")
def add(
    context: typer.Context,
    name: Name,
    address: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="The same as --to.", show_default=False)
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="The URL of its gateway; without, it dials us.")] = None,
    secret_file: Annotated[
        str | None,
        typer.Option(
            "--secret-file",
            metavar="PATH",
            help="A file with what both ends know, - for standard input; or TIDEGATE_LINK_SECRET in the environment. "
            "Without, a secret is made and printed.",
        ),
    ] = None,
    secret_to: Annotated[
        str | None,
        typer.Option("--secret-to", metavar="PATH", help="Write the secret that is made to a new file instead."),
    ] = None,
    secret: Annotated[str | None, typer.Option(hidden=True, envvar="TIDEGATE_LINK_SECRET")] = None,
    service: Annotated[list[str] | None, typer.Option(help="All it may see is this; may be repeated.")] = None,
    transit: Transit = None,
    public: Public = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Link a gateway's broker to another; both ends are told of it, with one secret."""
    known = _secret(context, secret, secret_file)
    if known is not None and secret_to is not None:
        raise EnvironmentProblem("--secret-to is for a secret that is made, and this link is given one")
    if secret_to is not None:  # before the link is made: a secret that can't be written would be lost
        known = secrets.token_urlsafe(32)
        write_secret_file(secret_to, known, "--secret-to")
    with gateway_client.connect(url, key) as client:
        found = client.add_link(name, to or address, known, service, transit=transit or (), public=public or ())
    if known is not None:
        found.pop("secret")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif known is None:
        typer.echo(found["secret"])
    else:
        typer.echo(f"linked to {name}")


def _secret(context: typer.Context, secret: str | None, secret_file: str | None) -> str | None:
    """Return the secret that was given, by a file or the environment; None: one is to be made."""
    source = context.get_parameter_source("secret")
    if secret is not None and source is not None and source.name == "COMMANDLINE":
        raise EnvironmentProblem(
            "--secret: every user of this machine can read a command line, so a secret is not taken from it: write it "
            "to a file and pass --secret-file PATH, or - for standard input. Choose another than this one"
        )
    return secret if secret_file is None else read_secret_file(secret_file, "--secret-file")


@app.command("change")
def change(
    name: Name,
    transit: Transit = None,
    public: Public = None,
    no_transit: Annotated[bool, typer.Option("--no-transit", help="It may pass on no services of others.")] = False,
    no_public: Annotated[bool, typer.Option("--no-public", help="Guests may read nothing of it.")] = False,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
) -> None:
    """Change what is believed of a neighbour: whose services it may pass on, and what guests may read of it."""
    with gateway_client.connect(url, key) as client:
        found = client.change_link(
            name, transit=[] if no_transit else transit or None, public=[] if no_public else public or None
        )
    for setting in ("transit", "public"):
        typer.echo(f"{setting}: {', '.join(found[setting]) or 'nothing'}")


@app.command("list")
def list_(
    tree: Annotated[bool, typer.Option("--tree", help="Show who is reached, as a tree.")] = False,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a gateway's links: how they do, and what goes over them."""
    with gateway_client.connect(url, key) as client:
        found = client.links()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif tree:
        typer.echo("\n".join(drawn(found)))
    else:
        _print(found["broker"], found["links"])
        for each in found["pinned"]:
            typer.echo(f"events of {each['name']} must be signed with {', '.join(key['kid'] for key in each['keys'])}")


@app.command("remove")
def remove(name: Name, url: options.Gateway = options.GATEWAY, key: options.Key = None) -> None:
    """Remove a link at this end; what comes over it is known no more."""
    with gateway_client.connect(url, key) as client:
        client.remove_link(name)
    typer.echo(f"no longer linked to {name}")


def _print(broker: str, links: Sequence[dict[str, Any]]) -> None:
    typer.echo(f"{broker}'s links" if links else f"{broker} has no links")
    if not links:
        return
    table = _table(*_TITLES)
    filtering = _table("broker", "service", "filters", *_FIGURES)
    for each in links:
        figures = each["figures"]
        counts = (len(each["offers"]), sum(each["asked"].values()), sum(each["entries"].values()))
        traffic = (figures["forwarded"], figures["stopped"], figures["received"], figures["dropped"])
        row = [each["name"], each["state"], *(f"{count:,}" for count in (*counts, *traffic))]
        table.add_row(*row, " ".join(each["transit"]), " ".join(each["public"]), each["problem"] or "")
        for service, said in each["filtering"].items():
            shown = [f"{said[figure]:,}" for figure in _FIGURES]
            filtering.add_row(each["name"], service, "a sample" if said["coarse"] else "all", *shown)
    console = Console(soft_wrap=True, width=options.WIDTH)
    console.print(table)
    if filtering.row_count:
        console.print("\nWhat goes there, by service")
        console.print(filtering)
    for line in _refusals(links):
        typer.echo(line)


def _refusals(links: Sequence[dict[str, Any]]) -> list[str]:
    """What neighbours have sent and are not believed, for people to read."""
    lines = []
    for each in links:
        counts = ", ".join(f"{count:,} by {kind}" for kind, count in each["refusals"].items() if count)
        if counts:
            lines.append(f"{each['name']}: refused {counts}")
        lines += [f"  {service}: {reason}" for service, reason in each["refused"].items()]
    return ["", "What is not believed", *lines] if lines else []


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2))
    for title in titles:
        table.add_column(title, no_wrap=True)
    return table


def drawn(found: dict[str, Any]) -> list[str]:
    """All brokers that are reached, as a tree of text.

    >>> city = {"name": "city", "state": "up", "paths": [["city"], ["city", "port"], ["city", "rail"]]}
    >>> fleet = {"name": "fleet", "state": "down", "paths": []}
    >>> print("\\n".join(drawn({"broker": "province", "links": [city, fleet]})))
    province
    ├── city
    │   ├── port
    │   └── rail
    └── fleet (down)
    """
    paths: list[tuple[str, ...]] = []
    states: dict[tuple[str, ...], str] = {}
    for each in found["links"]:
        states[each["name"],] = "" if each["state"] == "up" else f" ({each['state']})"
        paths += [(each["name"],), *(tuple(path) for path in each["paths"])]
    return [found["broker"], *_branches((), sorted(set(paths)), states, "")]


def _branches(
    path: tuple[str, ...], paths: Sequence[tuple[str, ...]], states: dict[tuple[str, ...], str], before: str
) -> list[str]:
    below = [each for each in paths if len(each) == len(path) + 1 and each[:-1] == path]
    lines = []
    for n, each in enumerate(below):
        is_last = n == len(below) - 1
        lines.append(f"{before}{'└── ' if is_last else '├── '}{each[-1]}{states.get(each, '')}")
        lines += _branches(each, paths, states, before + ("    " if is_last else "│   "))
    return lines
