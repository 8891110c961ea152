"""`tidegate plan`: the mode in which each service would run, and why."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tidegate.cli.data_folder.home import Home
from tidegate.cli.input import options
from tidegate.cli.output.changes import change_lines
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import BreakingChange, EnvironmentProblem, did_you_mean
from tidegate.services import Definitions, check, load, stream_schemas


def plan(
    files: options.Files,
    service: Annotated[list[str] | None, typer.Option(help="Only this service; may be repeated.")] = None,
    spark: Annotated[bool, typer.Option(help="Start Spark, and print its plan, too.")] = True,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show only what apply would change, and what needs --force.")
    ] = False,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    as_json: options.AsJson = False,
) -> None:
    """Show for each service whether it runs in real-time mode or micro-batches, why, its operators and Spark's plan.

    With --no-spark Spark is not started. With --diff nothing is planned: it compares the files with the definitions of
    a folder, and says what becomes of the state of each changed service.
    """
    home = options.home(data, profile)
    definitions = options.trusted(load(files), home)
    if diff:
        _show_diff(definitions, home, as_json=as_json)
        return
    plans = _plans(definitions, _selected(definitions, service), home, spark=spark)
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


def _show_diff(definitions: Definitions, home: Home, *, as_json: bool) -> None:
    registry = home.registry()
    try:
        refused = None
        try:
            registry.apply(definitions, dry_run=True)
        except BreakingChange as error:
            refused = str(error)
        changes = registry.apply(definitions, dry_run=True, force=True).to_dict()
    finally:
        registry.close()
    if as_json:
        typer.echo(json.dumps({**changes, "needs_force": refused}, indent=2))
        return
    for line in change_lines(changes):
        typer.echo(line)
    if refused is not None:
        typer.echo(refused)


def _selected(definitions: Definitions, names: list[str] | None) -> list[str]:
    for name in names or ():
        if name not in definitions.services:
            raise EnvironmentProblem(f"no service {name!r}{did_you_mean(name, definitions.services)}")
    return names or list(definitions.services)


def _plans(definitions: Definitions, names: list[str], home: Home, *, spark: bool) -> list[dict[str, Any]]:
    from tidegate.pipelines.explain import explain, outline
    from tidegate.pipelines.session import service_session

    check(definitions)
    schemas = stream_schemas(definitions)
    services = [definitions.services[name] for name in names]
    inputs = [{name: schemas[name] for name in service.inputs} for service in services]
    obstacle = home.micro_batch_reason
    if not spark:
        return [outline(service, each, obstacle=obstacle) for service, each in zip(services, inputs, strict=True)]
    session = service_session("tidegate-plan", threads=2, connector=not obstacle)
    try:
        return [
            explain(session, service, each, obstacle=obstacle, resources=home.runner_resources())
            for service, each in zip(services, inputs, strict=True)
        ]
    finally:
        session.stop()
