"""Leases in a registry. The tests set the clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.registry.conftest import Clock, MakeRegistry
from tidegate import RegistryError
from tidegate.registry import Registry


@pytest.fixture(autouse=True)
def _stopped_clock(clock: Clock) -> None:
    clock.is_stopped = True


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_lease_belongs_to_one_holder_until_it_expires(make: MakeRegistry, clock: Clock) -> None:
    one, other = make(), make()
    assert one.leases() == {}
    assert one.lease("work", "one", 10)
    assert not other.lease("work", "other", 10)
    assert other.leases() == {"work": ("one", at(10))}
    clock.now = 9_999_999
    assert not other.lease("work", "other", 10)
    clock.now = 10_000_000
    assert other.leases() == {}
    assert other.lease("work", "other", 2.5)
    assert not one.lease("work", "one", 10)
    assert one.leases()["work"].holder == "other"
    assert one.leases()["work"].until == at(12.5)


def test_holder_renews_its_lease(registry: Registry, clock: Clock) -> None:
    assert registry.lease("work", "one", 10)
    clock.now = 5_000_000
    assert registry.lease("work", "one", 10)
    assert registry.leases() == {"work": ("one", at(15))}
    assert registry.lease("work", "one", 1)
    assert registry.leases() == {"work": ("one", at(6))}


def test_released_lease_can_be_taken(registry: Registry) -> None:
    registry.lease("work", "one", 10)
    registry.release("work", "other")
    registry.release("nothing", "one")
    assert not registry.lease("work", "other", 10)
    registry.release("work", "one")
    assert registry.leases() == {}
    assert registry.lease("work", "other", 10)


def test_leases_of_different_names_are_independent(registry: Registry) -> None:
    assert registry.lease("b", "one", 10)
    assert registry.lease("a", "other", 20)
    assert list(registry.leases().items()) == [("a", ("other", at(20))), ("b", ("one", at(10)))]


def test_leases_do_not_increment_revisions(registry: Registry) -> None:
    registry.lease("work", "one", 10)
    registry.release("work", "one")
    assert (registry.revision(), registry.subscriptions_revision()) == (0, 0)


def test_lease_of_zero_seconds_is_refused(registry: Registry) -> None:
    with pytest.raises(RegistryError, match=r"^expected a lease of more than 0 seconds, got 0$"):
        registry.lease("work", "one", 0)
