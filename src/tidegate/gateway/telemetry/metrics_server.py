"""Serves metrics on a separate port, without a key. The port serves nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from ipaddress import ip_address

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tidegate.errors import EnvironmentProblem
from tidegate.gateway.auth.loopback import LoopbackOnly
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.settings import MetricsSettings
from tidegate.gateway.telemetry.metrics import CONTENT_TYPE
from tidegate.gateway.transports.protocol import Config


@asynccontextmanager
async def serving_metrics(gateway: Gateway, settings: MetricsSettings | None) -> AsyncIterator[None]:
    """Serve a gateway's metrics on their own port until the block ends. None: do nothing."""
    with nullcontext() if settings is None else _listening(settings) as listener:
        if listener is None or settings is None:
            yield
            return
        server = _Server(_config(gateway, settings))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve([listener]))
            try:
                yield
            finally:
                server.should_exit = True


class _Server(uvicorn.Server):
    """A second server in one process: signals are for the first."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def _config(gateway: Gateway, settings: MetricsSettings) -> Config:
    return Config(
        _app(gateway, settings),
        gateway.outbox,
        gateway.connections,
        gateway.limits,
        lifespan="off",
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )


def _app(gateway: Gateway, settings: MetricsSettings) -> ASGIApp:
    async def metrics(_: Request) -> Response:
        return Response(gateway.metrics.text(), media_type=CONTENT_TYPE)

    app = Starlette(routes=[Route("/metrics", metrics, methods=["GET"])])
    # On loopback a web page of this machine's browser could read it under a name of its own.
    return LoopbackOnly(app, ()) if ip_address(settings.host).is_loopback else app


@contextmanager
def _listening(settings: MetricsSettings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        detail = f"metrics: can't listen on {settings.host} port {settings.port}: {error.strerror}; choose another port"
        raise EnvironmentProblem(detail) from error
    with listener:
        yield listener
