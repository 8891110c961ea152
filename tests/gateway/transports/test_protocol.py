"""A response that outlives its request: the connection belongs to the events, and to nothing else."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.gateway.running import World
from tests.pipelines.running import until

STREAM = b"GET /v1/services/gps/events?filter=%s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
PAGE = b"GET /v1/services HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _read_until(link: socket.socket, end: bytes) -> bytes:
    found = b""
    while end not in found:
        data = link.recv(65_536)
        assert data, found
        found += data
    return found


def _live(world: World) -> int:
    return world.counts().get("gps", {}).get("live", 0)


def test_pipelined_request_after_a_stream_is_not_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world.running(), socket.create_connection(("127.0.0.1", world.port), timeout=30) as link:
        link.sendall(STREAM % b"vid='B1'" + PAGE)
        until(lambda: _live(world) == 1, "the stream to begin")
        link.sendall(PAGE + b"no HTTP at all\r\n\r\n")
        world.append(12)
        said = _read_until(link, b'"speed":11.0')
        assert said.count(b"HTTP/1.1 ") == 1
        assert said.count(b'"vid":"B1"') == 2


def test_disconnected_client_is_unsubscribed(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world.running():
        with socket.create_connection(("127.0.0.1", world.port), timeout=30) as link:
            link.sendall(STREAM % b"")
            until(lambda: _live(world) == 1, "the stream to begin")
        until(lambda: _live(world) == 0, "the stream to end")


def test_shutdown_ends_streams(tmp_path: Path) -> None:
    world = World(tmp_path)
    with socket.socket() as link:
        with world.running():
            link.settimeout(30)
            link.connect(("127.0.0.1", world.port))
            link.sendall(STREAM % b"")
            until(lambda: _live(world) == 1, "the stream to begin")
        said = b"".join(iter(lambda: link.recv(65_536), b""))
    assert said.endswith(b"0\r\n\r\n")
