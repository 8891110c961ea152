"""`tidegate link`: links of a broker to others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tidegate.cli import connecting, options

app = typer.Typer(
    help="Links to other brokers: make, list and remove them.", no_args_is_help=True, add_completion=False
)

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
    "problem",
)
_FIGURES = ("forwarded", "stopped", "asked", "excess", "dropped", "coarsened", "tightened")
"""Of what goes to a neighbour, of one service; see `docs/spec/federation.md`."""

Name = Annotated[str, typer.Argument(help="The name of the broker at the other end.")]


@app.command("add")
def add(
    name: Name,
    address: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="The same as --to.", show_default=False)
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="The URL of its gateway; without, it dials us.")] = None,
    secret: Annotated[
        str | None,
        typer.Option(help="What both ends know; without, one is made and printed.", envvar="TIDEGATE_LINK_SECRET"),
    ] = None,
    service: Annotated[list[str] | None, typer.Option(help="All it may see is this; may be repeated.")] = None,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Link a gateway's broker to another; both ends are told of it, with one secret."""
    with connecting.client(url, key) as client:
        found = client.add_link(name, to or address, secret, service)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif secret is None:
        typer.echo(found["secret"])
    else:
        typer.echo(f"linked to {name}")


@app.command("list")
def list_(
    tree: Annotated[bool, typer.Option("--tree", help="Show who is reached, as a tree.")] = False,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a gateway's links: how they do, and what goes over them."""
    with connecting.client(url, key) as client:
        found = client.links()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif tree:
        typer.echo("\n".join(drawn(found)))
    else:
        _print(found["broker"], found["links"])


@app.command("remove")
def remove(name: Name, url: options.Gateway = options.GATEWAY, key: options.Key = None) -> None:
    """Remove a link at this end; what comes over it is known no more."""
    with connecting.client(url, key) as client:
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
        row = [each["name"], each["state"], *(f"{count:,}" for count in (*counts, *traffic)), each["problem"] or ""]
        table.add_row(*row)
        for service, said in each["filtering"].items():
            shown = [f"{said[figure]:,}" for figure in _FIGURES]
            filtering.add_row(each["name"], service, "a sample" if said["coarse"] else "all", *shown)
    console = Console(soft_wrap=True, width=options.WIDTH)
    console.print(table)
    if filtering.row_count:
        console.print("\nWhat goes there, by service")
        console.print(filtering)


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
