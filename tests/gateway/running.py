"""A real gateway on loopback: its own event loop in a thread, real sockets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType
from typing import Any

import fastapi.routing
import httpx
import uvloop
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant

from tests.polling import until
from tidegate.client.tls import client_context
from tidegate.delivery.push.context import PushSettings
from tidegate.federation.link import LinkSettings
from tidegate.filters.meaning import Semantics
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http.tls import ServerTls
from tidegate.gateway.server import Server, serve
from tidegate.gateway.settings import AccessSettings, LimitSettings, TlsSettings
from tidegate.gateway.subscriptions.durable import DurableSettings
from tidegate.gateway.telemetry.tracing import tracing_of
from tidegate.gateway.transports.webhook import WebhookSettings
from tidegate.ingress.http import DirectIngest
from tidegate.logs import SegmentLog
from tidegate.model import Schema, timestamps
from tidegate.registry import SqliteRegistry
from tidegate.services import loads

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}
services:
  gps: {from: gps_taxi, constraints: {speed: ">= 0"}}
  fast: {from: gps, pipeline: [{filter: speed > 60}]}
"""
STATUSES = Schema({"service": "string", "state": "string", "version": "int64", "time": "timestamp"}, event_time="time")

HASTY = DurableSettings(
    look_s=0.02,
    ack_s=0.01,
    push=PushSettings(first_retry_s=0.02, max_retry_s=0.05, max_attempts=4, ack_interval_s=0.05),
    webhooks=WebhookSettings(allow_private=True, timeout_s=20.0),
)
"""Durable subscriptions that wait for nothing long but answers, as a machine may be busy; receivers on loopback."""


_seen: dict[tuple[CodeType, str], Dependant] = {}


def _seen_before(*, path: str, call: Any, **more: Any) -> Dependant:
    """Reuse the analysis of the route functions of an earlier gateway: all have the same routes."""
    if (call.__code__, path) not in _seen:
        _seen[call.__code__, path] = get_dependant(path=path, call=call, **more)
    return replace(_seen[call.__code__, path], call=call)


# FastAPI looks into each function of each gateway, which takes longer than all else that most tests do.
fastapi.routing.get_dependant = _seen_before  # type: ignore[attr-defined]


def record(n: int, **more: Any) -> bytes:
    """An event of `gps`, as a writer leaves it in the log."""
    return (
        b'{"_id":"gps_taxi:0:%d","_src":"gps_taxi/0:%d","_time":"2026-01-01T00:00:00.000000Z",'
        b'"vid":"B%d","speed":%d.0,"time":"2026-01-01T00:00:00.000000Z"}' % (n, n, n % 10, n % 100)
    )


@cache
def _empty_registry() -> bytes:
    """The file of a registry: to copy it is faster than to make one again for each of many tests."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "registry.sqlite"
        SqliteRegistry(file).close()
        return file.read_bytes()


class World:
    """A folder with a registry and a log, and a gateway over them."""

    def __init__(self, folder: Path, text: str = CITY) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "registry.sqlite"
        if not file.exists():
            file.write_bytes(_empty_registry())
        self.registry = SqliteRegistry(file)
        self.registry.apply(loads(text))
        self.log = SegmentLog(folder / "log")
        for service in self.registry.services():
            self.log.create(service, ["gps_taxi.0"])
        self.durable = HASTY
        self.statuses = STATUSES
        self.sent = 0
        self.port = 0
        self.needs_keys = False
        self.origins: tuple[str, ...] = ()
        self.environment: dict[str, str] = {}
        """What says whether anything is traced."""
        self.access: AccessSettings | None = None
        self.limits = LimitSettings()
        """How much one peer may ask of it."""
        self.links: LinkSettings | None = None
        """How it is linked to other brokers; None: it is not."""
        self.semantics: Semantics | None = None
        """What filters with ~ are evaluated by."""
        self.tls: TlsSettings | None = None
        """The files of its TLS; None: it listens without."""
        self.ca: Path | None = None
        """The authority that its clients trust."""
        self._servers: list[Server] = []
        self._gateways: list[Gateway] = []

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    def append(self, count: int, service: str = "gps") -> None:
        self.log.append(service, "gps_taxi.0", [record(n) for n in range(self.sent, self.sent + count)])
        self.sent += count

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, verify=True if self.ca is None else client_context(self.ca))

    def gateway(self) -> Gateway:
        ingest = DirectIngest(self.log)
        made = Gateway(
            self.registry,
            self.log,
            ingest,
            self.statuses,
            needs_keys=self.needs_keys,
            durable=self.durable,
            origins=self.origins,
            tracing=tracing_of(self.environment),
            access=self.access,
            links=self.links,
            limits=self.limits,
            semantics=self.semantics,
            tls=None if self.tls is None else ServerTls(self.tls),
        )
        self._gateways.append(made)
        return self._gateways[-1]

    def counts(self) -> dict[str, dict[str, int]]:
        """Who is served now."""
        return self._gateways[-1].hub.counts()

    def tell_running(self, *services: str, ago_s: float = 0.0, **more: Any) -> None:
        """Say of services what a runner would: that they run, or did a while ago, and more."""
        self.log.create("_status")
        moment = timestamps.to_text(time.time_ns() // 1_000 - round(ago_s * 1e6))
        said = [{"service": name, "state": "running", "version": 1, "time": moment, **more} for name in services]
        self.log.append("_status", "0", [json.dumps(each).encode() for each in said])

    def await_ready(self, http: httpx.Client, *services: str) -> None:
        """Say that services run until the gateway is ready.

        What is said once, before the gateway starts, is too old on a machine where the start takes a while.
        """

        def is_ready() -> bool:
            self.tell_running(*services)
            return http.get("/readyz").status_code == 200

        until(is_ready, "services to run", interval_s=0.05)

    def stop(self) -> None:
        """Stop the gateway, as a signal does."""
        self._servers[-1].stop()

    @contextmanager
    def running(self) -> Iterator[World]:
        begun = threading.Event()

        def ready(server: Server, port: int) -> None:
            self._servers.append(server)
            self.port = port
            begun.set()

        def run() -> None:
            try:
                uvloop.run(serve(self.gateway, "127.0.0.1", self.port, ready))
            finally:
                begun.set()

        thread = threading.Thread(target=run)
        thread.start()
        begun.wait()
        assert self._servers, "the gateway did not start"
        try:
            yield self
        finally:
            self.stop()
            thread.join()
