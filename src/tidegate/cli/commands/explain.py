"""`tidegate explain`: how a filter is evaluated, and why an event matches it or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidegate.cli.data_folder.home import Home
from tidegate.cli.input import options
from tidegate.cli.input.files import read_event, read_schema
from tidegate.filters import Filter
from tidegate.filters import explain as explaining
from tidegate.filters.meaning import Meaning


def explain(
    text: Annotated[str, typer.Argument(metavar="FILTER", help="The filter, in quotes.")],
    schema: Annotated[str | None, typer.Option(help="A schema file, JSON or YAML.")] = None,
    event: Annotated[str | None, typer.Option(help="An event: a JSON file, or - for standard input.")] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="A value of the filter's %0, %1, ...; may be repeated.")
    ] = None,
    semantics: options.Semantics = None,
    theme: Annotated[
        list[str] | None, typer.Option(help="A theme of the event's service, for predicates with ~; may be repeated.")
    ] = None,
    like_star: Annotated[bool, typer.Option(help="Treat * and ? as wildcards of LIKE, too.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the parse tree, normal form, value sets and fuzzy cuts of a filter; with an event, what decided."""
    compiled = Filter(text, read_schema(schema) if schema else None, param or [], like_star=like_star)
    sample = read_event(event) if event else None
    if compiled.tree.is_semantic:
        from tidegate.semantics.looking import described as by_meaning

        word_semantics = Home(Path(options.DATA)).semantics(semantics)
        compiled = compiled.with_semantics(Meaning.of(word_semantics, themes=theme or ()))
        described = by_meaning(compiled, sample)
    else:
        described = explaining.describe(compiled, sample)
    if as_json:
        typer.echo(json.dumps(described, indent=2, default=str, ensure_ascii=False))
    else:
        _print(described)


def _print(described: dict[str, Any]) -> None:
    console = Console(soft_wrap=True, highlight=False, emoji=False)
    console.print(f"[bold]filter[/]  {escape(described['canonical'] or '(every event)')}")
    for warning in described["warnings"]:
        console.print(f"[yellow]warning[/] {escape(warning)}")
    for constraint in described["constraints"]:
        console.print(f"[bold]constraint[/]  {escape(constraint)}")
    console.print("\n[bold]parse[/]")
    for line in described["tree"]:
        console.print(f"  {escape(line)}")
    _print_normal(console, described["normal_form"])
    _print_fuzzy(console, described["fuzzy"])
    if "event" in described:
        _print_event(console, described["event"])


def _print_normal(console: Console, normal: dict[str, Any]) -> None:
    count = len(normal["alternatives"])
    summary = "matches every event" if normal["everything"] else "matches nothing" if normal["nothing"] else ""
    console.print(f"\n[bold]normal form[/]  {summary or f'{count} alternative' + 's' * (count != 1)}")
    for n, alternative in enumerate(normal["alternatives"], 1):
        console.print(f"  {n}. {escape(alternative['filter'])}")
        for path, value_set in alternative["sets"].items():
            console.print(f"       {escape(path)} in {escape(value_set)}")
        for term in alternative["verify"]:
            console.print(f"       verify {escape(term)}")


def _print_fuzzy(console: Console, groups: list[dict[str, Any]]) -> None:
    for group in groups:
        console.print(f"\n[bold]fuzzy[/]  {escape(group['group'])}, degree at least {group['degree_at_least']:g}")
        for item in group["items"]:
            cuts = f": outer {item['outer']}, inner {item['inner']}" if "outer" in item else ""
            console.print(f"  {escape(item['item'])} must reach {item['must_reach']:.3g}{escape(cuts)}")


def _print_event(console: Console, event: dict[str, Any]) -> None:
    outcome = "[green]matches[/]" if event["matches"] else "[red]does not match[/]"
    console.print(f"\n[bold]event[/]  {outcome} ({event['truth']}, degree {event['degree']:g})")
    for violation in event["violations"]:
        console.print(f"[yellow]warning[/] the event does not fit the schema: {escape(violation)}")
    table = Table(box=None, padding=(0, 2))
    for title in ("predicate", "is", "because", "degree", ""):
        table.add_column(title, overflow="fold")
    for predicate in event["predicates"]:
        because = ", ".join(f"{path} = {value!r}" for path, value in predicate["values"].items())
        degree = "" if predicate["degree"] is None else f"{predicate['degree']:.4g}"
        decided = "[bold]decided[/]" if predicate["decided"] else ""
        table.add_row(escape(predicate["predicate"]), predicate["truth"], escape(because), degree, decided)
    console.print(table)
    for n, mapping in enumerate(event.get("mappings", ()), 1):
        console.print(
            f"\n[bold]mapping {n}[/]  degree {mapping['degree']:.3g}, probability {mapping['probability']:.3g}"
        )
        for pair in mapping["pairs"]:
            meant = f"{pair['attribute']} = {pair['value']!r}"
            console.print(f"  {escape(pair['predicate'])} means {escape(meant)}  {pair['similarity']:.3g}")
            for side in ("by_name", "by_value"):
                if side in pair:
                    titles = ", ".join(concept["concept"] for concept in pair[side]["concepts"])
                    by = f": {titles}" if titles else ""
                    console.print(f"    {side.replace('_', ' ')} {pair[side]['relatedness']:.3g}{escape(by)}")
