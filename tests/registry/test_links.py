"""Links to other brokers in a registry."""

from __future__ import annotations

import pytest

from tests.registry.conftest import MakeRegistry
from tidegate import NotRegistered, RegistryError
from tidegate.registry import Registry
from tidegate.subscriptions import SubscriptionRecord

SECRET = "what both ends of a link know"


def test_link_is_stored_with_its_states(registry: Registry, make: MakeRegistry) -> None:
    link = registry.add_link("city", "https://city.example", SECRET, ["gps", "cars", "gps"])
    assert (link.name, link.url, link.secret) == ("city", "https://city.example", SECRET)
    assert link.services == ("cars", "gps")
    assert SECRET not in repr(link)
    awaited = registry.add_link("fleet")
    assert (awaited.url, awaited.services, len(awaited.secret)) == (None, None, 43)
    other = make()
    assert other.links() == {"city": link, "fleet": awaited}
    registry.save_link_states("city", {("mirror", "gps@city"): "1", ("routes", "gps@me"): "2"})
    registry.save_link_states("city", {("mirror", "gps@city"): "3", ("routes", "gps@me"): None})
    assert other.link_states("city") == {("mirror", "gps@city"): "3"}
    assert other.link_states("fleet") == {}
    registry.remove_link("city")
    assert list(other.links()) == ["fleet"]
    registry.save_link_states("city", {("mirror", "gps@city"): "4"})
    assert other.link_states("city") == {}


def test_bad_link_is_refused_with_a_reason(registry: Registry) -> None:
    registry.add_link("city")
    for name, url, secret, problem in (
        ("city", None, None, "there is a link to 'city' already; remove it first"),
        ("a@b", None, None, "expected a broker's name of letters, digits, _ and -, at most 40, not 'a@b'"),
        ("b", "city", None, "expected the URL of a gateway, such as https://city.example:8080, not 'city'"),
        ("b", None, "guess me", "expected a secret of at least 24 characters, not 8"),
    ):
        with pytest.raises(RegistryError) as error:
            registry.add_link(name, url, secret)
        assert str(error.value) == problem
    with pytest.raises(NotRegistered, match="there is no link to 'citi'; did you mean 'city'"):
        registry.remove_link("citi")
    assert list(registry.links()) == ["city"]


def test_subscription_to_a_service_of_another_broker_is_accepted(registry: Registry) -> None:
    registry.subscribe(SubscriptionRecord("s1", "gps@city"), None)
    assert registry.subscription("s1").subscription.service == "gps@city"
    with pytest.raises(NotRegistered, match="there is no service 'gps'"):
        registry.subscribe(SubscriptionRecord("s2", "gps"), None)
