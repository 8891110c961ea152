"""`tidegate demo`: the case of the SDaaS paper, live: a city's cameras and vehicles as services on Spark."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidegate.cli.commands.gateway import HOST, PORT, free_port
from tidegate.cli.commands.up import run, serving, until_told
from tidegate.cli.data_folder.home import Home
from tidegate.cli.data_folder.permissions import restrict_new_files
from tidegate.cli.demo.subscribers import LAST_S, Audience
from tidegate.cli.input import durations, options
from tidegate.cli.output.logging import log_to_stderr
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem, MissingDependency, TidegateError
from tidegate.logs import EventLog
from tidegate.services import Definitions, load

if TYPE_CHECKING:
    from tidegate.pipelines.runner import Runner
    from tidegate.pipelines.status import Status

_WIDE = 120
CITY = Path(__file__).with_name("city.yaml")
_NEEDED = {
    "pyspark": "spark",
    "pyarrow": "spark",
    "numpy": "arrow",
    "sqlalchemy": "server",
    "structlog": "server",
    "fastapi": "server",
}


def demo(
    for_: Annotated[str, typer.Option("--for", help="How long to run once all services do: 10s, 2m.")] = "30s",
    data: Annotated[str | None, typer.Option("--data", help="Keep the log and the registry in this folder.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run a city's services for a while: positions merged, checked and masked, number plates counted.

    Shows live rates and latencies; Ctrl-C ends it early, with what it has seen.
    """
    for package, extra in _NEEDED.items():
        if find_spec(package) is None:
            raise MissingDependency(package, extra)
    limit = durations.seconds(for_)
    console = Console(stderr=as_json)
    if not console.is_terminal:
        console.width = _WIDE
    log_to_stderr("warning")
    definitions = load([str(CITY)])
    console.print(f"[bold]Tidegate demo[/]: {len(definitions.streams)} streams, {len(definitions.services)} services")
    for service in definitions.services.values():
        console.print(f"  {service.name:<15} {service.description}", highlight=False)
    console.print("starting Spark ...")
    with _folder(data) as home:
        seen, audience = _run(home, definitions, limit, console)
        _tell(home, definitions, seen, audience, console, as_json)


@contextmanager
def _folder(data: str | None) -> Iterator[Home]:
    restrict_new_files(shared=False)
    if data is not None:
        yield Home(Path(data))
        return
    folder = Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
    try:
        yield Home(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(
    home: Home, definitions: Definitions, limit: float, console: Console
) -> tuple[dict[str, Status], list[dict[str, Any]]]:
    """Run the services and some subscribers; give the last that was seen of each while it ran."""
    seen: dict[str, Status] = {}
    audience: Audience | None = None
    with home.locked() as lock:
        registry = home.registry()
        try:
            registry.apply(definitions)
            with (
                until_told() as stop,
                serving(home, lock, EMBEDDED, HOST, _port(), private_webhooks=True) as child,
                Live(console=console, refresh_per_second=4, transient=not console.is_terminal) as live,
            ):

                def look(runner: Runner) -> None:
                    nonlocal audience
                    seen.update({status.service: replace(status) for status in runner.statuses()})
                    live.update(_table(seen) if runner.is_ready else "")
                    if audience is None and runner.is_ready and child.answers("/readyz"):
                        live.console.print(f"look at it: {child.url}/", highlight=False, soft_wrap=True)
                        live.console.print("listen too, in another terminal:", highlight=False)
                        live.console.print(f"  {_curl(child.url)}", highlight=False, soft_wrap=True)
                        audience = Audience(child.url)

                try:
                    run(home, registry, stop, limit, look, child=child, quiet=True)
                finally:
                    if audience is not None:
                        audience.stop()
        finally:
            registry.close()
    return seen, [each.told() for each in audience.listeners] if audience is not None else []


def _port() -> int:
    """The usual one, or another where that is taken."""
    try:
        return free_port(HOST, PORT)
    except EnvironmentProblem:
        return free_port(HOST, 0)


def _curl(url: str) -> str:
    return f"curl -N -H 'Accept: text/event-stream' '{url}/v1/services/gps/events?filter=speed+%3E+60&format=plain'"


def _table(seen: dict[str, Status]) -> Table:
    table = Table(box=None, padding=(0, 2))
    table.add_column("service", no_wrap=True)
    table.add_column("mode", no_wrap=True)
    for title in ("in/s", "out/s", "p50 ms", "p99 ms", "in", "out", "refused"):
        table.add_column(title, justify="right")
    for each in seen.values():
        table.add_row(
            each.service,
            each.mode,
            f"{each.read_per_s:,.0f}",
            f"{each.written_per_s:,.0f}",
            _milliseconds(each.latency_p50_ms),
            _milliseconds(each.latency_p99_ms),
            f"{each.read:,}",
            f"{each.written:,}",
            f"{each.quarantined:,}",
        )
    return table


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _heard(audience: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2))
    for title in ("subscriber", "service", "filter"):
        table.add_column(title, no_wrap=True)
    for title in ("events", "p50 ms", "p99 ms"):
        table.add_column(title, justify="right")
    for each in audience:
        ages = _milliseconds(each.get("p50_ms")), _milliseconds(each.get("p99_ms"))
        table.add_row(each["kind"], each["service"], each["filter"] or "everything", f"{each['events']:,}", *ages)
    return table


def _tell(
    home: Home,
    definitions: Definitions,
    seen: dict[str, Status],
    audience: list[dict[str, Any]],
    console: Console,
    as_json: bool,
) -> None:
    """Say what came out, from the log itself, and what subscribers got."""
    log = home.log()
    try:
        found = {name: _output(log, name) for name in definitions.services}
    finally:
        log.close()
    errors = {name: status.error for name, status in seen.items() if status.error}
    if as_json:
        told = {name: {**vars(seen[name]), **found[name]} for name in found if name in seen}
        typer.echo(json.dumps({"services": told, "subscribers": audience}, indent=2))
    else:
        console.print(_table(seen))
        console.print(f"from the event to its subscribers, over the last {LAST_S:.0f} s:")
        console.print(_heard(audience))
        console.print("one event of each:")
        for name, each in found.items():
            console.print(f"  {name:<15} {json.dumps(each['last'])}", highlight=False, soft_wrap=True)
    if errors:
        raise TidegateError("; ".join(f"{name} failed: {error}" for name, error in errors.items()))


def _output(log: EventLog, stream: str) -> dict[str, Any]:
    """How many events a stream holds, and the last of them."""
    count, last = 0, None
    if stream in log.streams():
        cursor = log.begin(stream)
        while (read := log.read(stream, cursor, 50_000)).records:
            count += len(read.records)
            last = json.loads(read.records[-1])
            cursor = read.cursor
    return {"events": count, "last": last}
