"""Fixtures of registries. Tests with `where`, `make` or `registry` run with SQLite and with PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.registry import stores
from tidegate.registry import Registry, open_registry

MakeRegistry = Callable[[], Registry]
MakeStore = Callable[[], str]


class Clock:
    """Advances by one second per call, unless it is stopped."""

    def __init__(self) -> None:
        self.ticks, self.now = count(1), 0
        self.is_stopped = False

    def __call__(self) -> int:
        if not self.is_stopped:
            self.now = next(self.ticks) * 1_000_000
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.xdist_group("postgres")]),
    ]
)
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Return a function that makes the path or URL of a new registry."""
    if request.param == "sqlite":
        return lambda: stores.new_file(tmp_path)
    url: str = request.getfixturevalue("postgres")
    return lambda: stores.new_schema(url)


@pytest.fixture
def where(new_store: MakeStore) -> str:
    return new_store()


@pytest.fixture
def make(where: str, clock: Clock) -> Iterator[MakeRegistry]:
    """Return a function that opens the same registry once more; all are closed at the end."""
    opened: list[Registry] = []

    def make() -> Registry:
        opened.append(open_registry(where, clock=clock))
        return opened[-1]

    yield make
    for registry in opened:
        registry.close()


@pytest.fixture
def registry(make: MakeRegistry) -> Registry:
    return make()
