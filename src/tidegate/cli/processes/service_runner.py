"""Runs the services of a data folder on Spark, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

import typer

from tidegate.cli.data_folder.home import Home
from tidegate.cli.output.logging import logger
from tidegate.cli.processes.gateway_process import GatewayProcess
from tidegate.errors import error_text
from tidegate.scheduling import batch_scheduling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.logs import EventLog
    from tidegate.pipelines.runner import Runner
    from tidegate.pipelines.streams import Streams

WATCHDOG_MARGIN_S = 1.0
"""How long before the end of a lease the JVM of a paused process ends."""
READY_TIMEOUT_S = 120.0
"""How long services may take to become ready before a time limit starts without them."""


@dataclass(frozen=True)
class StartedSpark:
    """A Spark session and the log that it reads and writes."""

    log: EventLog
    spark: SparkSession
    streams: Streams

    def close(self) -> None:
        """Stop the session and close the log; it may have been stopped before."""
        self.spark.stop()
        self.log.close()


def start_spark(home: Home) -> StartedSpark:
    """Start Spark for the services of a folder. Takes seconds, and runs nothing yet."""
    log = home.log()
    with batch_scheduling():
        spark = home.session("tidegate")
    return StartedSpark(log, spark, home.streams(spark, log))


def watched(home: Home, started: StartedSpark, lease_s: float) -> AbstractContextManager[None]:
    """Let Spark's JVM end before a lease does, if this process is paused while the block runs."""
    from tidegate.pipelines.watchdog import watched_jvm

    return nullcontext() if home.micro_batch_reason else watched_jvm(started.spark, lease_s - WATCHDOG_MARGIN_S)


def warm_up(home: Home, registry: Any, started: StartedSpark) -> None:
    """Compile all services once, and drop the results: the first time takes seconds.

    A process that stands by calls it, so that it can take over sooner. Changes nothing and raises nothing.
    """
    from tidegate.pipelines.compiler import compile_service
    from tidegate.services.check import usable

    resources, key = home.runner_resources(), home.mask_key()
    try:
        found = usable(registry.definitions())
        for name, service in found.definitions.services.items():
            inputs = {each: found.schemas[each] for each in service.inputs}
            compile_service(
                service,
                inputs,
                lambda stream, _, ticks, name=name: started.streams.scan(stream, name, ticks=ticks),  # type: ignore[misc]
                key=key,
                obstacle=started.streams.obstacle,
                resources=resources,
            )
    except Exception as exc:  # the runner reports what is wrong when it starts the services
        logger("tidegate.up").info("services could not be compiled ahead", problem=error_text(exc))


def run_services(
    home: Home,
    registry: Any,
    stop: Event,
    limit_s: float | None = None,
    on_poll: Callable[[Any], None] | None = None,
    gateway: GatewayProcess | None = None,
    quiet: bool = False,
    started: StartedSpark | None = None,
) -> None:
    """Run the services until `stop` is set, or for `limit_s` after all are ready. Blocks the calling thread.

    `on_poll` is called with the runner after each of its polls, on the calling thread. `gateway` is watched, and
    restarted when it dies. `quiet`: print the ready line to standard error. `started` is closed at the end; None: Spark
    is started now.
    """
    from tidegate.pipelines.runtime import PipelineRuntime

    started_at = time.monotonic()
    started = started or start_spark(home)
    runtime = PipelineRuntime(
        registry,
        started.log,
        started.spark,
        started.streams,
        checkpoints=home.checkpoint_files(started.spark),
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
        started.close()


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
