"""`tidegate plan`: how services would run, and why."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tidegate.cli.data_folder.home import Home
from tidegate.cli.input import options
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem, did_you_mean
from tidegate.services import Definitions, check, load, stream_schemas


def plan(
    files: options.Files,
    service: Annotated[list[str] | None, typer.Option(help="Only this service; may be given again.")] = None,
    spark: Annotated[bool, typer.Option(help="Print what Spark makes of it, too.")] = True,
    profile: options.Profile = EMBEDDED,
    as_json: options.AsJson = False,
) -> None:
    """Say for each service whether it runs in real-time or micro-batches, why, its operators and Spark's plan."""
    home = options.home(options.DATA, profile)
    definitions = options.trusted(load(files), home)
    wanted = _wanted(definitions, service)
    plans = _plans(definitions, wanted, home)
    if as_json:
        typer.echo(json.dumps(plans, indent=2))
        return
    for each in plans:
        typer.echo(f"{each['service']}: {each['mode']}, because of {each['reason']}")
        typer.echo(f"  {' > '.join([', '.join(each['from']), *each['operators'], 'output'])}")
        typer.echo(f"  recovers from {each['recovers_from']}")
        if spark:
            typer.echo("".join(f"    {line}\n" for line in each["spark"].splitlines()))


def _wanted(definitions: Definitions, names: list[str] | None) -> list[str]:
    for name in names or ():
        if name not in definitions.services:
            raise EnvironmentProblem(f"no service {name!r}{did_you_mean(name, definitions.services)}")
    return names or list(definitions.services)


def _plans(definitions: Definitions, wanted: list[str], home: Home) -> list[dict[str, Any]]:
    from tidegate.pipelines.explain import explain
    from tidegate.pipelines.session import service_session

    check(definitions)
    known = stream_schemas(definitions)
    session = service_session("tidegate-plan", threads=2, connector=False)  # nothing is read or written
    try:
        return [
            explain(
                session,
                each,
                {name: known[name] for name in each.inputs},
                obstacle=home.micro_batch_reason,
                resources=home.runner_resources(),
            )
            for each in (definitions.services[name] for name in wanted)
        ]
    finally:
        session.stop()
