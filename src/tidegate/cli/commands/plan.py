"""`tidegate plan`: the mode in which each service would run, and why."""

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
    service: Annotated[list[str] | None, typer.Option(help="Only this service; may be repeated.")] = None,
    spark: Annotated[bool, typer.Option(help="Print Spark's plan, too.")] = True,
    profile: options.Profile = EMBEDDED,
    as_json: options.AsJson = False,
) -> None:
    """Show for each service whether it runs in real-time mode or micro-batches, why, its operators and Spark's plan."""
    home = options.home(options.DATA, profile)
    definitions = options.trusted(load(files), home)
    plans = _plans(definitions, _selected(definitions, service), home)
    if as_json:
        typer.echo(json.dumps(plans, indent=2))
        return
    for service_plan in plans:
        typer.echo(f"{service_plan['service']}: {service_plan['mode']}, because of {service_plan['reason']}")
        steps = [", ".join(service_plan["from"]), *service_plan["operators"], "output"]
        typer.echo(f"  {' > '.join(steps)}")
        typer.echo(f"  recovers from {service_plan['recovers_from']}")
        if spark:
            typer.echo("".join(f"    {line}\n" for line in service_plan["spark"].splitlines()))


def _selected(definitions: Definitions, names: list[str] | None) -> list[str]:
    for name in names or ():
        if name not in definitions.services:
            raise EnvironmentProblem(f"no service {name!r}{did_you_mean(name, definitions.services)}")
    return names or list(definitions.services)


def _plans(definitions: Definitions, names: list[str], home: Home) -> list[dict[str, Any]]:
    from tidegate.pipelines.explain import explain
    from tidegate.pipelines.session import service_session

    check(definitions)
    schemas = stream_schemas(definitions)
    session = service_session("tidegate-plan", threads=2, connector=not home.micro_batch_reason)
    try:
        return [
            explain(
                session,
                service,
                {name: schemas[name] for name in service.inputs},
                obstacle=home.micro_batch_reason,
                resources=home.runner_resources(),
            )
            for service in (definitions.services[name] for name in names)
        ]
    finally:
        session.stop()
