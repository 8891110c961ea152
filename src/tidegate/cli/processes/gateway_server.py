"""Runs a gateway in this process, with the settings of a data folder and its profile."""

from __future__ import annotations

import hmac
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from tidegate.cli.data_folder.home import Home
from tidegate.cli.processes.listening import gateway_url, is_loopback
from tidegate.cli.profile import load_profile
from tidegate.errors import EnvironmentProblem

if TYPE_CHECKING:
    from tidegate.federation.link import LinkSettings
    from tidegate.gateway.auth.certificates import Certificates
    from tidegate.gateway.http.tls import ServerTls
    from tidegate.gateway.subscriptions.durable import DurableSettings
    from tidegate.ingress.http import IngestSettings


def serve(
    home: Home,
    host: str,
    port: int,
    *,
    private: bool,
    origins: Sequence[str],
    broker: str,
    semantics: str | None,
    child: bool,
) -> None:
    """Serve the API until SIGINT or SIGTERM. Runs on the main thread, and exits the process with code 0 on SIGTERM.

    `private` allows webhooks to addresses that are not public. `semantics` is the folder of the command line's space.
    `child`: stop when standard input closes, and print no address. Raises if a setting can't be used.
    """
    from tidegate.gateway.gateway import Gateway
    from tidegate.gateway.server import run
    from tidegate.gateway.telemetry.tracing import tracing_of
    from tidegate.ingress.http import IngestWorker
    from tidegate.pipelines.status import SCHEMA

    word_semantics = home.semantics(semantics)
    registry = home.existing_registry()
    home.warn_of_plain_secrets(registry)
    log = home.log()
    tls, certificates = server_tls(home)
    ingest = _ingest_settings(home, gateway_url(host, port, is_secure=tls is not None))
    links = _link_settings(home, broker)

    def make_gateway() -> Gateway:
        access = home.profile.access
        return Gateway(
            registry,
            log,
            IngestWorker(partial(Home.log, home), ingest),
            SCHEMA,
            needs_keys=access.requires(is_loopback=is_loopback(host)),
            durable=durable_settings(home, private),
            access=access,
            origins=origins,
            tracing=tracing_of(os.environ),
            links=links,
            semantics=word_semantics,
            id_key=hmac.digest(home.mask_key(), b"ids of events", "sha256"),
            limits=home.profile.limits,
            tls=tls,
            certificates=certificates,
            resources=home.resources(),
            audit_locks=home.audit_locks,
            name=broker,
        )

    _handle_end(child=child)
    try:
        on_listen = _ignore_port if child else partial(_print_address, host, tls is not None)
        run(make_gateway, host, port, on_listen, home.profile.metrics)
    finally:
        log.close()
        registry.close()


def _print_address(host: str, is_secure: bool, port: int) -> None:
    typer.echo(f"listening: {gateway_url(host, port, is_secure=is_secure)}")


def _ignore_port(_: int) -> None:
    """Print nothing: the parent process prints the address."""


def durable_settings(home: Home, private: bool) -> DurableSettings:
    """Return the settings of durable subscriptions: the defaults, changed by `webhooks` of the profile.

    `private`: allow webhooks to addresses that are not public, even if the profile does not.
    """
    from tidegate.delivery.push.context import PushSettings
    from tidegate.gateway.subscriptions.durable import DurableSettings
    from tidegate.gateway.transports.topics import OpenConnection
    from tidegate.gateway.transports.webhook import WebhookSettings

    connections = home.profile.connections.items()
    profile = home.profile.webhooks
    push, webhooks = PushSettings(), WebhookSettings(allow_private=private or profile.allow_private)
    first_retry_s = profile.first_retry_s or push.first_retry_s
    return DurableSettings(
        push=replace(
            push,
            first_retry_s=first_retry_s,
            max_retry_s=profile.max_retry_s or max(push.max_retry_s, first_retry_s),
            max_attempts=profile.max_attempts or push.max_attempts,
        ),
        webhooks=replace(webhooks, timeout_s=profile.timeout_s or webhooks.timeout_s),
        connections={name: OpenConnection(entry.connection, entry.push) for name, entry in connections if entry.push},
    )


def _handle_end(*, child: bool) -> None:
    """Exit the process on SIGTERM and, as a child, when standard input closes."""
    if child:
        threading.Thread(target=_stop_when_stdin_closes, daemon=True).start()
    # The server drains on SIGTERM, then raises the signal again. Exit then, so that `finally` blocks still run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def _ingest_settings(home: Home, url: str) -> IngestSettings:
    from tidegate.ingress.http import IngestSettings

    limits = home.profile.limits
    return IngestSettings(
        writer_lock=home.writer_lock,
        has_other_writers=home.writer_lock is None,
        lock_owner=f"the gateway at {url}",
        request_events=limits.events,
        decoded_bytes=limits.decoded_bytes,
    )


def _link_settings(home: Home, broker: str) -> LinkSettings:
    from tidegate.federation.link import LinkSettings

    client_tls = home.profile.tls.client
    return LinkSettings(
        broker,
        signing_keys=home.signing_keys,
        origins=home.profile.links.pinned(),
        tls=None if client_tls is None else client_tls.context,
    )


def server_tls(home: Home) -> tuple[ServerTls | None, Certificates]:
    """Return the TLS settings of a gateway, None without TLS, and the callers that client certificates identify.

    A running gateway reloads both when their files change, and the list of certificates when the profile changes.
    Raises a `ClientError` or `EnvironmentProblem` if a file can't be used, or certificates are listed without TLS.
    """
    from tidegate.gateway.auth.certificates import Certificates
    from tidegate.gateway.http.tls import ServerTls

    profile = home.profile
    certificates = Certificates(profile.access.certificates)
    if profile.tls.client is not None:
        profile.tls.client.context()  # raises now, not at the first link, if a file can't be used
    if profile.tls.server is None:
        if profile.access.certificates:
            raise EnvironmentProblem(
                "access.certificates: callers can't show a client certificate without TLS: "
                "set tls: {cert, key, client_ca} in the profile"
            )
        return None, certificates
    if profile.access.certificates and profile.tls.server.client_ca is None:
        raise EnvironmentProblem(
            "access.certificates: expected tls.client_ca too: the authorities that sign the client certificates"
        )
    path = profile.path

    def reload_certificates() -> None:
        if path is not None:
            certificates.define(load_profile(str(path)).access.certificates)

    return ServerTls(
        profile.tls.server, also=() if path is None else (path,), changed=reload_certificates
    ), certificates


def broker_name(name: str | None) -> str:
    """Return the name of this broker: `name`, or one made of the host name. Raises if the name is not allowed.

    >>> broker_name("city")
    'city'
    """
    from tidegate.registry import need_broker_name

    if name is None:
        name = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().partition(".")[0]).strip("_-")[:40] or "broker"
    need_broker_name(name)
    return name


def _stop_when_stdin_closes() -> None:
    """Send SIGTERM to this process when standard input ends: the parent has closed it, or has died."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
