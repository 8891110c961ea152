"""Leases in a registry. The tests set the clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.registry.conftest import Clock, MakeRegistry
from tidegate import RegistryError
from tidegate.errors import LeaseLost
from tidegate.registry import Fence, Registry
from tidegate.services import loads
from tidegate.subscriptions import SubscriptionRecord


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


def test_many_leases_are_taken_renewed_and_released_together(registry: Registry, clock: Clock) -> None:
    names = [f"webhook/{n}" for n in range(700)]
    assert registry.lease("webhook/3", "other", 5)
    assert registry.lease("runner", "one", 5)
    mine = set(names) - {"webhook/3"}
    assert registry.lease_all(names, "one", 10) == mine
    assert registry.lease_all(names[:5], "third", 10) == set()
    clock.now = 5_000_000
    assert registry.lease_all(names, "one", 10) == set(names), "the other lease has ended"
    assert {lease.until for lease in registry.leases().values()} == {at(15)}
    registry.release_all(names, "other")
    assert registry.leases().keys() == set(names)
    registry.release_all(names[1:], "one")
    assert registry.leases() == {"webhook/0": ("one", at(15))}
    assert registry.lease_all([], "one", 10) == set()
    with pytest.raises(RegistryError, match=r"^expected leases of more than 0 seconds, got 0$"):
        registry.lease_all(names, "one", 0)


def test_writes_about_a_subscription_need_its_lease(registry: Registry, clock: Clock) -> None:
    registry.apply(loads("streams: {raw: {schema: {n: int64}}}\nservices: {gps: {from: raw}}"))
    for id_ in ("a", "b"):
        registry.subscribe(SubscriptionRecord(id_, "gps", ""), "start")
    fence = Fence("one", "webhook/")
    registry.lease_all(["webhook/a"], "one", 10)
    registry.lease_all(["webhook/b"], "other", 10)
    registry.acknowledge_all({"a": "1", "b": "1"}, fence)
    assert [registry.subscription(id_).cursor for id_ in ("a", "b")] == ["1", "start"]
    registry.note_attempt("a", 2, None, fence)
    assert registry.add_dead_letter("a", "1", b"{}", "why", 2, fence).subscription == "a"
    for lost, second in (("b", 0), ("a", 10)):  # one that another holder has, and one that has ended
        clock.now = second * 1_000_000
        registry.acknowledge_all({lost: "2"}, fence)
        with pytest.raises(LeaseLost, match=rf"^webhook/{lost} is not leased to one any more$"):
            registry.note_attempt(lost, 3, None, fence)
        with pytest.raises(LeaseLost):
            registry.add_dead_letter(lost, "2", b"{}", "why", 3, fence)
    assert [registry.subscription(id_).cursor for id_ in ("a", "b")] == ["1", "start"]
    assert [registry.subscription(id_).attempts for id_ in ("a", "b")] == [2, 0]
    registry.acknowledge_all({"a": "2"})
    assert registry.subscription("a").cursor == "2", "a consumer that acknowledges needs no lease"


def test_gateways_are_known_until_they_end_or_report_no_more(registry: Registry, clock: Clock) -> None:
    assert registry.gateways() == {}
    registry.report_gateway("a", '{"n":1}', 6)
    registry.report_gateway("b", "{}", 6)
    clock.now = 3_000_000
    registry.report_gateway("a", '{"n":2}', 6)
    assert registry.gateways() == {"a": '{"n":2}', "b": "{}"}
    clock.now = 6_000_000
    assert registry.gateways() == {"a": '{"n":2}'}
    registry.remove_gateway("a")
    registry.remove_gateway("a")
    assert registry.gateways() == {}
    with pytest.raises(RegistryError, match="expected a report that is valid for more than 0 seconds, got 0"):
        registry.report_gateway("a", "{}", 0)


def test_messages_are_taken_once_by_their_recipient(registry: Registry, clock: Clock) -> None:
    assert registry.take_messages("a") == []
    registry.send_message("a", b"1\n\0", 10)
    registry.send_message("b", b"2", 10)
    registry.send_message("a", b"3", 10)
    assert registry.take_messages("a") == [b"1\n\0", b"3"]
    assert registry.take_messages("a") == []
    clock.now = 10_000_000
    registry.send_message("a", b"4", 10)
    assert registry.take_messages("b") == [], "nobody has taken it in time"
    assert registry.take_messages("a") == [b"4"]
