"""`tidegate check` finds lost and damaged records; `tidegate repair` makes lost outputs again."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.data_folder import local_audit
from tidegate.cli.data_folder.home import Home
from tidegate.cli.input import options
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem, ServiceError, did_you_mean
from tidegate.logs.check import LogFinding, check_log
from tidegate.logs.factory import FileLogSettings
from tidegate.services import stream_schemas
from tidegate.services.check import ordered
from tidegate.services.definitions import Definitions, Service
from tidegate.services.findings import Findings

if TYPE_CHECKING:
    from tidegate.pipelines.streams import Streams


def check(
    data: options.Data = options.DATA, profile: options.Profile = EMBEDDED, as_json: options.AsJson = False
) -> None:
    """Read all records of a log of files, and list those that are lost or damaged; then the exit code is 1."""
    home, definitions = _opened(data, profile)
    findings = list(check_log(home.log_folder))
    owners = _owners(definitions)
    if as_json:
        typer.echo(
            json.dumps([{**asdict(finding), "remedy": _remedy(finding, owners)} for finding in findings], indent=2)
        )
    for finding in () if as_json else findings:
        typer.echo(
            f"{finding.kind:<8} {finding.place}: {finding.end - finding.begin:,} bytes; {_remedy(finding, owners)}"
        )
    if findings:
        raise typer.Exit(1)
    if not as_json:
        typer.echo("nothing is lost or damaged")


def repair(
    service: Annotated[
        list[str] | None, typer.Argument(help="Only these services; default: all.", show_default=False)
    ] = None,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
) -> None:
    """Make lost segments of outputs again from their inputs, on Spark; `tidegate up` must not run.

    It can't make again what a service with state has written, nor raw streams. The exit code is 1 if something stays
    lost.
    """
    home, definitions = _opened(data, profile)
    for name in service or ():
        if name not in definitions.services:
            raise EnvironmentProblem(f"no service {name!r}{did_you_mean(name, definitions.services)}")
    with home.locked():
        lost = [finding for finding in check_log(home.log_folder) if finding.kind == "lost"]
        order = {name: n for n, name in enumerate(_owners(definitions))}  # inputs first: others are made of them
        own = [finding for finding in lost if finding.stream in order and _owner(finding, definitions, service)]
        if not own:
            typer.echo("no output has lost a segment")
            return
        log = home.log()
        try:
            spark = home.session("tidegate-repair")
            try:
                streams = home.streams(spark, log)
                own.sort(key=lambda finding: (order[finding.stream], finding.begin))
                results = [_repair(home, definitions, streams, finding) for finding in own]
            finally:
                spark.stop()
        finally:
            log.close()
    local_audit.record(home, "repair", None, f"{sum(results)} of {len(results)}")
    if not all(results):
        raise typer.Exit(1)


def _opened(data: str, profile: str) -> tuple[Home, Definitions]:
    home = options.home(data, profile)
    if not isinstance(home.profile.log, FileLogSettings):
        raise EnvironmentProblem("check and repair read segment files; a log in Kafka is checked by Kafka itself")
    with closing(home.existing_registry()) as registry:
        return home, registry.definitions()


def _repair(home: Home, definitions: Definitions, streams: Streams, lost: LogFinding) -> bool:
    """Repair one lost range, and say what happened. Returns False if it stays lost."""
    from tidegate.pipelines.repair import repair as make_again

    service = _owners(definitions)[lost.stream]
    schemas = stream_schemas(definitions)
    inputs = {name: schemas[name] for name in service.inputs}
    key, resources = home.mask_key(), home.runner_resources()
    try:
        count = make_again(lost, service, inputs, streams, home.log_folder, key=key, resources=resources)
    except ServiceError as problem:
        typer.echo(f"{lost.place} stays lost: {problem}", err=True)
        return False
    typer.echo(f"{lost.place}: {count:,} events made again")
    return True


def _owners(definitions: Definitions) -> dict[str, Service]:
    """Return the service of each output and quarantine, each after those that it reads."""
    services = ordered(definitions.services, Findings())
    return {name: service for service in services for name in (service.name, service.quarantine)}


def _owner(finding: LogFinding, definitions: Definitions, names: list[str] | None) -> bool:
    return not names or _owners(definitions)[finding.stream].name in names


def _remedy(finding: LogFinding, owners: dict[str, Service]) -> str:
    owner = owners.get(finding.stream)
    if owner is None:
        return "readers get a gap; restore a backup, or let producers send the events again"
    if finding.kind == "lost" and any(finding.partition.startswith(f"{name}.") for name in owner.inputs):
        return f"readers get a gap until `tidegate repair {owner.name}` has made it again"
    return f"apply {owner.name} with --backfill to make its output again"
