"""`tidegate top`: how a running Tidegate does, live."""

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
    every: Annotated[str, typer.Option(help="Between two looks: 500ms, 2s.")] = "1s",
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Watch the services of a gateway, or of the one that runs in a folder: rates, latencies, lag, subscribers.

    Ctrl-C ends it. With --json one object a look, a line each.
    """
    from tidegate.cli.output.samples import GatewaySampler

    pause_s = durations.seconds(every)
    asked = options.url_rather_than_data(context, url)
    address, certificate = (asked, None) if asked is not None else _gateway_of(Home(Path(data)))
    sampler = GatewaySampler(address, key, verify=gateway_client.verification(address, certificate))
    try:
        if as_json:
            _print(sampler, pause_s, once)
        elif once:
            Console(soft_wrap=True, width=options.WIDTH).print(_shown(sampler.url, sampler.sample()))
        else:
            _watch(sampler, pause_s)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        sampler.close()


def _gateway_of(home: Home) -> tuple[str, Path | None]:
    """The URL of the gateway that runs in a folder, and the file with its certificate."""
    running = home.running()
    if running is None or running.url is None:
        raise EnvironmentProblem(
            f"no gateway runs in {str(home.folder)!r}: start one with `tidegate up`, or name its folder with "
            "--data, or its address with --url"
        )
    return running.url, running.certificate


def _print(sampler: GatewaySampler, pause_s: float, once: bool) -> None:
    sample = None
    while True:
        sample = sampler.sample(sample)
        typer.echo(json.dumps({"url": sampler.url, "services": [asdict(each) for each in sample.rows]}))
        if once:
            return
        time.sleep(pause_s)


def _watch(sampler: GatewaySampler, pause_s: float) -> None:
    sample = sampler.sample()  # a gateway that was never there is an error
    with Live(_shown(sampler.url, sample), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(pause_s)
            try:
                sample = sampler.sample(sample)
                live.update(_shown(sampler.url, sample), refresh=True)
            except ClientError as problem:  # it may come back
                live.update(Group(_shown(sampler.url, sample), Text(str(problem), "red")), refresh=True)


def _shown(url: str, sample: Sample) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("service", "state", "mode"):
        table.add_column(title, no_wrap=True)
    for title in ("in/s", "out/s", "engine p50/p99 ms", "dispatch p50/p99 ms", "lag", "subscribers", "quarantined"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in sample.rows:
        table.add_row(
            row.service,
            Text(row.state, _COLOURS.get(row.state, "dim")),
            row.mode,
            f"{row.in_per_s:,.0f}",
            f"{row.out_per_s:,.0f}",
            _pair(row.engine_p50_ms, row.engine_p99_ms),
            _pair(row.dispatch_p50_ms, row.dispatch_p99_ms),
            size(row.lag_bytes),
            _subscribers(row),
            f"{row.quarantined:,}",
        )
    running = sum(row.state == "running" for row in sample.rows)
    own = sum(row.origin is None for row in sample.rows)
    head = Text(f"{url}  {running} of {own} services run", "bold")
    errors = [Text(f"{row.service}: {row.error}", "red") for row in sample.rows if row.error]
    return Group(head, table, *errors)


def _pair(p50: float | None, p99: float | None) -> str:
    return "" if p50 is None or p99 is None else f"{p50:,.1f} / {p99:,.1f}"


def _subscribers(row: ServiceSample) -> str:
    said = [f"{count:,} {_KINDS.get(kind, kind)}" for kind, count in sorted(row.subscribers.items())]
    return ", ".join([*said, *([f"{row.behind:,} behind"] if row.behind else [])])


def size(count: int) -> str:
    """Bytes for people.

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
