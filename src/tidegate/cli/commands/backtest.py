"""`tidegate backtest`: the past events that a filter would have matched."""

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
from tidegate.services import stream_schemas

if TYPE_CHECKING:
    from tidegate.pipelines.backtest import Backtest


def backtest(
    service: Annotated[str, typer.Argument(help="The service, or a raw stream.")],
    filter_: Annotated[str, typer.Argument(metavar="FILTER", help="The filter, as a subscriber would write it.")],
    since: Annotated[str | None, typer.Option(help="How far back: 10m, 24h; default: all retained events.")] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="A value of the filter's %0, %1, ...; may be repeated.")
    ] = None,
    sample: Annotated[int, typer.Option(min=0, help="How many of the newest matches to print.")] = 5,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    semantics: options.Semantics = None,
    as_json: options.AsJson = False,
) -> None:
    """Count the past events of a service that a filter would have matched, on Spark, and print some of them."""
    home = options.home(data, profile)
    registry = home.existing_registry()
    try:
        definitions = registry.definitions()
    finally:
        registry.close()
    schemas = stream_schemas(definitions)
    if service not in schemas:
        raise EnvironmentProblem(f"no service or stream {service!r}; expected one of {', '.join(sorted(schemas))}")
    compiled = Filter(filter_, schemas[service], param or None)
    if compiled.tree.is_semantic:
        themes = (definitions.services.get(service) or definitions.streams[service]).themes
        compiled = compiled.with_semantics(Meaning.of(home.semantics(semantics), themes=themes))
        compiled.require_evaluable()
    start_us = None if since is None else time.time_ns() // 1_000 - round(durations.seconds(since) * 1e6)

    from tidegate.pipelines import backtest as on_spark

    log = home.log()
    try:
        log.end(service)  # raises before Spark starts if the stream does not exist, or Kafka does not answer
        spark = home.session("tidegate-backtest")
        try:
            result = on_spark.backtest(home.streams(spark, log), service, compiled, start_us, sample)
        finally:
            spark.stop()
    finally:
        log.close()
    if as_json:
        typer.echo(json.dumps({"service": service, "filter": str(compiled), **asdict(result)}, indent=2))
    else:
        typer.echo(summary(service, result))


def summary(service: str, result: Backtest) -> str:
    """Return the result of a backtest as lines of text."""
    share = f" ({result.matched / result.events:.2%})" if result.events else ""
    lines = [f"{result.matched:,} of {result.events:,} events of {service} match{share}"]
    if result.first is not None:
        lines.append(f"from {result.first} to {result.last}")
    return "\n".join([*lines, *map(json.dumps, result.sample)])
