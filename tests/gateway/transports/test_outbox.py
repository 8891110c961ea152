"""Joint writes to many sockets have the same effect as single ones: complete and in order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import cast

import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certificates import Authority
from tests.conftest import LARGE_EXAMPLES
from tidegate.client.tls import client_context
from tidegate.gateway.http.tls import ServerTls
from tidegate.gateway.settings import TlsSettings
from tidegate.gateway.transports import outbox
from tidegate.gateway.transports.outbox import MIN_SOCKETS, Outbox, Wire

SMALL_BYTES = 4_096
"""What the system holds for a reader that does not read."""


async def _connected(box: Outbox, count: int) -> list[tuple[Wire, socket.socket]]:
    """Wires, and who reads at their other ends."""
    loop = asyncio.get_running_loop()
    made: list[tuple[Wire, socket.socket]] = []
    for _ in range(count):
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
            each.setblocking(False)
        transport, _protocol = await loop.create_connection(asyncio.Protocol, sock=ours)
        made.append((Wire(transport, box), theirs))
    return made


async def _read(link: socket.socket) -> bytes:
    """All that comes until the end."""
    found = b""
    while data := await asyncio.get_running_loop().sock_recv(link, 65_536):
        found += data
    link.close()
    return found


def run(work: Callable[[Outbox], Awaitable[None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(work(Outbox()), 30)

    uvloop.run(whole())


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 3 * (MIN_SOCKETS - 1)))
def test_data_arrives_in_order_at_slow_readers(seed: int, count: int) -> None:
    async def work(box: Outbox) -> None:
        chance = Random(seed)
        made = await _connected(box, count)
        sent = [b""] * count
        reading: dict[int, asyncio.Task[bytes]] = {}

        def write() -> None:
            for _ in range(chance.randrange(2 * count)):
                n = chance.randrange(count)
                data = chance.randbytes(chance.choice([1, 100, SMALL_BYTES, 10 * SMALL_BYTES]))
                sent[n] += data
                made[n][0].write(data)

        for _ in range(chance.randint(1, 8)):
            if chance.random() < 0.7:
                with box:
                    write()
            else:
                write()
            if chance.random() < 0.3:
                n = chance.randrange(count)
                if n not in reading:
                    reading[n] = asyncio.create_task(_read(made[n][1]))
            await asyncio.sleep(0)
        with box:
            write()
            for wire, _ in made:
                wire.close()
        came = [await (reading.get(n) or _read(made[n][1])) for n in range(count)]
        assert came == sent

    run(work)


def test_closed_socket_does_not_affect_others() -> None:
    async def work(box: Outbox) -> None:
        made = await _connected(box, 2 * (MIN_SOCKETS - 1))
        made[0][1].close()
        made[1][0].transport.abort()
        with box:
            for wire, _ in made:
                wire.write(b"all")
                wire.write(b" of it")
        for wire, _ in made:
            wire.close()
        assert [await _read(link) for _, link in made[1:]] == [b"", *[b"all of it"] * (2 * (MIN_SOCKETS - 1) - 2)]

    run(work)


def test_data_of_a_failing_block_is_sent() -> None:
    async def work(box: Outbox) -> None:
        made = await _connected(box, 2 * (MIN_SOCKETS - 1))
        with suppress(ZeroDivisionError), box:
            for wire, _ in made:
                wire.write(b"before")
            raise ZeroDivisionError
        for wire, _ in made:
            wire.write(b", behind")
            wire.close()
        assert {await _read(link) for _, link in made} == {b"before, behind"}

    run(work)


def test_warm_up_compiles_all_kernels() -> None:
    outbox.warm_up()
    assert outbox.send_all.signatures
    before = list(outbox.send_all.signatures)

    async def work(box: Outbox) -> None:
        made = await _connected(box, 2 * (MIN_SOCKETS - 1))
        with box:
            for wire, _ in made:
                wire.write(b"x")
        for wire, link in made:
            wire.close()
            link.close()

    run(work)
    assert outbox.send_all.signatures == before


class _Arriving(asyncio.Protocol):
    """The server's side of a connection."""

    def __init__(self, box: Outbox, made: asyncio.Queue[Wire]) -> None:
        self._box, self._made = box, made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.put_nowait(Wire(cast(asyncio.Transport, transport), self._box))


def test_tls_and_plain_sockets_get_data_in_order(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server()
    tls = ServerTls(TlsSettings(server.cert, server.key))
    chance = Random(7)

    async def work(box: Outbox) -> None:
        loop, made = asyncio.get_running_loop(), asyncio.Queue[Wire]()
        listeners = [
            await loop.create_server(lambda: _Arriving(box, made), "127.0.0.1", 0, ssl=context)
            for context in (None, tls.context)
        ]
        readers, wires, sent = [], [], [b""] * (4 * (MIN_SOCKETS - 1))
        for n in range(4 * (MIN_SOCKETS - 1)):
            port = listeners[n % 2].sockets[0].getsockname()[1]
            context = client_context(authority.cert) if n % 2 else None
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            readers.append((reader, writer))
            wires.append(await made.get())
        assert [each.file is None for each in wires] == [bool(n % 2) for n in range(4 * (MIN_SOCKETS - 1))]
        for _ in range(30):
            with box:
                for n in chance.sample(range(4 * (MIN_SOCKETS - 1)), chance.randrange(4 * (MIN_SOCKETS - 1))):
                    data = chance.randbytes(chance.choice((10, 1_000, 20_000)))
                    wires[n].write(data)
                    sent[n] += data
            await asyncio.sleep(0)
        for n, (reader, writer) in enumerate(readers):
            assert await reader.readexactly(len(sent[n])) == sent[n], n
            wires[n].close()
            writer.close()
        for each in listeners:
            each.close()

    run(work)
