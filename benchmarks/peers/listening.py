"""A server that prints its address, as `tidegate gateway` does."""

from __future__ import annotations

import socket

import uvicorn


class Saying(uvicorn.Server):
    """Prints its address when it accepts requests."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        print(f"listening: http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}", flush=True)
