"""`tidegate up`: run services in the foreground."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli import durations, local_audit, options
from tidegate.cli.gateway import (
    HOST,
    PORT,
    Broker,
    Child,
    Host,
    Origin,
    Port,
    PrivateWebhooks,
    broker_name,
    checked_origins,
    free_port,
    need_keys,
    server_tls,
)
from tidegate.cli.home import Home, Lock
from tidegate.cli.logging import log_to_stderr
from tidegate.cli.profile import EMBEDDED
from tidegate.cli.tls import TlsCert, TlsClientCa, TlsKey, with_options
from tidegate.cli.turn import turn
from tidegate.scheduling import batch_scheduling
from tidegate.services import load

if TYPE_CHECKING:
    from tidegate.pipelines.runner import Runner
    from tidegate.registry import Registry


def up(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE...]", help="Service files to apply first, YAML.")
    ] = None,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    for_: Annotated[str | None, typer.Option("--for", help="Stop after this long: 30s, 2m.")] = None,
    force: Annotated[bool, typer.Option(help="Apply also what breaks subscribers.")] = False,
    backfill: Annotated[bool, typer.Option(help="Run what is new or changed over the retained history first.")] = False,
    host: Host = HOST,
    port: Port = PORT,
    origin: Origin = None,
    allow_private_webhooks: PrivateWebhooks = False,
    broker: Broker = None,
    semantics: options.Semantics = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    with_gateway: Annotated[bool, typer.Option("--gateway/--no-gateway", help="Serve the API too.")] = True,
) -> None:
    """Run the services of a folder, and of service files that are applied to it first, until Ctrl-C.

    Prints one line with the address, where the console is too, when all of them read their inputs, or are known to
    fail: then the line names those.
    """
    home = options.home(data, profile, lambda tls: with_options(tls, tls_cert, tls_key, tls_client_ca))
    limit = durations.seconds(for_) if for_ is not None else None
    log_to_stderr()
    home.need_connector()
    with home.locked() as lock:
        registry = home.registry()
        try:
            if files:
                changes = registry.apply(options.trusted(load(files), home), force=force, backfill=backfill)
                local_audit.record_changes(home, changes.to_dict())
            with (
                until_told() as stop,
                serving(
                    home,
                    lock,
                    profile,
                    host,
                    port,
                    origins=origin,
                    private_webhooks=allow_private_webhooks,
                    broker=broker_name(broker),
                    semantics=semantics,
                )
                if with_gateway
                else nullcontext() as child,
                _turn(home, registry, stop, child) as is_ours,
            ):
                if is_ours:
                    run(home, registry, stop, limit, child=child)
        finally:
            registry.close()


@contextmanager
def serving(
    home: Home,
    lock: Lock,
    profile: str,
    host: str,
    port: int,
    *,
    origins: list[str] | None = None,
    private_webhooks: bool = False,
    broker: str | None = None,
    semantics: str | None = None,
) -> Iterator[Child]:
    """A gateway beside the services; others may find it by the folder's lock."""
    need_keys(home, host)
    server_tls(home)  # TLS files that can't be used are told of here, before anything starts
    home.semantics(semantics)  # so is what is no space
    child = Child(
        home,
        profile,
        host,
        free_port(host, port),
        lock.announce,
        origins=checked_origins(home, host, origins),
        private_webhooks=private_webhooks,
        broker=broker,
        semantics=semantics,
    )
    child.start()
    try:
        yield child
    finally:
        child.stop()


def _turn(home: Home, registry: Registry, stop: Event, child: Child | None) -> AbstractContextManager[bool]:
    """Whether this is the one that runs the services. A folder's lock settles that, unless a database is shared."""
    if home.profile.database is None:
        return nullcontext(True)
    return turn(registry, stop, child.watch if child is not None else lambda: None)


def run(
    home: Home,
    registry: Any,
    stop: Event,
    limit_s: float | None = None,
    look: Callable[[Any], None] | None = None,
    child: Child | None = None,
    quiet: bool = False,
) -> None:
    """Run everything until told to stop, or for so long after all services are ready.

    `quiet`: what it says goes to standard error.
    """
    from tidegate.pipelines.runtime import Runtime

    begun = time.monotonic()
    log = home.log()
    with batch_scheduling():
        spark = home.session("tidegate")
    runtime = Runtime(
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

    def watch() -> None:
        nonlocal ready_at
        if child is not None:
            child.watch()
        if ready_at is None and _is_ready(runtime.runner, child):
            ready_at = time.monotonic()
            typer.echo(_ready_line(home, runtime.runner, child, ready_at - begun), err=quiet)
        if limit_s is not None and time.monotonic() - (ready_at or begun + 120) >= limit_s:
            stop.set()
        if look is not None:
            look(runtime.runner)

    try:
        runtime.run(stop, watch)
    finally:
        log.close()


def _is_ready(runner: Runner, child: Child | None) -> bool:
    """Whether every service runs, and the gateway knows it; or, where some are known to fail, all others do."""
    if runner.is_ready:
        return child is None or child.answers("/readyz")
    return runner.is_settled and (child is None or child.answers("/livez"))


def _ready_line(home: Home, runner: Runner, child: Child | None, seconds: float) -> str:
    statuses = runner.statuses()
    services = f"{len(statuses)} service{'s' * (len(statuses) != 1)}"
    address = f"{child.url}, " if child is not None else ""
    slow = ", in micro-batches only" if home.obstacle else ""
    failing = runner.failing()
    said = f", failing: {', '.join(failing)} (why is in the stream _status, and above)" if failing else ""
    return f"ready: {address}{services} after {seconds:.1f} s, in {home.folder}{slow}{said}"


@contextmanager
def until_told() -> Iterator[Event]:
    """An event that Ctrl-C or SIGTERM sets; a second Ctrl-C ends at once."""
    stop = Event()

    def tell(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {each: signal.signal(each, tell) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
