"""Requests beyond the limits of size."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.running import World
from tidegate.gateway.http.limits import MAX_BODY_BYTES
from tidegate.gateway.transports.protocol import MAX_HEAD_BYTES

PATHS = [("PUT", "/v1/services/gps"), ("PATCH", "/v1/subscriptions/x"), ("POST", "/v1/services/gps/subscriptions")]


@pytest.mark.parametrize("how", ["said", "unsaid"])
@pytest.mark.parametrize(("method", "path"), PATHS)
def test_body_that_is_too_large_is_refused(world: World, method: str, path: str, how: str) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65_536 + 1):
            yield b" " * 65_536

    body = b" " * (MAX_BODY_BYTES + 1) if how == "said" else parts()
    with world.client() as http:
        answer = http.request(method, path, content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
    assert answer.json()["detail"] == "expected at most 1,048,576 bytes in one request"
    assert answer.json()["limit"] == MAX_BODY_BYTES


def test_endless_head_is_cut_off(world: World) -> None:
    with socket.create_connection(("127.0.0.1", world.port)) as raw:
        raw.settimeout(20)
        raw.sendall(b"GET /v1/services?")
        answer = b""
        try:
            for _ in range(MAX_HEAD_BYTES // 4096 + 64):
                raw.sendall(b"a" * 4096)
            answer = raw.recv(100)
        except ConnectionError:  # it is cut while we still talk
            answer = answer or b"HTTP/1.1 431"
    assert answer.startswith(b"HTTP/1.1 431")
    with world.client() as http:
        assert http.get("/livez").status_code == 200


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" * 100_000, "it nests"),
        (
            b"a: &a [x, x, x, x, x, x, x, x, x]\n"
            + b"".join(b"%c: &%c [%s]\n" % (98 + n, 98 + n, b", ".join([b"*%c" % (97 + n)] * 9)) for n in range(9)),
            "it has more than 100000 values, aliases counted",
        ),
        (b"\xff\xfe", "expected UTF-8 text"),
        (b"{a: [", "expected"),
    ],
    ids=["deep", "aliases", "bytes", "broken"],
)
def test_definition_that_is_not_a_document_is_refused(http: httpx.Client, body: bytes, why: str) -> None:
    answer = http.put("/v1/services/new", content=body)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:tidegate:problem:bad-body")
    assert why in answer.json()["detail"]
