"""`tidegate demo`: the example of the SDaaS paper: a city's cameras and vehicles as services on Spark."""

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

from tidegate.cli.data_folder.home import Home
from tidegate.cli.data_folder.permissions import restrict_new_files
from tidegate.cli.demo.subscribers import LATENCY_WINDOW_S, DemoSubscribers
from tidegate.cli.input import durations, options
from tidegate.cli.output.logging import log_to_stderr
from tidegate.cli.processes.gateway_process import running_gateway
from tidegate.cli.processes.listening import HOST, PORT, find_port
from tidegate.cli.processes.service_runner import run_services
from tidegate.cli.processes.signals import stop_on_signal
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem, MissingDependency, TidegateError
from tidegate.logs import EventLog
from tidegate.services import Definitions, load

if TYPE_CHECKING:
    from tidegate.pipelines.runner import Runner
    from tidegate.pipelines.status import Status

_WIDTH = 120
"""Of the output in a pipe, which has no width of its own."""
CITY = Path(__file__).with_name("city.yaml")
_REQUIRED = {
    "pyspark": "spark",
    "pyarrow": "spark",
    "numpy": "arrow",
    "sqlalchemy": "server",
    "structlog": "server",
    "fastapi": "server",
}


def demo(
    for_: Annotated[str, typer.Option("--for", help="How long to run after all services are ready: 10s, 2m.")] = "30s",
    data: Annotated[str | None, typer.Option("--data", help="Keep the log and the registry in this folder.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run the services of a city for a while: they merge, check and mask positions, and count number plates.

    Shows live rates and latencies. Ctrl-C ends it early and prints the results so far.
    """
    for package, extra in _REQUIRED.items():
        if find_spec(package) is None:
            raise MissingDependency(package, extra)
    limit_s = durations.seconds(for_)
    console = Console(stderr=as_json)
    if not console.is_terminal:
        console.width = _WIDTH
    log_to_stderr("warning")
    definitions = load([str(CITY)])
    console.print(f"[bold]Tidegate demo[/]: {len(definitions.streams)} streams, {len(definitions.services)} services")
    for service in definitions.services.values():
        console.print(f"  {service.name:<15} {service.description}", highlight=False)
    console.print("starting Spark ...")
    with _folder(data) as home:
        statuses, subscribers = _run(home, definitions, limit_s, console)
        _report(home, definitions, statuses, subscribers, console, as_json)


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
    home: Home, definitions: Definitions, limit_s: float, console: Console
) -> tuple[dict[str, Status], list[dict[str, Any]]]:
    """Run the services and some subscribers; return the last status of each service, and a summary per subscriber."""
    statuses: dict[str, Status] = {}
    subscribers: DemoSubscribers | None = None
    with home.locked() as lock:
        registry = home.registry()
        try:
            registry.apply(definitions)
            with (
                stop_on_signal() as stop,
                running_gateway(home, lock, EMBEDDED, HOST, _port(), private_webhooks=True) as gateway,
                Live(console=console, refresh_per_second=4, transient=not console.is_terminal) as live,
            ):

                def show(runner: Runner) -> None:
                    nonlocal subscribers
                    statuses.update({status.service: replace(status) for status in runner.statuses()})
                    live.update(_service_table(statuses) if runner.is_ready else "")
                    if subscribers is None and runner.is_ready and gateway.answers("/readyz"):
                        live.console.print(f"console: {gateway.url}/", highlight=False, soft_wrap=True)
                        live.console.print("subscribe in another terminal:", highlight=False)
                        live.console.print(f"  {_curl(gateway.url)}", highlight=False, soft_wrap=True)
                        subscribers = DemoSubscribers(gateway.url)

                try:
                    run_services(home, registry, stop, limit_s, show, gateway=gateway, quiet=True)
                finally:
                    if subscribers is not None:
                        subscribers.stop()
        finally:
            registry.close()
    return statuses, [each.summary() for each in subscribers.subscribers] if subscribers is not None else []


def _port() -> int:
    """Return the default port, or any free one if that is in use."""
    try:
        return find_port(HOST, PORT)
    except EnvironmentProblem:
        return find_port(HOST, 0)


def _curl(url: str) -> str:
    return f"curl -N -H 'Accept: text/event-stream' '{url}/v1/services/gps/events?filter=speed+%3E+60&format=plain'"


def _service_table(statuses: dict[str, Status]) -> Table:
    table = Table(box=None, padding=(0, 2))
    table.add_column("service", no_wrap=True)
    table.add_column("mode", no_wrap=True)
    for title in ("in/s", "out/s", "p50 ms", "p99 ms", "in", "out", "refused"):
        table.add_column(title, justify="right")
    for status in statuses.values():
        table.add_row(
            status.service,
            status.mode,
            f"{status.read_per_s:,.0f}",
            f"{status.written_per_s:,.0f}",
            _milliseconds(status.latency_p50_ms),
            _milliseconds(status.latency_p99_ms),
            f"{status.read:,}",
            f"{status.written:,}",
            f"{status.quarantined:,}",
        )
    return table


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _subscriber_table(subscribers: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2))
    for title in ("subscriber", "service", "filter"):
        table.add_column(title, no_wrap=True)
    for title in ("events", "p50 ms", "p99 ms"):
        table.add_column(title, justify="right")
    for row in subscribers:
        ages = _milliseconds(row.get("p50_ms")), _milliseconds(row.get("p99_ms"))
        table.add_row(row["kind"], row["service"], row["filter"] or "everything", f"{row['events']:,}", *ages)
    return table


def _report(
    home: Home,
    definitions: Definitions,
    statuses: dict[str, Status],
    subscribers: list[dict[str, Any]],
    console: Console,
    as_json: bool,
) -> None:
    """Print the output of each service, from the log, and the summaries of the subscribers.

    Raises a `TidegateError` if a service has failed.
    """
    log = home.log()
    try:
        outputs = {name: _output(log, name) for name in definitions.services}
    finally:
        log.close()
    errors = {name: status.error for name, status in statuses.items() if status.error}
    if as_json:
        services = {name: {**vars(statuses[name]), **outputs[name]} for name in outputs if name in statuses}
        typer.echo(json.dumps({"services": services, "subscribers": subscribers}, indent=2))
    else:
        console.print(_service_table(statuses))
        console.print(f"latency from an event to its subscribers, over the last {LATENCY_WINDOW_S:.0f} s:")
        console.print(_subscriber_table(subscribers))
        console.print("the last event of each service:")
        for name, output in outputs.items():
            console.print(f"  {name:<15} {json.dumps(output['last'])}", highlight=False, soft_wrap=True)
    if errors:
        raise TidegateError("; ".join(f"{name} failed: {error}" for name, error in errors.items()))


def _output(log: EventLog, stream: str) -> dict[str, Any]:
    """Return how many events a stream holds, and the last one."""
    count, last = 0, None
    if stream in log.streams():
        cursor = log.begin(stream)
        while (read := log.read(stream, cursor, 50_000)).records:
            count += len(read.records)
            last = json.loads(read.records[-1])
            cursor = read.cursor
    return {"events": count, "last": last}
