"""Every test that asks for `where`, `make` or `registry` runs with both databases."""

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
    """Ticks a second each time that it is asked, unless it stands."""

    def __init__(self) -> None:
        self.ticks, self.now = count(1), 0
        self.stands = False

    def __call__(self) -> int:
        if not self.stands:
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
    """What gives a place for a new registry, each time that it is called."""
    if request.param == "sqlite":
        return lambda: stores.new_file(tmp_path)
    url: str = request.getfixturevalue("postgres")
    return lambda: stores.new_schema(url)


@pytest.fixture
def where(new_store: MakeStore) -> str:
    return new_store()


@pytest.fixture
def make(where: str, clock: Clock) -> Iterator[MakeRegistry]:
    """What opens registries over one and the same store."""
    made: list[Registry] = []

    def make() -> Registry:
        made.append(open_registry(where, clock=clock))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def registry(make: MakeRegistry) -> Registry:
    return make()
