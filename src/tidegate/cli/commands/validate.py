"""`tidegate validate`: check service files, and show the output schema of their services."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from tidegate.cli.input import options
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import DefinitionError, DefinitionProblem
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
) -> None:
    """Check service files together: names, types along every pipeline, constraints. Reports all problems at once.

    The profile must list the functions and connections that the files name.
    """
    home = options.home(options.DATA, profile)
    definitions, problems, broken = read(files)
    shapes, more = examine(definitions, broken)
    findings = Findings(definitions.places)
    note_unlisted(definitions, home.resources(), findings)
    note_secrets(definitions, findings)
    problems += more + findings.problems
    if as_json:
        typer.echo(json.dumps(describe(definitions, shapes, problems), indent=2, ensure_ascii=False))
        if problems:
            raise typer.Exit(2)
    elif problems:
        raise DefinitionError(problems)
    else:
        _print(definitions, shapes)


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
