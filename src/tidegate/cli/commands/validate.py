"""`tidegate validate`: check service files, and show the output schema of their services."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from tidegate.cli.data_folder.home import Home
from tidegate.cli.input import options
from tidegate.cli.input.durations import seconds
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import DefinitionError, DefinitionProblem, TidegateError
from tidegate.model import Schema
from tidegate.model.types import notation
from tidegate.services import Definitions, Shape
from tidegate.services.check import examine
from tidegate.services.document import read
from tidegate.services.findings import Findings
from tidegate.services.operators import WORDS
from tidegate.services.redaction import note_secrets
from tidegate.services.trust import note_unlisted


def validate(
    files: options.Files,
    profile: options.Profile = EMBEDDED,
    as_json: options.AsJson = False,
    sources: Annotated[
        bool, typer.Option("--sources", help="Also read the first events of each source, and compare them.")
    ] = False,
    wait: Annotated[str, typer.Option(help="With --sources: how long to wait for each broker.")] = "5s",
) -> None:
    """Check service files together: names, types along every pipeline, constraints. Reports all problems at once.

    The profile must list the functions and connections that the files name. With --sources it
    is a problem if a file, topic or broker can't be read, or if none of its first events fits the schema of the stream.
    """
    home = options.home(options.DATA, profile)
    definitions, problems, broken = read(files)
    shapes, more = examine(definitions, broken)
    findings = Findings(definitions.places)
    note_unlisted(definitions, home.resources(), findings)
    note_secrets(definitions, findings)
    problems += more + findings.problems
    notes = _try_sources(definitions, home, seconds(wait), problems) if sources else []
    if as_json:
        typer.echo(json.dumps(describe(definitions, shapes, problems), indent=2, ensure_ascii=False))
        if problems:
            raise typer.Exit(2)
    elif problems:
        raise DefinitionError(problems)
    else:
        _print(definitions, shapes)
        for note in notes:
            typer.echo(note)


def _try_sources(definitions: Definitions, home: Home, wait_s: float, problems: list[DefinitionProblem]) -> list[str]:
    """Read the first events of all sources. Adds problems, and returns a line about each source that was read."""
    from tidegate.ingress.connections import FeedResources
    from tidegate.ingress.feeds.probe import probe

    resources = FeedResources(home.runner_resources().connections)
    findings, notes = Findings(definitions.places), []
    for name, stream in definitions.streams.items():
        try:
            found = probe(stream, resources, os.environ, wait_s)
        except TidegateError as error:
            findings.report(("streams", name, "source"), str(error))
            continue
        if found is None:
            continue
        if found.events and found.unfit == found.events:
            findings.report(("streams", name, "source"), f"none of {found.events} events can be used: {found.reason}")
        else:
            some = f"; {found.unfit} can't be used, the first: {found.reason}" if found.unfit else ""
            notes.append(f"source of {name}: {found.events or 'no'} events read{some}")
    problems += findings.problems
    return notes


def describe(definitions: Definitions, shapes: dict[str, Shape], problems: list[DefinitionProblem]) -> dict[str, Any]:
    """Return the problems and the output schemas of definitions as a JSON object."""
    return {
        "valid": not problems,
        "problems": [asdict(problem) for problem in problems],
        "streams": {name: _schema(stream.schema) for name, stream in definitions.streams.items()},
        "services": {
            name: {"from": list(definitions.services[name].inputs), **_schema(shape.output)}
            for name, shape in shapes.items()
        },
    }


def _schema(schema: Schema) -> dict[str, Any]:
    return {
        "schema": schema.to_dict(),
        "event_time": schema.event_time,
        "constraints": dict(schema.constraints),
        "terms": {name: dict(terms) for name, terms in schema.terms.items()},
    }


def _print(definitions: Definitions, shapes: dict[str, Shape]) -> None:
    console = Console(soft_wrap=True, highlight=False, emoji=False)
    counts = [
        f"{len(defined)} {word}{'s' * (len(defined) != 1)}"
        for word, defined in (("stream", definitions.streams), ("service", definitions.services))
    ]
    console.print(f"[green]valid[/]  {', '.join(counts)}")
    for name, shape in shapes.items():
        service = definitions.services[name]
        steps = [", ".join(service.inputs), *(WORDS[type(operator)] for operator in service.pipeline)]
        console.print(f"\n[bold]{escape(name)}[/]  {escape(' > '.join(steps))}")
        for field in shape.output.root:
            time = "  (event time)" if field.name == shape.output.event_time else ""
            console.print(f"  {escape(field.name)}: {escape(notation(field))}{time}")
