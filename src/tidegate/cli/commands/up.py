"""`tidegate up`: run services in the foreground."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.data_folder import local_audit
from tidegate.cli.data_folder.home import Home
from tidegate.cli.data_folder.lock import FolderLock
from tidegate.cli.input import durations, gateway_options, options
from tidegate.cli.output.logging import log_to_stderr
from tidegate.cli.processes.gateway_process import GatewayProcess, running_gateway
from tidegate.cli.processes.gateway_server import broker_name
from tidegate.cli.processes.listening import HOST, PORT
from tidegate.cli.processes.runner_lease import LEASE_S, runner_lease
from tidegate.cli.processes.service_runner import StartedSpark, run_services, start_spark, warm_up, watched
from tidegate.cli.processes.signals import stop_on_signal
from tidegate.cli.profile import EMBEDDED
from tidegate.cli.profile.tls import with_options
from tidegate.logs.factory import has_shared_writers
from tidegate.services import load

if TYPE_CHECKING:
    from tidegate.registry import Registry

LOCK_POLL_INTERVAL_S = 0.5


def up(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE...]", help="Service files to apply first, YAML.")
    ] = None,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
    for_: Annotated[str | None, typer.Option("--for", help="Stop after this time: 30s, 2m.")] = None,
    force: options.Force = False,
    backfill: options.Backfill = False,
    host: gateway_options.Host = HOST,
    port: gateway_options.Port = PORT,
    origin: gateway_options.Origin = None,
    allow_private_webhooks: gateway_options.PrivateWebhooks = False,
    broker: gateway_options.Broker = None,
    semantics: options.Semantics = None,
    tls_cert: gateway_options.TlsCert = None,
    tls_key: gateway_options.TlsKey = None,
    tls_client_ca: gateway_options.TlsClientCa = None,
    with_gateway: Annotated[bool, typer.Option("--gateway/--no-gateway", help="Serve the API too.")] = True,
) -> None:
    """Run the services of a data folder, after applying service files to it, until Ctrl-C.

    Prints one line with the address of the API and the console when all services read their inputs. If some services
    fail, the line names them.
    """
    home = options.home(data, profile, lambda tls: with_options(tls, tls_cert, tls_key, tls_client_ca))
    limit_s = durations.seconds(for_) if for_ is not None else None
    log_to_stderr()
    home.need_connector()
    with home.locked(may_wait=home.profile.database is not None) as lock:
        registry = home.registry()
        try:
            if files:
                changes = registry.apply(options.trusted(load(files), home), force=force, backfill=backfill)
                local_audit.record_changes(home, changes.to_dict())
            with (
                stop_on_signal() as stop,
                running_gateway(
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
                else nullcontext() as gateway,
                _may_run(home, registry, lock, stop, gateway) as started,
            ):
                if not stop.is_set():
                    run_services(home, registry, stop, limit_s, gateway=gateway, started=started)
        finally:
            registry.close()


@contextmanager
def _may_run(
    home: Home, registry: Registry, lock: FolderLock, stop: Event, gateway: GatewayProcess | None
) -> Iterator[StartedSpark | None]:
    """Wait for the right to run the services; a folder with a registry of its own is protected by its lock already.

    A process that has to wait starts Spark before, which it yields. `stop` ends the wait.
    """
    if home.profile.database is None:
        yield None
        return

    def watch() -> None:
        if gateway is not None:
            gateway.watch()

    started = start_spark(home)
    try:
        warm_up(home, registry, started)
        with runner_lease(registry, stop, watch) as is_held:
            if is_held:
                _lock_folder(home, lock, stop)
                with watched(home, started, LEASE_S):
                    yield started
            else:
                yield started
    finally:
        started.close()


def _lock_folder(home: Home, lock: FolderLock, stop: Event) -> None:
    """Take the lock of a folder that the process before may still hold: it may live on without its lease.

    A log of files must have one writer. Over Kafka the lease is enough.
    """
    while not lock.take() and not has_shared_writers(home.profile.log):
        if stop.wait(LOCK_POLL_INTERVAL_S):
            return
