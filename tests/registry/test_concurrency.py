"""Threads and processes that change one registry at the same time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Barrier
from typing import TypeVar

import pytest

from tests.registry.conftest import Clock, MakeRegistry, MakeStore
from tests.registry.test_definitions import CITY
from tidegate import NotRegistered, RegistryError, VersionConflict
from tidegate.registry import Registry, open_registry
from tidegate.subscriptions import SubscriptionRecord

THREADS = 4
T = TypeVar("T")


def run_concurrently(work: Callable[[int], T]) -> list[T]:
    """Run `work` in several threads that start together, and return their results."""
    start = Barrier(THREADS)

    def run(n: int) -> T:
        start.wait(30)
        return work(n)

    with ThreadPoolExecutor(THREADS) as pool:
        return [future.result(60) for future in [pool.submit(run, n) for n in range(THREADS)]]


@pytest.fixture
def city(registry: Registry) -> Registry:
    registry.apply(CITY)
    return registry


def test_expired_lease_goes_to_one_of_many_callers(registry: Registry, clock: Clock) -> None:
    clock.is_stopped = True
    for round_ in range(10):
        clock.now = round_ * 10_000_000
        won = run_concurrently(lambda n: registry.lease("work", f"holder {n}", 10))
        assert sorted(won) == [False] * (THREADS - 1) + [True]
        assert registry.leases()["work"].holder == f"holder {won.index(True)}"


LEASE = """
import sys
from tidegate.registry import open_registry
where, me = sys.argv[1:]
registry = open_registry(where)
print("ready", flush=True)
sys.stdin.readline()
print(*(n for n in range(40) if registry.lease(f"work {n}", me, 3600)))
registry.close()
"""


def test_each_lease_goes_to_one_of_many_processes(where: str) -> None:
    open_registry(where).close()
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-c", LEASE, where, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two", "three")
    }
    for process in processes.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = {name: process.communicate(timeout=60)[0].split() for name, process in processes.items()}
    assert sorted(int(n) for numbers in won.values() for n in numbers) == list(range(40))
    registry = open_registry(where)
    holders = {name: lease.holder for name, lease in registry.leases().items()}
    assert holders == {f"work {n}": name for name, numbers in won.items() for n in numbers}
    registry.close()


def test_threads_open_a_new_registry_concurrently(new_store: MakeStore) -> None:
    for _ in range(10):
        where = new_store()
        for opened in run_concurrently(lambda _, where=where: open_registry(where)):  # type: ignore[misc]
            assert opened.revision() == 0
            opened.close()


def test_one_of_many_concurrent_changes_of_a_version_succeeds(city: Registry) -> None:
    city.subscribe(SubscriptionRecord("s", "fast"), None)

    def change(n: int) -> bool:
        try:
            city.change_subscription(SubscriptionRecord("s", "fast", description=str(n)), version=1)
        except VersionConflict:
            return False
        return True

    won = run_concurrently(change)
    assert sorted(won) == [False] * (THREADS - 1) + [True]
    assert city.subscription("s").subscription.description == str(won.index(True))
    assert city.subscription("s").version == city.subscriptions_revision() == 2


def test_changes_with_versions_lose_no_update(make: MakeRegistry) -> None:
    registries = [make() for _ in range(THREADS)]
    registries[0].apply(CITY)
    registries[0].subscribe(SubscriptionRecord("s", "fast", description="0"), None)

    def count_up(n: int) -> None:
        done = 0
        while done < 5:
            seen = registries[n].subscription("s")
            changed = replace(seen.subscription, description=str(int(seen.subscription.description) + 1))
            with suppress(VersionConflict):
                registries[n].change_subscription(changed, seen.version)
                done += 1

    run_concurrently(count_up)
    seen = registries[0].subscription("s")
    assert (seen.subscription.description, seen.version) == (str(5 * THREADS), 5 * THREADS + 1)
    assert registries[0].subscriptions_revision() == 5 * THREADS + 1


def test_one_of_many_concurrent_subscribers_gets_the_id(city: Registry) -> None:
    def subscribe(n: int) -> bool:
        try:
            city.subscribe(SubscriptionRecord("s", "fast", description=str(n)), None)
        except RegistryError:
            return False
        return True

    assert sorted(run_concurrently(subscribe)) == [False] * (THREADS - 1) + [True]


def test_cursors_and_a_removal_do_not_deadlock(city: Registry) -> None:
    """Threads move cursors in opposite orders while one removes the service: no deadlock, and no lost update."""
    names = [f"s{n}" for n in range(20)]
    for name in names:
        city.subscribe(SubscriptionRecord(name, "cars"), None)

    def work(n: int) -> None:
        if n == 0:
            city.remove("cars", force=True)
        for turn in range(10):
            ordered = names if n % 2 else names[::-1]
            city.acknowledge_all(dict.fromkeys(ordered, f"{n}-{turn}"))

    run_concurrently(work)
    subscriptions = city.subscriptions().values()
    assert {subscription.state for subscription in subscriptions} == {"disabled"}
    assert len({subscription.cursor for subscription in subscriptions}) == 1
    assert {subscription.version for subscription in subscriptions} == {2}


def test_service_that_is_being_removed_gets_no_active_subscription(city: Registry) -> None:
    def work(n: int) -> None:
        if n == 0:
            city.remove("cars", force=True)
            return
        for m in range(5):
            with suppress(NotRegistered):
                city.subscribe(SubscriptionRecord(f"s{n}-{m}", "cars"), None)

    run_concurrently(work)
    assert {subscription.state for subscription in city.subscriptions("cars").values()} <= {"disabled"}
