"""`tidegate link`: manage the links of a broker to other brokers."""

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
    help="Links to other brokers: add, change, list and remove them.", no_args_is_help=True, add_completion=False
)

app.command("trust")(link_keys.trust)
app.command("distrust")(link_keys.distrust)
app.add_typer(link_keys.app, name="key")

_LINK_COLUMNS = (
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
_FILTERING_COLUMNS = ("forwarded", "stopped", "asked", "excess", "dropped", "coarsened", "tightened")
"""Counters of the events of one service that are sent to a neighbour; see `docs/spec/federation.md`."""

Name = Annotated[str, typer.Argument(help="The name of the broker at the other end.")]
Transit = Annotated[
    list[str] | None,
    typer.Option(
        "--transit",
        metavar="BROKER",
        help="The neighbour may pass on services of this broker; *: of any. May be repeated.",
    ),
]
Public = Annotated[
    list[str] | None,
    typer.Option(
        "--public",
        metavar="SERVICE",
        help="Guests may read this service, if its origin allows it; *: any. May be repeated.",
    ),
]


@app.command("add")
def add(
    context: typer.Context,
    name: Name,
    address: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="The same as --to.", show_default=False)
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="The URL of the neighbour's gateway; without it, the neighbour connects to us."),
    ] = None,
    secret_file: Annotated[
        str | None,
        typer.Option(
            "--secret-file",
            metavar="PATH",
            help="A file with the secret that both ends share, - for standard input; or use TIDEGATE_LINK_SECRET. "
            "Without it, a secret is created and printed.",
        ),
    ] = None,
    secret_to: Annotated[
        str | None,
        typer.Option(
            "--secret-to", metavar="PATH", help="Write the created secret to a new file, instead of printing it."
        ),
    ] = None,
    secret: Annotated[str | None, typer.Option(hidden=True, envvar="TIDEGATE_LINK_SECRET")] = None,
    service: Annotated[
        list[str] | None, typer.Option(help="Offer only this service to the neighbour; may be repeated.")
    ] = None,
    transit: Transit = None,
    public: Public = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Link a gateway's broker to another. Run it at both ends, with the same secret."""
    shared_secret = _secret(context, secret, secret_file)
    if shared_secret is not None and secret_to is not None:
        raise EnvironmentProblem(
            "--secret-to writes a secret that is created: leave out --secret-file and TIDEGATE_LINK_SECRET"
        )
    if secret_to is not None:  # written before the link is added: a secret that can't be written would be lost
        shared_secret = secrets.token_urlsafe(32)
        write_secret_file(secret_to, shared_secret, "--secret-to")
    with gateway_client.connect(url, key) as client:
        link = client.add_link(name, to or address, shared_secret, service, transit=transit or (), public=public or ())
    if shared_secret is not None:
        link.pop("secret")
    if as_json:
        typer.echo(json.dumps(link, indent=2))
    elif shared_secret is None:
        typer.echo(link["secret"])
    else:
        typer.echo(f"linked to {name}")


def _secret(context: typer.Context, secret: str | None, secret_file: str | None) -> str | None:
    """Return the secret from a file or the environment; None if one is to be created. Refuses `--secret`."""
    source = context.get_parameter_source("secret")
    if secret is not None and source is not None and source.name == "COMMANDLINE":
        raise EnvironmentProblem(
            "--secret: every user of this machine can read a command line, so a secret is not accepted there: write it "
            "to a file and pass --secret-file PATH, or - for standard input. Choose a new secret"
        )
    return secret if secret_file is None else read_secret_file(secret_file, "--secret-file")


@app.command("change")
def change(
    name: Name,
    transit: Transit = None,
    public: Public = None,
    no_transit: Annotated[
        bool, typer.Option("--no-transit", help="The neighbour may not pass on services of other brokers.")
    ] = False,
    no_public: Annotated[
        bool, typer.Option("--no-public", help="Guests may read none of the neighbour's services.")
    ] = False,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
) -> None:
    """Change which services of others a neighbour may pass on, and which of its services guests may read."""
    with gateway_client.connect(url, key) as client:
        link = client.change_link(
            name, transit=[] if no_transit else transit or None, public=[] if no_public else public or None
        )
    for setting in ("transit", "public"):
        typer.echo(f"{setting}: {', '.join(link[setting]) or 'nothing'}")


@app.command("list")
def list_(
    tree: Annotated[bool, typer.Option("--tree", help="Show the brokers that can be reached, as a tree.")] = False,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the state and traffic of a gateway's links."""
    with gateway_client.connect(url, key) as client:
        listing = client.links()
    if as_json:
        typer.echo(json.dumps(listing, indent=2))
    elif tree:
        typer.echo("\n".join(broker_tree(listing)))
    else:
        _print(listing["broker"], listing["links"])
        for origin in listing["pinned"]:
            key_ids = ", ".join(public_key["kid"] for public_key in origin["keys"])
            typer.echo(f"events of {origin['name']} must be signed with {key_ids}")


@app.command("remove")
def remove(name: Name, url: options.Gateway = options.GATEWAY, key: options.Key = None) -> None:
    """Remove a link at this end; services that came over it are no longer known here."""
    with gateway_client.connect(url, key) as client:
        client.remove_link(name)
    typer.echo(f"no longer linked to {name}")


def _print(broker: str, links: Sequence[dict[str, Any]]) -> None:
    typer.echo(f"{broker}'s links" if links else f"{broker} has no links")
    if not links:
        return
    table = _table(*_LINK_COLUMNS)
    filtering = _table("broker", "service", "filters", *_FILTERING_COLUMNS)
    for link in links:
        figures = link["figures"]
        counts = (len(link["offers"]), sum(link["asked"].values()), sum(link["entries"].values()))
        traffic = (figures["forwarded"], figures["stopped"], figures["received"], figures["dropped"])
        row = [link["name"], link["state"], *(f"{count:,}" for count in (*counts, *traffic))]
        table.add_row(*row, " ".join(link["transit"]), " ".join(link["public"]), link["problem"] or "")
        for service, counters in link["filtering"].items():
            cells = [f"{counters[column]:,}" for column in _FILTERING_COLUMNS]
            filtering.add_row(link["name"], service, "a sample" if counters["coarse"] else "all", *cells)
    console = Console(soft_wrap=True, width=options.WIDTH)
    console.print(table)
    if filtering.row_count:
        console.print("\nEvents sent to each neighbour, by service")
        console.print(filtering)
    for line in _refusals(links):
        typer.echo(line)


def _refusals(links: Sequence[dict[str, Any]]) -> list[str]:
    """Return lines about messages of neighbours that were refused; empty if there were none."""
    lines = []
    for link in links:
        counts = ", ".join(f"{count:,} by {kind}" for kind, count in link["refusals"].items() if count)
        if counts:
            lines.append(f"{link['name']}: refused {counts}")
        lines += [f"  {service}: {reason}" for service, reason in link["refused"].items()]
    return ["", "Refused from neighbours", *lines] if lines else []


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2))
    for title in titles:
        table.add_column(title, no_wrap=True)
    return table


def broker_tree(listing: dict[str, Any]) -> list[str]:
    """Return the lines of a tree of all brokers that can be reached.

    >>> city = {"name": "city", "state": "up", "paths": [["city"], ["city", "port"], ["city", "rail"]]}
    >>> fleet = {"name": "fleet", "state": "down", "paths": []}
    >>> print("\\n".join(broker_tree({"broker": "province", "links": [city, fleet]})))
    province
    ├── city
    │   ├── port
    │   └── rail
    └── fleet (down)
    """
    paths: list[tuple[str, ...]] = []
    states: dict[tuple[str, ...], str] = {}
    for link in listing["links"]:
        states[link["name"],] = "" if link["state"] == "up" else f" ({link['state']})"
        paths += [(link["name"],), *(tuple(path) for path in link["paths"])]
    return [listing["broker"], *_branches((), sorted(set(paths)), states, "")]


def _branches(
    path: tuple[str, ...], paths: Sequence[tuple[str, ...]], states: dict[tuple[str, ...], str], indent: str
) -> list[str]:
    children = [child for child in paths if len(child) == len(path) + 1 and child[:-1] == path]
    lines = []
    for n, child in enumerate(children):
        is_last = n == len(children) - 1
        lines.append(f"{indent}{'└── ' if is_last else '├── '}{child[-1]}{states.get(child, '')}")
        lines += _branches(child, paths, states, indent + ("    " if is_last else "│   "))
    return lines
