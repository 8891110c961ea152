"""The lease of the runner: one process runs the services of a registry."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest

from tidegate.cli.processes.runner_lease import NAME, runner_lease
from tidegate.errors import EnvironmentProblem
from tidegate.registry import SqliteRegistry


@pytest.fixture
def registry(tmp_path: Path) -> SqliteRegistry:
    return SqliteRegistry(tmp_path / "registry.sqlite")


def test_second_process_waits_and_takes_over(registry: SqliteRegistry) -> None:
    waited, has_begun, stop = Event(), Event(), Event()

    def stand_by() -> None:
        with runner_lease(registry, stop, waited.set) as is_held:
            assert is_held
            has_begun.set()
            stop.wait()

    thread = Thread(target=stand_by)
    with runner_lease(registry, Event()) as is_held:
        assert is_held
        thread.start()
        assert waited.wait(120)
        assert not has_begun.is_set()
    assert has_begun.wait(120)
    stop.set()
    thread.join()
    assert registry.leases() == {}


def test_stop_while_standing_by_yields_no_lease(registry: SqliteRegistry) -> None:
    stop = Event()
    with runner_lease(registry, Event()), runner_lease(registry, stop, stop.set) as is_held:
        assert not is_held


def test_process_that_loses_its_lease_stops_and_raises(registry: SqliteRegistry) -> None:
    stop = Event()

    def lose() -> None:
        with runner_lease(registry, stop, renew_s=0.5):
            registry.release(NAME, registry.leases()[NAME].holder)
            assert registry.lease(NAME, "another", 60)
            assert stop.wait(120)

    with pytest.raises(EnvironmentProblem, match="another process runs the services of this registry now"):
        lose()
    assert registry.leases()[NAME].holder == "another"
