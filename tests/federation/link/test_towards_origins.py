"""Filters are sent only towards the origin of a service, and outlive their broker."""

from __future__ import annotations

from tidegate.federation.routes import Broker, RouteTable, Sent
from tidegate.filters import Filter

FAST, SLOW = Filter("speed > 60"), Filter("speed < 9")


def carried(brokers: dict[str, Broker], sent: list[Sent], source: str) -> None:
    """Bring messages to where they go, and what follows from them."""
    waiting = [(source, each) for each in sent]
    while waiting:
        came_from, (to, message) = waiting.pop(0)
        waiting += [(to, each) for each in brokers[to].receive(came_from, message)]


def line(leads: dict[str, str]) -> dict[str, Broker]:
    """Three brokers in a line; `leads` decides where the middle one sends filters."""
    middle = Broker("b", leads=lambda service, neighbour: leads.get(service) == neighbour)
    brokers = {"a": Broker("a", leads=lambda _, __: False), "b": middle, "c": Broker("c", leads=lambda _, __: False)}
    for one, other in (("a", "b"), ("b", "c")):
        first, second = brokers[one].connect(other), brokers[other].connect(one)
        carried(brokers, first, one)
        carried(brokers, second, other)
    return brokers


def test_filter_is_requested_only_towards_the_origin() -> None:
    leads = {"gps@c": "c"}
    brokers = line(leads)
    carried(brokers, brokers["b"].subscribe("gps@c", "s", FAST), "b")
    assert list(brokers["c"].link("b").routes("gps@c").values()) == [FAST]
    assert brokers["a"].link("b").routes("gps@c") == {}
    leads["gps@c"] = "a"  # the link was moved
    carried(brokers, brokers["b"].reconsider("gps@c"), "b")
    assert brokers["c"].link("b").routes("gps@c") == {}
    assert list(brokers["a"].link("b").routes("gps@c").values()) == [FAST]
    carried(brokers, brokers["b"].change("gps@c", "s", SLOW), "b")
    assert list(brokers["a"].link("b").routes("gps@c").values()) == [SLOW]
    assert brokers["b"].reconsider("gps@c") == []


def test_restarted_broker_restores_needs_of_its_neighbours() -> None:
    brokers = line({})
    brokers["a"] = Broker("a")
    carried(brokers, brokers["a"].connect("b"), "a")
    carried(brokers, brokers["b"].connect("a"), "b")
    carried(brokers, brokers["a"].subscribe("gps@c", "s", FAST), "a")
    (kept,) = brokers["b"].link("a").tables()
    assert kept == RouteTable("gps@c", kept.state, kept.entries)
    again = brokers["b"] = Broker("b", leads=lambda service, neighbour: (service, neighbour) == ("gps@c", "c"))
    again.restore("a", [kept])
    assert list(again.link("a").requested("gps@c").values()) == []
    carried(brokers, again.connect("c"), "b")
    carried(brokers, brokers["c"].connect("b"), "c")
    assert list(brokers["c"].link("b").routes("gps@c").values()) == [FAST]
    assert list(again.link("a").routes("gps@c").values()) == [FAST]
