"""`tidegate top`: a live view of the services of a gateway."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegate.cli.data_folder.home import Home
from tidegate.cli.input import durations, gateway_client, options
from tidegate.errors import ClientError, EnvironmentProblem

if TYPE_CHECKING:
    from tidegate.cli.output.samples import GatewaySampler, Sample, ServiceSample

_KINDS = {"sse": "sse", "websocket": "ws", "webhook": "hook", "other": "other"}
_COLOURS = {"running": "green", "starting": "yellow", "restarting": "red", "stopped": "red"}


def top(
    context: typer.Context,
    data: options.Data = options.DATA,
    url: options.Url = None,
    key: options.Key = None,
    every: Annotated[str, typer.Option(help="The time between two samples: 500ms, 2s.")] = "1s",
    once: Annotated[bool, typer.Option("--once", help="Print one sample and exit.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Watch the services of a gateway, or of the one that runs in a folder: rates, latencies, lag, subscribers.

    Ctrl-C ends it. With --json it prints one JSON object per sample, one per line.
    """
    from tidegate.cli.output.samples import GatewaySampler

    interval_s = durations.seconds(every)
    gateway_url = options.url_rather_than_data(context, url)
    address, certificate = (gateway_url, None) if gateway_url is not None else _gateway_of(Home(Path(data)))
    sampler = GatewaySampler(address, key, verify=gateway_client.verification(address, certificate))
    try:
        if as_json:
            _print(sampler, interval_s, once)
        elif once:
            Console(soft_wrap=True, width=options.WIDTH).print(_table(sampler.url, sampler.sample()))
        else:
            _watch(sampler, interval_s)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        sampler.close()


def _gateway_of(home: Home) -> tuple[str, Path | None]:
    """Return the URL of the gateway that runs in a folder, and the file with its certificate."""
    running = home.running()
    if running is None or running.url is None:
        raise EnvironmentProblem(
            f"no gateway runs in {str(home.folder)!r}: start one with `tidegate up`, or name its folder with "
            "--data, or its address with --url"
        )
    return running.url, running.certificate


def _print(sampler: GatewaySampler, interval_s: float, once: bool) -> None:
    sample = None
    while True:
        sample = sampler.sample(sample)
        typer.echo(json.dumps({"url": sampler.url, "services": [asdict(row) for row in sample.rows]}))
        if once:
            return
        time.sleep(interval_s)


def _watch(sampler: GatewaySampler, interval_s: float) -> None:
    sample = sampler.sample()  # raises if the gateway can't be reached at the start
    with Live(_table(sampler.url, sample), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            try:
                sample = sampler.sample(sample)
                live.update(_table(sampler.url, sample), refresh=True)
            except ClientError as problem:  # shown until the gateway answers again
                live.update(Group(_table(sampler.url, sample), Text(str(problem), "red")), refresh=True)


def _table(url: str, sample: Sample) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("service", "state", "mode"):
        table.add_column(title, no_wrap=True)
    for title in ("in/s", "out/s", "engine p50/p99 ms", "after reading", "dispatch p50/p99 ms", "lag", "subscribers"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("quarantined", "late", "filtered", "held"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in sample.rows:
        table.add_row(
            row.service,
            Text(row.state, _COLOURS.get(row.state, "dim")),
            row.mode,
            f"{row.in_per_s:,.0f}",
            f"{row.out_per_s:,.0f}",
            _pair(row.engine_p50_ms, row.engine_p99_ms),
            _pair(row.processing_p50_ms, row.processing_p99_ms),
            _pair(row.dispatch_p50_ms, row.dispatch_p99_ms),
            size(row.lag_bytes),
            _subscribers(row),
            *(_count(each) for each in (row.quarantined, row.late, row.filtered, row.held)),
        )
    running = sum(row.state == "running" for row in sample.rows)
    own = sum(row.origin is None for row in sample.rows)
    head = Text(f"{url}  {running} of {own} services run", "bold")
    errors = [Text(f"{row.service}: {row.error}", "red") for row in sample.rows if row.error]
    return Group(head, table, *errors)


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _pair(p50: float | None, p99: float | None) -> str:
    return "" if p50 is None or p99 is None else f"{p50:,.1f} / {p99:,.1f}"


def _subscribers(row: ServiceSample) -> str:
    counts = [f"{count:,} {_KINDS.get(kind, kind)}" for kind, count in sorted(row.subscribers.items())]
    return ", ".join([*counts, *([f"{row.behind:,} behind"] if row.behind else [])])


def size(count: int) -> str:
    """Return a number of bytes with a unit.

    >>> size(0), size(999), size(1_500), size(2_500_000)
    ('0', '999 B', '1.5 kB', '2.5 MB')
    """
    if count < 1_000:
        return f"{count} B" if count else "0"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1_000
        if value < 1_000:
            return f"{value:.1f} {unit}"
    return f"{value / 1_000:.1f} TB"
