"""The server of a gateway: listens, and runs the application on uvloop."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
import uvloop

from tidegate.gateway.app import make_app
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http.connections import raise_file_limit
from tidegate.gateway.http.tls import HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S, ServerTls
from tidegate.gateway.settings import MetricsSettings
from tidegate.gateway.telemetry.metrics_server import serving_metrics
from tidegate.gateway.transports.protocol import Config, WebSocketProtocol

THREAD_SWITCH_INTERVAL_S = 0.0005
"""How long a thread may hold the interpreter lock, so that matching does not delay the event loop."""
DRAIN_TIMEOUT_S = 5
MAX_MESSAGE_BYTES = 1024 * 1024
"""Size of a message that a client sends on a WebSocket: a filter with about ten thousand values."""
PING_INTERVAL_S = 20.0
PONG_TIMEOUT_S = 60.0
"""Long, because a slow client reads a ping only after all earlier events."""


class Server(uvicorn.Server):
    """The uvicorn server of a gateway. `stop` may be called from any thread."""

    def __init__(self, gateway: Gateway, host: str, port: int, ready: Callable[[int], None] = lambda _: None) -> None:
        """`port` 0 chooses a free one. `ready` is called on the event loop with the port, once the server listens."""
        config = Config(
            make_app(gateway),
            gateway.outbox,
            gateway.connections,
            gateway.limits,
            gateway.tls,
            host=host,
            port=port,
            ws=WebSocketProtocol,
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_ping_interval=PING_INTERVAL_S,
            ws_ping_timeout=PONG_TIMEOUT_S,
            ws_per_message_deflate=False,
            log_level="warning",
            access_log=False,
            proxy_headers=bool(gateway.access.proxies),
            forwarded_allow_ips=list(gateway.access.proxies),
            timeout_graceful_shutdown=DRAIN_TIMEOUT_S,
            timeout_keep_alive=gateway.limits.idle_timeout_s,
            backlog=4096,
        )
        super().__init__(config)
        self._gateway, self._ready = gateway, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        if self._gateway.tls is None:
            await super().startup(sockets)
        else:
            await self._startup_with_tls(self._gateway.tls)
        if self.started:
            self._gateway.connections.start()
            self._ready(self.servers[0].sockets[0].getsockname()[1])

    async def _startup_with_tls(self, tls: ServerTls) -> None:
        """Start to listen with TLS. Replaces uvicorn's own method, which allows a minute for a handshake."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(3)  # as uvicorn does
        config = self.config
        make: Any = config.http_protocol_class
        protocol = partial(make, config=config, server_state=self.server_state, app_state=self.lifespan.state)
        server = await asyncio.get_running_loop().create_server(
            protocol,
            host=config.host,
            port=config.port,
            ssl=tls.context,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            backlog=config.backlog,
        )
        self.servers = [server]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, drain the gateway, and end open requests after `DRAIN_TIMEOUT_S`."""
        self._gateway.drain()
        self._gateway.connections.stop()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Ask the server to shut down."""
        self.should_exit = True


async def serve(
    make: Callable[[], Gateway],
    host: str,
    port: int,
    ready: Callable[[Server, int], None] = lambda _, __: None,
    metrics: MetricsSettings | None = None,
) -> None:
    """Create a gateway, and serve it until `Server.stop` or a signal. `metrics`: also serve metrics on their own port.

    `ready` is called on the event loop with the server and its port.
    """
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    gateway = make()
    await gateway.start()
    server = Server(gateway, host, port, lambda actual_port: ready(server, actual_port))
    async with serving_metrics(gateway, metrics):
        await server.serve()


def run(
    make: Callable[[], Gateway],
    host: str,
    port: int,
    ready: Callable[[int], None] = lambda _: None,
    metrics: MetricsSettings | None = None,
) -> None:
    """Serve a gateway in this process, on uvloop, until a signal. Blocks."""
    # Exclude all imported objects from garbage collection: a collection over them stopped the process for 200 ms
    # while ten thousand clients subscribed.
    gc.collect()
    gc.freeze()
    raise_file_limit()
    uvloop.run(serve(make, host, port, lambda _, actual_port: ready(actual_port), metrics))
