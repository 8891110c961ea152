"""Durable subscriptions in a registry: records, cursors and delivery state."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.registry.conftest import MakeRegistry
from tests.registry.test_definitions import CITY
from tidegate import NotRegistered, RegistryError, VersionConflict
from tidegate.registry import Registry
from tidegate.services import loads
from tidegate.subscriptions import SubscriptionRecord, Webhook

PLAIN = SubscriptionRecord("s1", "fast")
FULL = SubscriptionRecord(
    "s2",
    "cars",
    filter="vid LIKE %0 AND speed > %1",
    params=("B%", 60, 1.5, True, None, [1, "two"]),
    deliver=Webhook("https://example.org/hook", ("whsec_b", "whsec_a"), batch=10),
    select=("vid", "time"),
    format="plain",
    every_s=1.5,
    key="vid",
    idle_s=60.0,
    description="Früh\0stück \udc80",
    owner="key_1",
)


@pytest.fixture
def city(registry: Registry) -> Registry:
    registry.apply(CITY)
    return registry


def at(second: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


@pytest.mark.parametrize("subscription", [PLAIN, FULL])
def test_subscription_is_stored(city: Registry, make: MakeRegistry, subscription: SubscriptionRecord) -> None:
    registered = city.subscribe(subscription, "c1")
    assert registered.subscription == subscription
    assert (registered.version, registered.cursor) == (1, "c1")
    assert (registered.created_at, registered.changed_at) == (at(5), at(5))
    assert (registered.state, registered.reason, registered.attempts, registered.retry_at) == ("active", None, 0, None)
    assert make().subscription(subscription.id) == registered
    assert city.subscriptions() == {subscription.id: registered}


def test_subscription_can_start_without_a_cursor(city: Registry) -> None:
    assert city.subscribe(PLAIN, None).cursor is None


def test_subscriptions_are_found_by_service_and_owner(city: Registry) -> None:
    for name, service, owner in (("z", "fast", "ann"), ("y", "fast", None), ("x", "cars", "ann")):
        city.subscribe(SubscriptionRecord(name, service, owner=owner), None)
    assert list(city.subscriptions()) == ["z", "y", "x"]
    assert list(city.subscriptions(service="fast")) == ["z", "y"]
    assert list(city.subscriptions(owner="ann")) == ["z", "x"]
    assert list(city.subscriptions("cars", "ann")) == ["x"]
    assert city.subscriptions(service="nothing") == {}


def test_subscription_to_an_unknown_service_is_refused(city: Registry) -> None:
    with pytest.raises(NotRegistered, match=r"^there is no service 'fats'$"):
        city.subscribe(SubscriptionRecord("s", "fats"), None)
    with pytest.raises(NotRegistered, match=r"^there is no service 'gps'$"):
        city.subscribe(SubscriptionRecord("s", "gps"), None)
    assert (city.subscriptions(), city.subscriptions_revision()) == ({}, 0)


def test_id_in_use_is_refused(city: Registry) -> None:
    city.subscribe(PLAIN, None)
    with pytest.raises(RegistryError, match=r"^the id 's1' is in use$"):
        city.subscribe(replace(FULL, id="s1"), None)
    city.unsubscribe("s1")
    assert city.subscribe(PLAIN, None).version == 1


@pytest.mark.parametrize("value", [object(), float("nan"), b"bytes"])
def test_values_that_json_can_not_express_are_refused(city: Registry, value: object) -> None:
    with pytest.raises(RegistryError, match=r"^expected a subscription of JSON values: "):
        city.subscribe(replace(PLAIN, params=(value,)), None)


def test_change_makes_a_new_version(city: Registry) -> None:
    registered = city.subscribe(PLAIN, "c1")
    city.note_attempt("s1", 2, at(100))
    changed = city.change_subscription(replace(PLAIN, filter="speed > 90"), version=registered.version)
    assert changed.subscription.filter == "speed > 90"
    assert (changed.version, changed.cursor, changed.attempts) == (2, "c1", 2)
    assert (changed.created_at, changed.changed_at) == (at(5), at(6))
    assert city.change_subscription(replace(PLAIN, owner="ann")).version == 3
    assert city.subscription("s1").subscription == replace(PLAIN, owner="ann")


def test_change_to_the_same_values_makes_no_version(city: Registry) -> None:
    registered = city.subscribe(FULL, None)
    assert city.change_subscription(FULL) == registered
    assert city.enable("s2") == registered
    disabled = city.disable("s2", "away")
    assert city.disable("s2", "away") == disabled
    assert city.subscriptions_revision() == 2


def test_change_of_an_old_version_is_refused(city: Registry) -> None:
    city.subscribe(PLAIN, None)
    city.change_subscription(replace(PLAIN, filter="speed > 90"))
    with pytest.raises(VersionConflict) as caught:
        city.change_subscription(replace(PLAIN, filter="speed > 70"), version=1)
    assert str(caught.value) == "subscription 's1' has version 2 by now, not 1: read it again"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert city.subscription("s1").subscription.filter == "speed > 90"
    assert city.subscriptions_revision() == 2


def test_subscription_can_not_change_its_service(city: Registry) -> None:
    city.subscribe(PLAIN, None)
    with pytest.raises(RegistryError) as caught:
        city.change_subscription(replace(PLAIN, service="cars"))
    assert str(caught.value) == (
        "subscription 's1' belongs to the service 'fast', and so does its cursor; create a new subscription for 'cars'"
    )


def test_moving_a_cursor_changes_no_version(city: Registry) -> None:
    registered = city.subscribe(PLAIN, "c1")
    city.subscribe(FULL, "c1")
    before = (city.revision(), city.subscriptions_revision())
    city.acknowledge("s1", "c2")
    assert city.subscription("s1") == replace(registered, cursor="c2")
    city.acknowledge_all({"s2": "c4", "s1": "c3", "gone": "c5"})
    city.acknowledge_all({})
    assert [registered.cursor for registered in city.subscriptions().values()] == ["c3", "c4"]
    assert (city.revision(), city.subscriptions_revision()) == before


def test_noting_attempts_changes_no_version(city: Registry) -> None:
    registered = city.subscribe(PLAIN, "c1")
    before = city.subscriptions_revision()
    city.note_attempt("s1", 3, at(90))
    assert city.subscription("s1") == replace(registered, attempts=3, retry_at=at(90))
    city.acknowledge("s1", "c2")
    assert city.subscription("s1").attempts == 3
    city.note_attempt("s1", 0, None)
    assert city.subscription("s1") == replace(registered, cursor="c2")
    assert city.subscriptions_revision() == before


def test_disabled_subscription_has_a_reason_and_can_be_enabled(city: Registry) -> None:
    city.subscribe(PLAIN, "c1")
    city.note_attempt("s1", 9, at(90))
    disabled = city.disable("s1", "410\0 Gone")
    assert (disabled.state, disabled.reason, disabled.cursor) == ("disabled", "410\ufffd Gone", "c1")
    assert (disabled.version, disabled.attempts) == (2, 9)
    assert city.disable("s1", "by its owner").reason == "by its owner"
    enabled = city.enable("s1")
    assert (enabled.state, enabled.reason, enabled.version) == ("active", None, 4)
    assert (enabled.cursor, enabled.attempts, enabled.retry_at) == ("c1", 0, None)


def test_unsubscribing_removes_dead_letters(city: Registry) -> None:
    city.subscribe(PLAIN, None)
    city.add_dead_letter("s1", "c2", b"{}", "410 Gone", 5)
    city.unsubscribe("s1")
    assert city.subscriptions() == {}
    city.subscribe(PLAIN, None)
    assert city.dead_letters("s1") == []


@pytest.mark.parametrize("name", ["nothing", "s2", "nu\0l", "half \ud800"])
def test_unknown_subscription_raises_without_a_hint(city: Registry, name: str) -> None:
    city.subscribe(PLAIN, None)
    before = city.subscriptions_revision()
    for ask in (
        lambda: city.subscription(name),
        lambda: city.change_subscription(replace(PLAIN, id=name)),
        lambda: city.acknowledge(name, "c"),
        lambda: city.note_attempt(name, 1, None),
        lambda: city.disable(name, "why"),
        lambda: city.enable(name),
        lambda: city.unsubscribe(name),
        lambda: city.add_dead_letter(name, "c", b"", "why", 1),
        lambda: city.dead_letters(name),
        lambda: city.remove_dead_letters(name, [1]),
    ):
        with pytest.raises(NotRegistered) as caught:
            ask()
        assert str(caught.value) == f"there is no subscription {name!r}"  # no hint: it could be somebody else's id
    assert city.subscriptions_revision() == before


def test_revisions_of_definitions_and_subscriptions_are_independent(city: Registry, make: MakeRegistry) -> None:
    other = make()
    definitions, seen = other.revision(), [other.subscriptions_revision()]
    for change in (
        lambda: city.subscribe(PLAIN, None),
        lambda: city.change_subscription(replace(PLAIN, filter="speed > 90")),
        lambda: city.disable("s1", "why"),
        lambda: city.enable("s1"),
        lambda: city.unsubscribe("s1"),
    ):
        change()
        seen.append(other.subscriptions_revision())
    assert seen == [0, 1, 2, 3, 4, 5]
    assert other.revision() == definitions
    city.apply(loads("services: {fast: {from: gps, pipeline: [{filter: speed > 90}]}}"))
    assert (other.revision(), other.subscriptions_revision()) == (definitions + 1, 5)


# Removed services ------------------------------------------------------------------


def test_service_with_subscriptions_is_not_removed_without_force(city: Registry) -> None:
    city.subscribe(SubscriptionRecord("a", "cars"), None)
    with pytest.raises(RegistryError) as caught:
        city.remove("cars")
    assert str(caught.value) == "'cars' can't be removed: it has 1 subscription (force removes it and disables them)"
    city.subscribe(SubscriptionRecord("b", "cars"), None)
    before = (city.revision(), city.subscriptions_revision())
    with pytest.raises(RegistryError, match=r"^'cars' can't be removed: it has 2 subscriptions \(force"):
        city.remove("cars")
    with pytest.raises(RegistryError, match="'cars' can't be removed: it has 2 subscriptions"):
        city.apply(loads("streams: {a: {schema: {a: bool}}}"), prune=True)
    with pytest.raises(RegistryError, match="'cars' can't be removed: it has 2 subscriptions"):
        city.apply(loads("streams: {cars: {schema: {vid: string, time: timestamp}}}"))
    assert city.definitions() == CITY
    assert (city.revision(), city.subscriptions_revision()) == before


def test_forced_removal_disables_subscriptions(city: Registry) -> None:
    city.subscribe(SubscriptionRecord("a", "cars"), "c1")
    city.subscribe(SubscriptionRecord("b", "cars"), "c1")
    city.subscribe(PLAIN, "c1")
    city.disable("b", "away")
    before = city.subscriptions_revision()
    assert city.remove("cars", force=True) == 1
    subscriptions = city.subscriptions()
    assert (subscriptions["a"].state, subscriptions["a"].reason) == ("disabled", "the service 'cars' was removed")
    assert (subscriptions["a"].version, subscriptions["a"].cursor) == (2, "c1")
    assert (subscriptions["b"].reason, subscriptions["b"].version, subscriptions["s1"].state) == ("away", 2, "active")
    assert city.subscriptions_revision() == before + 1
    with pytest.raises(NotRegistered, match=r"^there is no service 'cars'"):
        city.enable("a")
    city.apply(CITY)
    assert city.enable("a").state == "active"


@pytest.mark.parametrize(
    ("text", "prune"),
    [
        ("streams: {a: {schema: {a: bool}}}", True),
        ("streams: {cars: {schema: {vid: string, time: timestamp}}}", False),
    ],
)
def test_forced_prune_disables_subscriptions(city: Registry, text: str, prune: bool) -> None:
    city.subscribe(SubscriptionRecord("a", "cars"), "c1")
    city.apply(loads(text), prune=prune, force=True)
    assert city.subscription("a").reason == "the service 'cars' was removed"


def test_force_does_not_remove_an_input_of_a_service(city: Registry) -> None:
    with pytest.raises(RegistryError, match="'fast' can't be removed: cars reads it"):
        city.remove("fast", force=True)


def test_stream_that_replaced_a_service_can_be_removed(city: Registry) -> None:
    city.subscribe(SubscriptionRecord("a", "cars"), None)
    city.apply(loads("streams: {cars: {schema: {vid: string, time: timestamp}}}"), force=True)
    assert city.remove("cars") == 2
