"""The private attribute of httpx that webhooks depend on, and the versions to which the extras bind it."""

from __future__ import annotations

import asyncio
import tomllib
from importlib.metadata import version
from pathlib import Path

import httpcore
import httpx
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


class RecordingPool(httpcore.AsyncConnectionPool):
    """Answers each request with 204, without a connection, and records its host."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: list[bytes] = []

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        self.hosts.append(request.url.host)
        return httpcore.Response(204, content=b"")


class PoolTransport(httpx.AsyncHTTPTransport):
    """Replaces the connection pool, as the transport of webhooks does to check addresses."""

    def __init__(self, pool: httpcore.AsyncConnectionPool) -> None:
        super().__init__()
        self._pool = pool


def test_transport_has_a_private_pool() -> None:
    assert isinstance(httpx.AsyncHTTPTransport()._pool, httpcore.AsyncConnectionPool)


def test_replaced_pool_gets_every_request() -> None:
    pool = RecordingPool()

    async def send() -> list[int]:
        async with httpx.AsyncClient(transport=PoolTransport(pool)) as client:
            return [(await client.post("https://receiver.example/in", content=b"{}")).status_code for _ in range(2)]

    assert asyncio.run(send()) == [204, 204]
    assert pool.hosts == [b"receiver.example"] * 2


def version_bounds(extra: str, package: str) -> SpecifierSet:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    requirements = [Requirement(text) for text in extras[extra]]
    return next(requirement.specifier for requirement in requirements if requirement.name == package)


@pytest.mark.parametrize(("extra", "package"), [("client", "httpx"), ("server", "httpx"), ("server", "httpcore")])
def test_extra_bounds_the_version_and_allows_the_installed_one(extra: str, package: str) -> None:
    bounds = version_bounds(extra, package)
    assert {bound.operator for bound in bounds} == {">=", "<"}
    assert version(package) in bounds


def test_server_extra_allows_no_other_minor_version_of_httpx() -> None:
    bounds = version_bounds("server", "httpx")
    candidates = ("0.27.2", "0.28.0", "0.28.1", "0.29.0", "1.0.0")
    assert [candidate for candidate in candidates if candidate in bounds] == ["0.28.0", "0.28.1"]
