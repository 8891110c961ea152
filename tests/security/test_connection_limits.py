"""Peers that open connections and send nothing: they are closed, and keep no other caller out."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.pipelines.running import until
from tests.security.processes import Running, create_key, gateway, tidegate, write_profile
from tidegate.cli.profile.limits import read_limits
from tidegate.errors import EnvironmentProblem

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("connection-attacks")]

CITY = "streams: {gps_taxi: {schema: {vid: string}}}\nservices: {gps: {from: gps_taxi}}\n"
LIMITS = {
    **{"connections": 60, "connections_per_address": 20, "headers": 50},
    **{"head_timeout": "1s", "body_timeout": "1s", "idle_timeout": "1s"},
}
MAX_WAIT_S = 20.0
"""Until a connection must be closed: a second, and what a busy machine adds."""
ASK = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


@dataclass(frozen=True)
class Target:
    """A gateway with small limits that requires keys."""

    running: Running
    key: str

    @property
    def port(self) -> int:
        return httpx.URL(self.running.url).port or 80

    def open(self, data: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
        """Open a connection from an address of this machine, and send something."""
        link = socket.create_connection(("127.0.0.1", self.port), timeout=MAX_WAIT_S, source_address=(address, 0))
        link.sendall(data)
        return link

    def need_service(self) -> None:
        """Send a request on a new connection, as an honest client does."""
        begun = time.monotonic()
        with self.running.client(self.key) as http:
            assert http.get("/v1/services").status_code == 200
        assert time.monotonic() - begun < MAX_WAIT_S / 4

    def metric(self, name: str) -> float:
        with self.running.client(self.key) as http:
            lines = http.get("/metrics").text.splitlines()
        return next((float(each.rpartition(" ")[2]) for each in lines if each.startswith(name)), 0.0)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("connections")
    (folder / "city.yaml").write_text(CITY)
    assert tidegate("apply", folder / "city.yaml", data=folder / "data").returncode == 0
    key = create_key(folder / "data", "alice", "admin")
    with gateway(folder / "data", "--profile", write_profile(folder, limits=LIMITS)) as running:
        yield Target(running, key)


def rest(link: socket.socket) -> bytes:
    """Return all bytes until the peer closes; fails if it does not."""
    found = b""
    while True:
        try:
            data = link.recv(65_536)
        except ConnectionError:
            return found
        if not data:
            return found
        found += data


def drip(link: socket.socket, part: bytes, is_over: Callable[[], bool]) -> None:
    """Send a little, again and again, until the peer has closed."""
    link.settimeout(0.1)
    while not is_over():
        try:
            link.sendall(part)
            if not link.recv(65_536):
                return
        except TimeoutError:
            continue
        except ConnectionError:
            return


# Slow peers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "reason"),
    [
        (b"", b"head took too long"),
        (b"G", b"head took too long"),
        (ASK, b"head took too long"),
        (ASK + b"X-Long: a", b"head took too long"),
        (b"\r\n\r\n\r\n", b"head took too long"),
        (b"POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\na", b"body came too slowly"),
        (b"POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", b"body came too"),
    ],
    ids=["silent", "one byte", "no end", "half a header", "empty lines", "half a body", "half a chunk"],
)
def test_request_that_does_not_end_is_cut_off(target: Target, begin: bytes, reason: bytes) -> None:
    key = f"Authorization: Bearer {target.key}\r\n".encode()
    with target.open(begin.replace(b"apply HTTP/1.1\r\n", b"apply HTTP/1.1\r\n" + key)) as link:
        answer = rest(link)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert reason in answer
    assert b"in the gateway's profile" in answer


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (ASK, b"X: a\r\n"),
        (ASK + b"X: ", b"a"),
        (b"\r\n", b"\r\n"),
        (b"POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", b"a"),
        (b"POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
        (b"POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"extension"),
        (b"POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"Trailer: a\r\n"),
    ],
    ids=["headers", "a header", "empty lines", "a body", "chunks", "a chunk's extension", "trailers"],
)
def test_peer_that_sends_a_little_all_the_time_is_cut_off(target: Target, begin: bytes, part: bytes) -> None:
    begun = time.monotonic()
    with target.open(begin) as link:
        drip(link, part, lambda: time.monotonic() - begun > MAX_WAIT_S)
    assert time.monotonic() - begun < MAX_WAIT_S


def test_hundred_half_open_connections_are_closed(target: Target) -> None:
    with ExitStack() as stack:
        links = [stack.enter_context(target.open(ASK, f"127.0.0.{n % 10 + 2}")) for n in range(100)]
        target.need_service()
        assert target.metric('tidegate_connections{state="waiting"}') > 20
        for link in links:
            rest(link)
    # One may wait: whoever asks for the metrics, which need no key.
    until(lambda: target.metric('tidegate_connections{state="waiting"}') <= 1, "all of them to be gone", MAX_WAIT_S)


def test_connection_that_rests_between_requests_is_closed(target: Target) -> None:
    with target.open(ASK + b"\r\n") as link:
        assert rest(link).startswith(b"HTTP/1.1 200 ")


# Many connections --------------------------------------------------------------------------------


def test_one_address_has_few_connections_that_wait(target: Target) -> None:
    before = target.metric('tidegate_connections_closed_total{reason="address"}')
    with ExitStack() as stack:
        links = [stack.enter_context(target.open()) for _ in range(50)]
        answer = rest(links[0])  # the first made room
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"too many connections of this address wait" in answer
        target.need_service()
    assert target.metric('tidegate_connections_closed_total{reason="address"}') - before >= 30


def test_flood_from_many_addresses_keeps_no_other_caller_out(target: Target) -> None:
    """All slots are taken by waiting connections: subscribers continue, and new callers are served."""
    stream = {"accept": "text/event-stream"}
    with (
        target.running.client(target.key) as http,
        http.stream("GET", "/v1/services/gps/events", headers=stream) as sse,
    ):
        lines = sse.iter_lines()
        assert next(lines)

        def listening() -> float:
            return target.metric('tidegate_subscribers_by_kind{kind="sse",service="gps"}')

        until(lambda: listening() == 1, "the stream to begin", MAX_WAIT_S)
        before = target.metric('tidegate_connections_closed_total{reason="full"}')
        with ExitStack() as stack:
            for n in range(200):
                stack.enter_context(target.open(b"G", f"127.0.1.{n % 20 + 1}"))
                if n % 50 == 49:
                    target.need_service()
        assert target.metric('tidegate_connections_closed_total{reason="full"}') > before
        assert listening() == 1


def test_one_caller_does_not_get_all_connections(target: Target) -> None:
    ask = f"GET /v1/services/gps/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {target.key}\r\n"
    ask += "Accept: text/event-stream\r\n\r\n"
    with ExitStack() as stack:
        links = [stack.enter_context(target.open(ask.encode())) for _ in range(70)]
        heads = [link.recv(4_096) for link in links]
        statuses = [int(head.split(b" ", 2)[1]) for head in heads]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) <= 54
        assert b"connections that it may have at once" in heads[-1] + links[-1].recv(4_096)
        assert httpx.get(f"{target.running.url}/livez").status_code == 200


def test_unknown_peers_do_not_stay(target: Target) -> None:
    """Requests without a key, and sockets that were refused, wait like all others, and make room for them."""
    address = target.running.url.replace("http", "ws")
    for path in ("/v1/events", "/v1/services/gps/events"):
        with pytest.raises(InvalidStatus) as refused:
            connect(f"{address}{path}")
        assert refused.value.response.status_code == 401
    with ExitStack() as stack:
        for n in range(100):
            link = stack.enter_context(
                target.open(b"GET /v1/services HTTP/1.1\r\nHost: a\r\n\r\n", f"127.0.2.{n % 9 + 1}")
            )
            assert link.recv(12) == b"HTTP/1.1 401"
        target.need_service()


# Heads and chunks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (ASK + b"X: a\r\n" * 51 + b"\r\n", 431, b"expected at most 50 headers, not 52"),
        (ASK + b"X: " + b"a" * 300_000, 431, b"expected at most 262,144 bytes of request line and headers"),
        (b"GET /" + b"a" * 300_000, 431, b"expected at most 262,144 bytes of request line and headers"),
        ((ASK + b"\r\n") * 200, 400, b"expected at most 100 requests before the first is answered"),
        (
            b"POST /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 5_000,
            400,
            b"expected chunks of at least 64 bytes on average",
        ),
        (
            b"POST /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: a\r\n" * 60,
            431,
            b"expected at most 50 trailers",
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, b"expected a request of HTTP/1.1"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, b"expected a request of HTTP/1.1"),
        (ASK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, b""),
        (ASK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, b""),
        (ASK + b"Content-Length: -1\r\n\r\n", 400, b""),
    ],
    ids=[
        "headers",
        "header",
        "target",
        "pipeline",
        "chunks",
        "trailers",
        "TLS",
        "HTTP/2",
        "both",
        "lengths",
        "negative",
    ],
)
def test_head_that_is_too_large_or_no_http_is_refused(target: Target, data: bytes, status: int, reason: bytes) -> None:
    with target.open() as link:
        with suppress(ConnectionError):  # it may be cut off while we still send
            link.sendall(data)
        answer = rest(link)
    if answer:  # a peer that still sends may see a reset before the answer
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:300]
        assert reason in answer
    target.need_service()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"conections": 5}, "limits: unknown key 'conections'; did you mean 'connections'?"),
        ({"connections": 0}, "limits.connections: expected a whole number above 0, not 0"),
        ({"head_timeout": 5}, "limits.head_timeout: expected a length of time such as 10s, not 5"),
        ({"decoded_bytes": "much"}, "limits.decoded_bytes: expected a size such as 64MB, or a number of bytes, not"),
        ([], "limits: expected a map with connections, connections_per_address"),
    ],
)
def test_bad_limits_in_a_profile_are_reported(limits: object, expected: str) -> None:
    with pytest.raises(EnvironmentProblem, match=re.escape(f"city.yaml: {expected}")):
        read_limits(limits, "city.yaml")
