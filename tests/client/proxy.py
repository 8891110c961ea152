"""A TCP proxy between a client and a gateway that cuts connections."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Proxy(socketserver.ThreadingTCPServer):
    """Forwards connections. Each is closed after the number of response bytes that the next of `cuts` says."""

    daemon_threads = False
    block_on_close = True
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Forwarder)
        self.upstream = ("127.0.0.1", port)
        self.cuts: list[int] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_cut(self) -> int | None:
        with self.lock:
            return self.cuts.pop(0) if self.cuts else None


class _Forwarder(socketserver.BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        remaining = self.server.next_cut()
        with socket.create_connection(self.server.upstream) as up:
            back = threading.Thread(target=_forward, args=(self.request, up))
            back.start()
            with contextlib.suppress(OSError):
                while (remaining is None or remaining > 0) and (data := up.recv(65_536)):
                    self.request.sendall(data if remaining is None else data[:remaining])
                    remaining = None if remaining is None else remaining - len(data)
            for connection in (self.request, up):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            back.join()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    with Proxy(port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
