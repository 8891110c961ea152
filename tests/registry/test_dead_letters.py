"""Dead letters in a registry."""

from __future__ import annotations

import pytest

from tests.registry.test_definitions import CITY
from tests.registry.test_subscriptions import FULL, PLAIN, at
from tidegate.registry import Registry


@pytest.fixture
def city(registry: Registry) -> Registry:
    registry.apply(CITY)
    return registry


def test_dead_letters_are_returned_in_order(city: Registry) -> None:
    city.subscribe(PLAIN, None)
    city.subscribe(FULL, None)
    before = city.subscriptions_revision()
    first = city.add_dead_letter("s1", "c2", b'{"vid": "\xff\0"}', "410\0 Gone", 5)
    assert (first.subscription, first.cursor, first.record) == ("s1", "c2", b'{"vid": "\xff\0"}')
    assert (first.error, first.attempts, first.at) == ("410\ufffd Gone", 5, at(7))
    rest = [city.add_dead_letter("s1", f"c{n}", b"{}", "why", 1) for n in range(3)]
    city.add_dead_letter("s2", "c", b"{}", "why", 1)
    assert city.dead_letters("s1") == [first, *rest]
    assert city.dead_letters("s1", limit=2) == [first, rest[0]]
    assert city.dead_letters("s1", after=rest[0].id, limit=2) == rest[1:]
    assert len(city.dead_letters("s2")) == 1
    assert city.subscriptions_revision() == before


def test_dead_letters_are_removed_by_id(city: Registry) -> None:
    city.subscribe(PLAIN, None)
    city.subscribe(FULL, None)
    mine = [city.add_dead_letter("s1", "c", b"{}", "why", 1) for _ in range(3)]
    other = city.add_dead_letter("s2", "c", b"{}", "why", 1)
    assert city.remove_dead_letters("s1", (mine[0].id, mine[2].id, other.id, 99)) == 2
    assert city.remove_dead_letters("s1", []) == 0
    assert city.dead_letters("s1") == [mine[1]]
    assert city.dead_letters("s2") == [other]


def test_id_of_a_removed_dead_letter_is_not_reused(city: Registry) -> None:
    city.subscribe(PLAIN, None)
    first = city.add_dead_letter("s1", "c", b"{}", "why", 1)
    city.remove_dead_letters("s1", [first.id])
    assert city.add_dead_letter("s1", "c", b"{}", "why", 1).id > first.id
