from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.running import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path).running() as found:
        yield found


@pytest.fixture
def http(world: World) -> Iterator[httpx.Client]:
    with world.client() as client:
        yield client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A gateway for many tests that need no events."""
    with World(tmp_path_factory.mktemp("shared")).running() as world, world.client() as client:
        yield client
