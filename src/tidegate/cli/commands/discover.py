"""`tidegate discover`: find services by attributes, properties, themes and quality."""

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
        list[str] | None, typer.Argument(help="Required attributes: speed, or speed:float64 with a type.")
    ] = None,
    filter_: Annotated[
        str | None,
        typer.Option("--filter", help="A filter over the properties of services: \"price < 5 AND region = 'north'\"."),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="Values of the filter's %0, %1, ...; may be repeated.")
    ] = None,
    category: Annotated[list[str] | None, typer.Option(help="A category to accept; may be repeated.")] = None,
    theme: Annotated[list[str] | None, typer.Option(help="A theme to accept; may be repeated.")] = None,
    weight: Annotated[
        list[str] | None, typer.Option(help="The weight of a metric, such as latency=2; may be repeated.")
    ] = None,
    at_least: Annotated[
        list[str] | None,
        typer.Option(help="The minimum of a metric: latency=fast, availability=0.99; may be repeated."),
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="The minimum share of the required attributes, 0 to 1.")
    ] = None,
    names: Annotated[
        Literal["exact", "edits", "meaning"],
        typer.Option(
            help="How attribute names are compared: exact; edits: similar spelling, too; meaning: similar meaning, too."
        ),
    ] = "exact",
    limit: Annotated[int, typer.Option(help="The maximum number of results.")] = 20,
    explain: Annotated[bool, typer.Option(help="Print the reasons.")] = False,
    watch: Annotated[
        bool, typer.Option(help="Keep running, and print services that appear, change, leave or become the best.")
    ] = False,
    url: options.Gateway = options.GATEWAY,
    key: options.Key = None,
    as_json: options.AsJson = False,
) -> None:
    """Find services and rank them by attributes, properties, themes and quality."""
    fields: dict[str, Any] = {
        "attributes": [_attribute(text) for text in attribute or ()],
        "filter": filter_,
        "params": param,
        "categories": category,
        "themes": theme,
        "coverage": coverage,
        "qos": _quality(weight, at_least),
    }
    request = {name: value for name, value in fields.items() if value}
    request |= {"names": names, "limit": limit, "explain": explain}
    with gateway_client.connect(url, key) as client:
        if not watch:
            answer = client.discover(**request)
            typer.echo(json.dumps(answer, indent=2)) if as_json else _show(answer, explain)
            return
        for message in client.watch(**request):
            typer.echo(json.dumps(message)) if as_json else _show_message(message, explain)


def _show_message(message: dict[str, Any], explain: bool) -> None:
    if message["kind"] == "answer":
        _show(message, explain)
    else:
        _show_changes(message)


def _quality(weights: list[str] | None, limits: list[str] | None) -> dict[str, dict[str, float | str]]:
    quality = {"weights": _metrics(weights, "--weight"), "limits": _metrics(limits, "--at-least")}
    return {kind: metrics for kind, metrics in quality.items() if metrics}


def _attribute(text: str) -> str | dict[str, str]:
    name, _, kind = text.partition(":")
    return {"name": name, "type": kind} if kind else name


def _metrics(texts: list[str] | None, option: str) -> dict[str, float | str]:
    metrics: dict[str, float | str] = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not name or not value:
            raise typer.BadParameter(f"{option}: expected a metric and its value, {_EXAMPLE}, not {text!r}")
        try:
            metrics[name] = float(value)
        except ValueError:
            metrics[name] = value
    return metrics


def _show(answer: dict[str, Any], explain: bool) -> None:
    console = Console()
    table = Table(box=None)
    for name in ("service", "score", "coverage", "degree", "quality", "why"):
        table.add_column(name, justify="left" if name in ("service", "why") else "right")
    for result in answer["results"]:
        scores = (result[part] for part in ("score", "coverage", "degree", "qos"))
        why = "; ".join(result["why"])
        table.add_row(result["name"], *("" if score is None else f"{score:.2f}" for score in scores), why)
    if answer["results"]:
        console.print(table)
    shown = len(answer["results"])
    console.print(f"{shown} of {answer['total']} services" if answer["total"] else "no service fits")
    for hint in answer["hints"]:
        console.print(f"  {hint['path']}: {hint['message']}", markup=False)
    for near in answer["near"]:
        console.print(f"  near: {near['name']}: {'; '.join(near['why'])}", markup=False)
    if explain:
        for result in answer["results"]:
            console.print(f"{result['name']}:", markup=False)
            console.print_json(json.dumps({part: result[part] for part in ("given", "reasons", "figures")}))


def _show_changes(changes: dict[str, Any]) -> None:
    for kind in ("appeared", "changed"):
        for result in changes[kind]:
            typer.echo(f"{kind}: {result['name']} {result['score']:.2f} {'; '.join(result['why'])}")
    for name in changes["left"]:
        typer.echo(f"left: {name}")
    if changes["better"] is not None:
        typer.echo(f"better: {changes['better']}")
