"""The process that listens."""

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
from tidegate.gateway.connections import raise_file_limit
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.metrics_server import serving_metrics
from tidegate.gateway.protocol import Config, WebSocketProtocol
from tidegate.gateway.settings import MetricsSettings
from tidegate.gateway.tls import HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S, ServerTls

SWITCH_S = 0.0005
"""How long a thread may keep others from running: matching must not hold up the sockets."""
DRAIN_S = 5
LARGEST_MESSAGE_BYTES = 1024 * 1024
"""Of what a client sends on a WebSocket: a filter with some ten thousand values."""
PING_S = 20.0
PONG_S = 60.0
"""A ping stands behind what a slow reader has not read yet."""


class Server(uvicorn.Server):
    """A gateway that listens; `stop` may be called from any thread."""

    def __init__(self, gateway: Gateway, host: str, port: int, ready: Callable[[int], None] = lambda _: None) -> None:
        """`port` 0 is any that is free; `ready` is called with the one it is, when requests are taken."""
        config = Config(
            make_app(gateway),
            gateway.outbox,
            gateway.connections,
            gateway.limits,
            gateway.tls,
            host=host,
            port=port,
            ws=WebSocketProtocol,
            ws_max_size=LARGEST_MESSAGE_BYTES,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PONG_S,
            ws_per_message_deflate=False,
            log_level="warning",
            access_log=False,
            proxy_headers=bool(gateway.access.proxies),
            forwarded_allow_ips=list(gateway.access.proxies),
            timeout_graceful_shutdown=DRAIN_S,
            timeout_keep_alive=gateway.limits.idle_timeout_s,
            backlog=4096,
        )
        super().__init__(config)
        self._gateway, self._ready = gateway, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        if self._gateway.tls is None:
            await super().startup(sockets)
        else:
            await self._startup_with_tls(self._gateway.tls)
        if self.started:
            self._gateway.connections.start()
            self._ready(self.servers[0].sockets[0].getsockname()[1])

    async def _startup_with_tls(self, tls: ServerTls) -> None:
        """Listen with TLS. uvicorn would let a handshake last for a minute."""
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
        """Let requests end; those that never would are ended."""
        self._gateway.drain()
        self._gateway.connections.stop()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Let requests end, and end."""
        self.should_exit = True


async def serve(
    make: Callable[[], Gateway],
    host: str,
    port: int,
    ready: Callable[[Server, int], None] = lambda _, __: None,
    metrics: MetricsSettings | None = None,
) -> None:
    """Listen until stopped, or until a signal says so. `metrics`: where they are served beside."""
    sys.setswitchinterval(SWITCH_S)
    gateway = make()
    await gateway.start()
    server = Server(gateway, host, port, lambda found: ready(server, found))
    async with serving_metrics(gateway, metrics):
        await server.serve()


def run(
    make: Callable[[], Gateway],
    host: str,
    port: int,
    ready: Callable[[int], None] = lambda _: None,
    metrics: MetricsSettings | None = None,
) -> None:
    """Listen in this process, on uvloop."""
    # What was imported stays. To look for garbage in all of it, with everything at a stand, took 200 ms while
    # ten thousand subscribed.
    gc.collect()
    gc.freeze()
    raise_file_limit()
    uvloop.run(serve(make, host, port, lambda _, found: ready(found), metrics))
