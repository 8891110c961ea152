"""Who runs the services, where several could."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest

from tidegate.cli.processes.runner_lease import NAME, turn
from tidegate.errors import EnvironmentProblem
from tidegate.registry import SqliteRegistry


@pytest.fixture
def registry(tmp_path: Path) -> SqliteRegistry:
    return SqliteRegistry(tmp_path / "registry.sqlite")


def test_the_second_stands_by_and_takes_over(registry: SqliteRegistry) -> None:
    looked, has_begun, stop = Event(), Event(), Event()

    def stand_by() -> None:
        with turn(registry, stop, looked.set) as is_ours:
            assert is_ours
            has_begun.set()
            stop.wait()

    thread = Thread(target=stand_by)
    with turn(registry, Event()) as is_ours:
        assert is_ours
        thread.start()
        assert looked.wait(120)
        assert not has_begun.is_set()
    assert has_begun.wait(120)
    stop.set()
    thread.join()
    assert registry.leases() == {}


def test_told_to_stop_before_its_turn(registry: SqliteRegistry) -> None:
    stop = Event()
    with turn(registry, Event()), turn(registry, stop, stop.set) as is_ours:
        assert not is_ours


def test_one_whose_turn_another_took_stops_and_says_so(registry: SqliteRegistry) -> None:
    stop = Event()

    def lose() -> None:
        with turn(registry, stop, renew_s=0.5):
            registry.release(NAME, registry.leases()[NAME].holder)
            assert registry.lease(NAME, "another", 60)
            assert stop.wait(120)

    with pytest.raises(EnvironmentProblem, match="another process runs the services of this registry now"):
        lose()
    assert registry.leases()[NAME].holder == "another"
