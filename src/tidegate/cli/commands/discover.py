"""`tidegate discover`: find services by what they have, what they say of themselves, and how good they are."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from tidegate.cli.input import gateway_client, options

_EXAMPLE = "such as latency=2"


def discover(
    attribute: Annotated[
        list[str] | None, typer.Argument(help="Attributes that are needed: speed, or speed:float64 with its type.")
    ] = None,
    filter_: Annotated[
        str | None,
        typer.Option("--filter", help="Over services' properties: \"price < 5 AND region = 'north'\"."),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="Values of the filter's %0, %1, ...; may be repeated.")
    ] = None,
    category: Annotated[list[str] | None, typer.Option(help="One of these; may be repeated.")] = None,
    theme: Annotated[list[str] | None, typer.Option(help="One of these; may be repeated.")] = None,
    weight: Annotated[
        list[str] | None, typer.Option(help="What matters how much, such as latency=2; may be repeated.")
    ] = None,
    at_least: Annotated[
        list[str] | None, typer.Option(help="What a service must reach: latency=fast, availability=0.99.")
    ] = None,
    coverage: Annotated[float | None, typer.Option(help="The least share of the attributes, 0 to 1.")] = None,
    names: Annotated[
        Literal["exact", "edits", "meaning"],
        typer.Option(help="edits: names written alike, too; meaning: names that mean nearly the same."),
    ] = "exact",
    limit: Annotated[int, typer.Option(help="Results at most.")] = 20,
    explain: Annotated[bool, typer.Option(help="With the reasons.")] = False,
    watch: Annotated[bool, typer.Option(help="Go on: tell what appears, changes, leaves or is better.")] = False,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Find services and rank them: by attributes, properties, themes, and quality."""
    said: dict[str, Any] = {
        "attributes": [_attribute(each) for each in attribute or ()],
        "filter": filter_,
        "params": param,
        "categories": category,
        "themes": theme,
        "coverage": coverage,
        "qos": {
            kind: found
            for kind, found in (("weights", _figures(weight, "--weight")), ("limits", _figures(at_least, "--at-least")))
            if found
        },
    }
    request = {name: each for name, each in said.items() if each}
    request |= {"names": names, "limit": limit, "explain": explain}
    with gateway_client.connect(url, key) as client:
        if not watch:
            answer = client.discover(**request)
            typer.echo(json.dumps(answer, indent=2)) if as_json else _show(answer, explain)
            return
        for each in client.watch(**request):
            if as_json:
                typer.echo(json.dumps(each))
            elif each["kind"] == "answer":
                _show(each, explain)
            else:
                _show_changes(each)


def _attribute(text: str) -> str | dict[str, str]:
    name, _, kind = text.partition(":")
    return {"name": name, "type": kind} if kind else name


def _figures(given: list[str] | None, option: str) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for each in given or ():
        name, _, value = each.partition("=")
        if not name or not value:
            raise typer.BadParameter(f"{option}: expected a metric and its value, {_EXAMPLE}, not {each!r}")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = value
    return found


def _show(answer: dict[str, Any], explain: bool) -> None:
    console = Console()
    table = Table(box=None)
    for name in ("service", "score", "coverage", "degree", "quality", "why"):
        table.add_column(name, justify="left" if name in ("service", "why") else "right")
    for each in answer["results"]:
        figures = (each[part] for part in ("score", "coverage", "degree", "qos"))
        why = "; ".join(each["why"])
        table.add_row(each["name"], *("" if figure is None else f"{figure:.2f}" for figure in figures), why)
    if answer["results"]:
        console.print(table)
    shown = len(answer["results"])
    console.print(f"{shown} of {answer['total']} services" if answer["total"] else "no service fits")
    for each in answer["hints"]:
        console.print(f"  {each['path']}: {each['message']}", markup=False)
    for each in answer["near"]:
        console.print(f"  near: {each['name']}: {'; '.join(each['why'])}", markup=False)
    if explain:
        for each in answer["results"]:
            console.print(f"{each['name']}:", markup=False)
            console.print_json(json.dumps({part: each[part] for part in ("given", "reasons", "figures")}))


def _show_changes(said: dict[str, Any]) -> None:
    for kind in ("appeared", "changed"):
        for each in said[kind]:
            typer.echo(f"{kind}: {each['name']} {each['score']:.2f} {'; '.join(each['why'])}")
    for name in said["left"]:
        typer.echo(f"left: {name}")
    if said["better"] is not None:
        typer.echo(f"better: {said['better']}")
