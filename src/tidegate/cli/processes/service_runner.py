"""Runs the services of a data folder on Spark, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Any

import typer

from tidegate.cli.data_folder.home import Home
from tidegate.cli.processes.gateway_process import GatewayProcess
from tidegate.scheduling import batch_scheduling

if TYPE_CHECKING:
    from tidegate.pipelines.runner import Runner

READY_TIMEOUT_S = 120.0
"""How long services may take to become ready before a time limit starts without them."""


def run_services(
    home: Home,
    registry: Any,
    stop: Event,
    limit_s: float | None = None,
    on_poll: Callable[[Any], None] | None = None,
    gateway: GatewayProcess | None = None,
    quiet: bool = False,
) -> None:
    """Run the services until `stop` is set, or for `limit_s` after all are ready. Blocks the calling thread.

    `on_poll` is called with the runner after each of its polls, on the calling thread. `gateway` is watched, and
    restarted when it dies. `quiet`: print the ready line to standard error.
    """
    from tidegate.pipelines.runtime import PipelineRuntime

    started_at = time.monotonic()
    log = home.log()
    with batch_scheduling():
        spark = home.session("tidegate")
    runtime = PipelineRuntime(
        registry,
        log,
        spark,
        home.streams(spark, log),
        checkpoints=home.checkpoints,
        positions=home.positions,
        key=home.mask_key(),
        resources=home.runner_resources(),
    )
    ready_at: float | None = None

    def poll() -> None:
        nonlocal ready_at
        if gateway is not None:
            gateway.watch()
        if ready_at is None and _is_ready(runtime.runner, gateway):
            ready_at = time.monotonic()
            typer.echo(_ready_line(home, runtime.runner, gateway, ready_at - started_at), err=quiet)
        if limit_s is not None and time.monotonic() - (ready_at or started_at + READY_TIMEOUT_S) >= limit_s:
            stop.set()
        if on_poll is not None:
            on_poll(runtime.runner)

    try:
        runtime.run(stop, poll)
    finally:
        log.close()


def _is_ready(runner: Runner, gateway: GatewayProcess | None) -> bool:
    """Return True if every service runs and the gateway is ready, or if services fail and all others run."""
    if runner.is_ready:
        return gateway is None or gateway.answers("/readyz")
    return runner.is_settled and (gateway is None or gateway.answers("/livez"))


def _ready_line(home: Home, runner: Runner, gateway: GatewayProcess | None, seconds: float) -> str:
    statuses = runner.statuses()
    services = f"{len(statuses)} service{'s' * (len(statuses) != 1)}"
    address = f"{gateway.url}, " if gateway is not None else ""
    mode = ", in micro-batches only" if home.micro_batch_reason else ""
    failing = runner.failing()
    failures = f", failing: {', '.join(failing)} (why is in the stream _status, and above)" if failing else ""
    return f"ready: {address}{services} after {seconds:.1f} s, in {home.folder}{mode}{failures}"
