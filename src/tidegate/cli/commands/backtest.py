"""`tidegate backtest`: what a filter would have matched, before anyone subscribes."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.input import durations, options
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.logs import SegmentLog
from tidegate.services import stream_schemas

if TYPE_CHECKING:
    from tidegate.pipelines.backtest import Backtest


def backtest(
    service: Annotated[str, typer.Argument(help="The service, or a raw stream.")],
    filter_: Annotated[str, typer.Argument(metavar="FILTER", help="The filter, as a subscriber would write it.")],
    since: Annotated[str | None, typer.Option(help="How far back: 10m, 24h. Else all that is retained.")] = None,
    param: Annotated[list[str] | None, typer.Option(help="A parameter; may be given again.")] = None,
    sample: Annotated[int, typer.Option(min=0, help="How many of the newest matches to show.")] = 5,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    semantics: options.Semantics = None,
    as_json: options.AsJson = False,
) -> None:
    """Count the past events of a service that a filter would have matched, on Spark, and show some."""
    home = options.home(data, profile)
    registry = home.existing_registry()
    try:
        definitions = registry.definitions()
    finally:
        registry.close()
    known = stream_schemas(definitions)
    if service not in known:
        raise EnvironmentProblem(f"no service or stream {service!r}; expected one of {', '.join(sorted(known))}")
    wanted = Filter(filter_, known[service], param or None)
    if wanted.tree.is_semantic:
        themes = (definitions.services.get(service) or definitions.streams[service]).themes
        wanted = wanted.with_semantics(Meaning.of(home.semantics(semantics), themes=themes))
        wanted.require_evaluable()
    moment = None if since is None else time.time_ns() // 1_000 - round(durations.seconds(since) * 1e6)

    from tidegate.pipelines import backtest as on_spark

    log = home.log()
    if not isinstance(log, SegmentLog):
        log.close()
        raise EnvironmentProblem("backtest reads segment files; a log in Kafka has none (profile log: files)")
    spark = home.session("tidegate-backtest")
    try:
        found = on_spark.backtest(spark, log, home.log_folder, service, wanted, moment, sample)
    finally:
        spark.stop()
        log.close()
    if as_json:
        typer.echo(json.dumps({"service": service, "filter": str(wanted), **asdict(found)}, indent=2))
    else:
        typer.echo(told(service, found))


def told(service: str, found: Backtest) -> str:
    """What was found, for people."""
    share = f" ({found.matched / found.events:.2%})" if found.events else ""
    lines = [f"{found.matched:,} of {found.events:,} events of {service} match{share}"]
    if found.first is not None:
        lines.append(f"from {found.first} to {found.last}")
    return "\n".join([*lines, *map(json.dumps, found.sample)])
