"""The rules of routing by covering, one by one, between two and three brokers."""

from __future__ import annotations

import json
import re
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import LARGE_EXAMPLES
from tests.federation.network import SERVICE, Network
from tests.federation.routes.test_index import some_filters
from tests.federation.routes.test_law import EVENTS, FILTERS, SCHEMA
from tests.generate import event as random_event
from tests.generate import schema as random_schema
from tidegate.errors import FederationError, LinkRefused
from tidegate.federation.routes import (
    Broker,
    Hello,
    LinkRefusal,
    Message,
    Reach,
    RouteEntry,
    RouteTable,
    TableState,
    Update,
)
from tidegate.federation.routes.forest import MAX_ABSORBED, MAX_MOVES, Forest
from tidegate.federation.routes.index import RouteScanIndex
from tidegate.federation.routes.messages import from_json, to_json
from tidegate.federation.routes.table import MAX_STEP_FILTERS, Outgoing
from tidegate.filters import Filter
from tidegate.model import Enum, Schema


def pair(strategy: str = "covering") -> tuple[Network, Broker]:
    """Two brokers that know each other."""
    network = Network([("here", "there")], strategy)
    network.settle(Random(0))
    return network, network.brokers["here"]


def said(network: Network) -> list[Any]:
    """Deliver and return the messages from one broker to another."""
    found = list(network.queues["here", "there"])
    network.settle(Random(0))
    return found


def texts(update: Any) -> tuple[list[str], int]:
    """Return the filters that an update adds, and the number that it removes."""
    assert isinstance(update, Update)
    return [str(each.filter) for each in update.add], len(update.remove)


def test_covered_filter_is_not_requested() -> None:
    network, _ = pair()
    network.subscribe("here", "wide", Filter("a > 1"))
    assert [texts(each) for each in said(network)] == [(["a > 1"], 0)]
    network.subscribe("here", "narrow", Filter("a > 5"))
    assert said(network) == []


def test_requested_filter_replaces_entries_that_it_covers() -> None:
    network, _ = pair()
    network.subscribe("here", "narrow", Filter("a > 5"))
    network.subscribe("here", "other", Filter("b = 1"))
    said(network)
    network.subscribe("here", "wide", Filter("a > 1"))
    assert [texts(each) for each in said(network)] == [(["a > 1"], 1)]
    assert sorted(map(str, network.brokers["there"].link("here").routes(SERVICE).values())) == ["a > 1", "b = 1"]


def test_entry_stays_while_another_subscription_needs_it() -> None:
    network, here = pair()
    network.subscribe("here", "one", Filter("a > 1"))
    network.subscribe("here", "equal", Filter("a>1"))
    said(network)
    network.unsubscribe("here", "one")
    assert said(network) == []
    assert list(map(str, here.link("there").requested(SERVICE).values())) == ["a > 1"]


def test_removed_entry_is_replaced_by_filters_it_covered_in_one_step() -> None:
    network, _ = pair()
    for name, text in [("wide", "a > 1"), ("five", "a > 5"), ("seven", "a > 7"), ("b", "a > 3 AND b = 1")]:
        network.subscribe("here", name, Filter(text))
    said(network)
    network.unsubscribe("here", "wide")
    (update,) = said(network)
    assert texts(update) == (["a > 5", "a > 3 AND b = 1"], 1)


def test_changed_parameters_are_sent_in_one_step() -> None:
    network, _ = pair()
    fast = Filter("speed > %0", params=[60])
    network.subscribe("here", "fast", fast)
    said(network)
    network.subscribe("here", "fast", fast.with_params([80]))
    assert [texts(each) for each in said(network)] == [(["speed > 80"], 1)]
    network.subscribe("here", "fast", fast.with_params([80]))
    assert said(network) == []


def test_first_of_two_filters_that_cover_each_other_is_requested() -> None:
    network, here = pair()
    network.subscribe("here", "one", Filter("a > 1", SCHEMA))
    network.subscribe("here", "two", Filter("a >= 2", SCHEMA))
    assert list(map(str, here.link("there").requested(SERVICE).values())) == ["a > 1"]
    network.unsubscribe("here", "one")
    assert list(map(str, here.link("there").requested(SERVICE).values())) == ["a >= 2"]


def test_each_service_has_its_own_table() -> None:
    network, here = pair()
    network.send("here", here.subscribe("gps", "s", Filter("a > 1")))
    network.send("here", here.subscribe("plates", "s", Filter("a > 5")))
    network.settle(Random(0))
    there = network.brokers["there"]
    assert (there.towards("gps", {"a": 3}), there.towards("plates", {"a": 3})) == (["here"], [])


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a BETWEEN 1 AND 3", "a BETWEEN 4 AND 9", "a <= 9 AND a >= 1"),
        ("a = 1", "a IN (5, 9)", "a IN (1, 5, 9)"),
        ("b >= 1 AND b < 2", "b >= 2 AND b < 4", "b < 4 AND b >= 1"),
        ("b < 2 AND s = 'x'", "b >= 2 AND b < 7 AND s = 'x'", "b < 7 AND s = 'x'"),
        ("s = 'it''s'", "s = 'y'", "s IN ('it''s', 'y')"),
        ("s LIKE 'a%'", "s LIKE 'b%'", "s < 'c' AND s >= 'a'"),
        ("a = 1 AND b < 3", "a = 2 AND b < 3", "a IN (1, 2) AND b < 3"),
    ],
)
@pytest.mark.parametrize("typed", [False, True])
def test_exact_union_is_requested_as_one_filter(one: str, other: str, both: str, typed: bool) -> None:
    network, here = pair("merging")
    schema = SCHEMA if typed else None
    network.subscribe("here", "one", Filter(one, schema))
    network.subscribe("here", "other", Filter(other, schema))
    asked = list(here.link("there").requested(SERVICE).values())
    if typed or " 4 AND 9" not in other:  # where no schema says that a is whole, 3.5 lies between
        (found,) = asked
        assert found.covers(Filter(both, schema))
        assert Filter(both, schema).covers(found)
    network.unsubscribe("here", "one")
    assert list(here.link("there").requested(SERVICE).values()) == [Filter(other, schema)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("b < 2", "b > 2"),
        ("b < 2 AND s = 'x'", "b >= 2 AND s = 'y'"),
        ("b < 2", "b >= 2"),  # every number: no range says so
        ("s LIKE '%x'", "s LIKE '%y'"),
        ("b < 2 OR s = 'x'", "b = 3"),
    ],
)
def test_filters_without_an_exact_union_are_not_merged(one: str, other: str) -> None:
    network, here = pair("merging")
    network.subscribe("here", "one", Filter(one, SCHEMA))
    network.subscribe("here", "other", Filter(other, SCHEMA))
    assert set(here.link("there").requested(SERVICE).values()) == {Filter(one, SCHEMA), Filter(other, SCHEMA)}


def test_merged_filter_with_a_subscription_outlives_its_parts() -> None:
    network, here = pair("merging")
    for name, text in [("one", "a = 1"), ("three", "a = 3"), ("both", "a IN (1, 3)")]:
        network.subscribe("here", name, Filter(text, SCHEMA))
    network.unsubscribe("here", "one")
    assert list(here.link("there").requested(SERVICE).values()) == [Filter("a IN (1, 3)", SCHEMA)]
    network.unsubscribe("here", "both")
    assert list(here.link("there").requested(SERVICE).values()) == [Filter("a = 3", SCHEMA)]


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_merged_table_matches_the_same_events_as_its_filters(seed: int) -> None:
    rng = Random(seed)
    schema = random_schema(rng, 2)
    network, here = pair("merging")
    filters = some_filters(rng, schema, True, 12)
    for n, each in enumerate(filters):
        network.subscribe("here", f"s{n}", each)
    for n in rng.sample(range(12), 5):
        network.unsubscribe("here", f"s{n}")
    for _ in range(20):
        event = random_event(rng, schema)
        needed = any(each.matches(event) for each in here.local(SERVICE).values())
        assert any(each.matches(event) for each in here.link("there").requested(SERVICE).values()) == needed, event


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_forest_is_the_same_with_box_index_and_scan(seed: int) -> None:
    rng = Random(seed)
    fast, slow = Outgoing("gps", Forest()), Outgoing("gps", Forest(index=RouteScanIndex()))
    held: list[int] = []
    for number in range(60):
        put = {number: rng.choice(FILTERS)}
        drop = [held.pop(rng.randrange(len(held)))] if held and rng.random() < 0.6 else []
        for each in (fast, slow):
            each.change(put, drop)
            while each.pending:
                each.work()
        assert fast.entries == slow.entries
        held.append(number)


# A great many at once --------------------------------------------------------------


def crowd() -> tuple[Outgoing, dict[int, Filter]]:
    """A table in which one filter covers 160 others; half of them cover the other half."""
    table = Outgoing("gps", Forest())
    needed = {0: Filter("a > 0", SCHEMA)}
    needed |= {n: Filter(f"a > {n} AND s = 's{n % 80}'", SCHEMA) for n in range(1, 161)}
    table.change(needed, ())
    finished(table)
    return table, needed


def finished(table: Outgoing) -> list[Update | None]:
    """The steps of all that is left to do."""
    found = []
    while table.pending:
        found.append(table.work())
    return found


def check_meanwhile(table: Outgoing, needed: dict[int, Filter]) -> int:
    """Every step is small, and after each the table matches all that is needed; give their number."""
    events = [{"a": n + 1, "s": f"s{n % 80}"} for n in range(161)]
    events = [event for event in events if any(each.matches(event) for each in needed.values())]
    for steps in count():
        assert all(any(each.filter.matches(event) for each in table.entries.values()) for event in events)
        if not table.pending:
            return steps
        update = table.work()
        assert update is None or len(update.add) + len(update.remove) <= MAX_MOVES + MAX_ABSORBED
    raise AssertionError


def test_root_with_many_children_is_removed_after_the_last_has_moved() -> None:
    table, needed = crowd()
    del needed[0]
    table.change({}, [0])
    assert 0 in table.entries
    assert check_meanwhile(table, needed) > 10
    assert sorted(table.entries) == list(range(1, 81))


def test_root_with_many_children_can_return_while_they_move() -> None:
    table, needed = crowd()
    table.change({}, [0])
    table.work()
    assert len(table.entries) > 1
    needed[501] = needed[0]
    table.change({501: needed[501]}, ())
    check_meanwhile(table, needed)
    assert sorted(table.entries) == [0]


def test_returning_root_is_not_requested_under_a_wider_new_one() -> None:
    table, needed = crowd()
    table.change({}, [0])
    needed |= {501: Filter("a >= 0", SCHEMA), 502: needed[0]}
    table.change({501: needed[501]}, ())
    table.change({502: needed[502]}, ())
    check_meanwhile(table, needed)
    assert sorted(table.entries) == [501]


def test_filter_that_covers_many_roots_replaces_them_in_steps() -> None:
    table, needed = crowd()
    table.change({}, [0])
    check_meanwhile(table, {n: each for n, each in needed.items() if n})
    update = table.change({501: needed[0]}, ())
    assert update is not None
    assert [each.number for each in update.add] == [501]
    assert 0 < len(update.remove) < 80
    check_meanwhile(table, needed)
    assert sorted(table.entries) == [501]


def test_root_with_many_children_can_change_its_parameters() -> None:
    table, needed = crowd()
    needed[501] = Filter("a > 79", SCHEMA)
    update = table.change({501: needed[501]}, [0])
    assert update is not None
    assert 501 in [each.number for each in update.add]  # before those whose place it is
    del needed[0]
    check_meanwhile(table, needed)
    assert sorted(table.entries) == [*range(1, 79), 501]


def test_broker_reports_pending_work() -> None:
    network, here = pair()
    for n, each in crowd()[1].items():
        network.subscribe("here", f"s{n}", each)
    network.settle(Random(0))
    network.unsubscribe("here", "s0")
    before = here.pending
    network.settle(Random(0))
    assert (before, here.pending) == (True, False)
    assert network.brokers["there"].link("here").routes(SERVICE) == here.link("there").requested(SERVICE)
    assert len(here.link("there").requested(SERVICE)) == 80


def test_many_new_filters_are_added_in_steps_before_old_ones_are_removed() -> None:
    table = Outgoing("gps", Forest())
    old = {n: Filter(f"a = {n}", SCHEMA) for n in range(100)}
    new = {n: Filter(f"a = {n}", SCHEMA) for n in range(100, 200)}
    steps = [table.change(old, ()), *finished(table)]
    full_steps, rest = divmod(100, MAX_STEP_FILTERS)
    assert [len(step.add) for step in steps if step is not None] == [MAX_STEP_FILTERS] * full_steps + [rest]
    steps = [table.change(new, list(old)), table.change({200: old[0]}, [199])]
    while table.pending:
        assert table.is_behind
        assert old.keys() <= table.entries.keys() or new.keys() - {199} <= table.entries.keys()
        steps.append(table.work())
    assert all(each is None or max(len(each.add), len(each.remove)) <= MAX_STEP_FILTERS for each in steps)
    assert table.entries.keys() == {*range(100, 199), 200}


def test_restarted_broker_with_pending_filters_keeps_neighbours_table() -> None:
    """The neighbour has all of it, from before: a part of it in its place would lose the rest, if for a moment."""
    network, _ = pair()
    for n in range(50):
        network.subscribe("here", f"s{n}", Filter(f"a = {n}", SCHEMA))
    network.settle(Random(0))
    lives = []

    def look(broker: str, neighbour: str) -> None:
        if broker == "there":
            assert len({str(each) for each in network.brokers[broker].link(neighbour).routes(SERVICE).values()}) == 50
            lives.append(network.brokers["here"].link("there").has_answered_hello())

    network.watch = look
    network.restart("here")
    here = network.brokers["here"]
    while network.waiting():
        network.deliver(*network.waiting()[0])
    assert here.pending
    assert not here.link("there").has_answered_hello()
    assert not here.link("there").is_in_sync(SERVICE)
    assert here.link("there").has_requested(SERVICE)
    network.send("here", here.receive("there", Hello({SERVICE: TableState(7, 7)}, (("there",),))))  # a heartbeat
    network.settle(Random(0))
    assert lives[0] is False
    assert here.link("there").has_answered_hello()
    assert here.link("there").is_in_sync(SERVICE)
    assert here.link("there").requested(SERVICE) == network.brokers["there"].link("here").routes(SERVICE)


# Meaning ---------------------------------------------------------------------------


def test_event_is_forwarded_if_a_filter_is_not_evaluable() -> None:
    network, _ = pair()
    network.subscribe("here", "s", Filter("kind~ = 'parking'~ AND a > 3"))
    network.subscribe("here", "t", Filter("kind~ = 'parking'~ AND a > 5"))  # covered, though nobody can evaluate it
    assert len(said(network)) == 1
    assert network.brokers["there"].towards(SERVICE, {"a": 1}) == ["here"]


# Messages --------------------------------------------------------------------------

MESSAGES: list[Message] = [
    Hello({"gps": TableState(3, 2**127)}, (("a",), ("a", "b"))),
    Update("gps", TableState(4, 17), (RouteEntry(7, Filter("a > 1 AND s LIKE 'B%'", SCHEMA)),), (3, 5)),
    RouteTable("gps", TableState(0, 0), ()),
    Reach((("a",),)),
    LinkRefusal(("a", "b", "a")),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_is_equal_after_json_round_trip(message: Message) -> None:
    assert from_json(json.loads(json.dumps(to_json(message))), lambda _: SCHEMA) == message


def test_like_star_is_kept_in_json() -> None:
    entry = RouteEntry(1, Filter("s LIKE t AND a > %0", params=[3], like_star=True))
    read = from_json(to_json(RouteTable("gps", TableState(), (entry,))), lambda _: None)
    assert isinstance(read, RouteTable)
    assert read.entries[0].filter.matches({"s": "abc", "t": "a*", "a": 4})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "gossip"}, "type 'gossip'; expected hello, update, table, reach or refusal"),
        ({"type": "reach"}, "paths"),
        ({"type": "table", "service": "gps", "version": 1, "digest": "x", "entries": []}, "invalid literal"),
        (
            {"type": "table", "service": "gps", "version": 2**70, "digest": "0", "entries": []},
            "expected a number from 0 to 9223372036854775807, not 1180591620717411303424",
        ),
        (
            {"type": "table", "service": "g", "version": 1, "digest": "0", "entries": [{"number": -1, "filter": "a"}]},
            "expected a number from 0 to 9223372036854775807, not -1",
        ),
        ({"type": "update", "service": "g", "version": 1, "digest": "0", "add": [], "remove": ["7"]}, "not '7'"),
        (
            {"type": "update", "service": "g", "version": 1, "digest": "0", "add": [], "remove": [3, 7, 7]},
            "expected the number of each entry once, not 7 twice",
        ),
        (
            {
                "type": "table",
                "service": "g",
                "version": 1,
                "digest": "0",
                "entries": [{"number": 1, "filter": "a=1"}] * 2,
            },
            "expected the number of each entry once, not 1 twice",
        ),
        (
            {"type": "table", "service": "g", "version": 1, "digest": "0", "entries": [{"number": 1, "filter": "a ="}]},
            "expected a value or a field",
        ),
    ],
)
def test_malformed_message_is_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(FederationError, match="expected a message of a broker, not") as caught:
        from_json(given, lambda _: None)
    assert expected in str(caught.value)


@settings(max_examples=LARGE_EXAMPLES)
@given(steps=st.lists(st.sets(st.integers(0, 30), max_size=8), max_size=12), seed=st.integers(0, 2**32))
def test_digest_depends_on_entries_and_not_on_steps(steps: list[set[int]], seed: int) -> None:
    """Each step removes present entries and adds absent ones. The digest depends on the final entries only."""
    held: set[RouteEntry] = set()
    state = TableState()
    for version, numbers in enumerate(steps, 1):
        turned = {RouteEntry(number, FILTERS[number % 7]) for number in numbers}
        state = state.after(turned - held, turned & held, version)
        held ^= turned
    afresh = Random(seed).sample(sorted(held, key=lambda each: each.number), len(held))
    assert state == TableState().after(afresh, (), len(steps))
    for each in held:
        other = RouteEntry(each.number, FILTERS[each.number % 7 + 1])
        assert state.after([other], [each], state.version) != state
        assert state.after((), [each], state.version) != state


def test_step_that_adds_an_existing_entry_is_not_applied() -> None:
    """Otherwise its old filter would be needed for ever, and requested over all other links."""
    network, here = pair()
    network.subscribe("here", "s", Filter("a = 1"))
    network.settle(Random(0))
    there = network.brokers["there"]
    (number,), state = here.link("there").requested(SERVICE), there.link("here").states()[SERVICE]
    again = RouteEntry(number, Filter("a = 2"))
    sent = there.receive("here", Update(SERVICE, state.after([again], (), state.version + 1), (again,), ()))
    assert [type(message) for _, message in sent] == [Hello]
    assert there.link("here").routes(SERVICE) == here.link("there").requested(SERVICE)


STRICT = Schema({"a": "timestamp", "b": Enum("TRAM", "BUS", "APE")})
"""What the receiver takes a service's events to be; its sender has another idea, or none."""


def by_another_schema(message: Message) -> Message:
    return from_json(json.loads(json.dumps(to_json(message))), lambda _: STRICT)


@pytest.mark.parametrize("text", ["a > '2026-01-01'", "a > 'soon' OR c = 1", "b = 'CAR'", "a = 7"])
def test_filter_that_does_not_fit_the_schema_does_not_block_others(text: str) -> None:
    """Its text differs by the schema, or it does not fit at all, as while a service changes."""
    network = Network([("here", "there")], "covering", wire=by_another_schema)
    network.settle(Random(0))
    network.subscribe("here", "odd", Filter(text))
    network.settle(Random(0))
    there = network.brokers["there"]
    (kept,) = (by_another_schema(each) for each in there.link("here").tables())
    again = Broker("there")
    assert isinstance(kept, RouteTable)
    again.restore("here", [kept])
    network.brokers["there"] = again
    network.cut(("here", "there"))
    assert resync(network) == []
    network.subscribe("here", "even", Filter("b > 'TRAM'"))
    network.settle(Random(0))
    asked, routes = network.brokers["here"].link("there").requested(SERVICE), again.link("here").routes(SERVICE)
    assert routes.keys() == asked.keys()
    assert (
        again.link("here").states()[SERVICE].digest
        == TableState().after(map(RouteEntry, *zip(*asked.items(), strict=True)), (), 0).digest
    )
    network.unsubscribe("here", "odd")
    network.settle(Random(0))
    assert list(again.link("here").routes(SERVICE).values()) == [Filter("b > 'TRAM'", STRICT)]


# Broken links ----------------------------------------------------------------------


def resync(network: Network) -> list[str]:
    """Mend the link; what kinds of message about tables go over it."""
    link = ("here", "there")
    network.heal(link)
    found: list[str] = []
    while waiting := network.waiting():
        for ends in waiting:
            found.append(type(network.queues[ends][0]).__name__)
            network.deliver(*ends)
    return sorted(each for each in found if each != "Hello")


def test_reconnected_link_sends_only_missing_steps() -> None:
    network, here = pair()
    for n in range(20):
        network.subscribe("here", f"s{n}", Filter(f"a = {n}"))
    network.settle(Random(0))
    link = ("here", "there")
    network.cut(link)
    assert resync(network) == []
    network.subscribe("here", "lost", Filter("b = 1"))
    network.cut(link)
    network.unsubscribe("here", "s3")
    assert resync(network) == ["Update", "Update"]
    assert network.brokers["there"].link("here").routes(SERVICE) == here.link("there").requested(SERVICE)
    network.cut(link)
    network.restart("here")  # the same version, or a later one, of another table
    for n in range(20):
        network.subscribe("here", f"t{n}", Filter(f"c = {n}"))
    network.settle(Random(0))
    assert network.brokers["there"].link("here").routes(SERVICE) == network.brokers["here"].link("there").requested(
        SERVICE
    )


def test_table_with_same_version_and_other_digest_is_sent_whole() -> None:
    network, _ = pair()
    network.subscribe("here", "s", Filter("a = 1"))
    network.settle(Random(0))
    network.subscriptions["here", "s"] = Filter("a = 2")
    network.restart("here")
    network.settle(Random(0))
    there = network.brokers["there"]
    assert there.link("here").states()[SERVICE].version == 1
    assert list(map(str, there.link("here").routes(SERVICE).values())) == ["a = 2"]


def test_missing_step_is_requested() -> None:
    network, here = pair()
    network.subscribe("here", "one", Filter("a = 1"))
    network.queues["here", "there"].clear()
    network.subscribe("here", "two", Filter("a = 2"))
    network.settle(Random(0))
    assert network.brokers["there"].link("here").routes(SERVICE) == here.link("there").requested(SERVICE)
    network.subscribe("here", "three", Filter("a = 3"))
    network.queues["here", "there"].clear()
    network.send("there", network.brokers["there"].hello("here"))  # as a heartbeat does
    network.settle(Random(0))
    assert len(network.brokers["there"].link("here").routes(SERVICE)) == 3


# Loops -----------------------------------------------------------------------------


def test_link_that_would_close_a_loop_is_refused_with_its_path() -> None:
    network = Network([("a", "b"), ("b", "c"), ("c", "d")], "covering")
    network.settle(Random(0))
    with pytest.raises(LinkRefused, match=r"^a link from a to d would close a loop: a - d - c - b - a, as b says$"):
        network.connect("a", "d")
    network.cut(("a", "b"))  # it comes back, and what is behind it has most likely not changed
    said = "^a link from a to d would close a loop: a - d - c - b - a, as b said while its link was up$"
    with pytest.raises(LinkRefused, match=said) as refused:
        network.brokers["a"].check("d")
    assert (refused.value.loop, refused.value.by) == (("a", "d", "c", "b", "a"), "b")
    network.remove(("a", "b"))  # what it has said goes with it
    network.brokers["a"].check("d")
    with pytest.raises(LinkRefused, match=r"^a link from a to a would close a loop: a - a$"):
        network.brokers["a"].connect("a")


def test_loop_that_hello_reveals_is_refused() -> None:
    network = Network([("y", "b"), ("b", "c")], "covering")
    network.settle(Random(0))
    broker = network.brokers["y"]
    broker.connect("z")
    loop = ("y", "z", "c", "b", "y")
    assert broker.receive("z", Hello({}, (("z",), ("z", "c"), ("z", "c", "b"))))[0] == ("z", LinkRefusal(loop))
    assert broker.refused == {"z": loop}
    assert broker.receive("z", Hello()) == []
    assert list(broker.links) == ["b"]


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        ((("city",),), "expected paths from 'wolf' without repeated names, not ['city']"),
        (((),), "expected paths from 'wolf' without repeated names, not []"),
        ((("wolf", "a", "wolf"),), "expected paths from 'wolf' without repeated names, not ['wolf', 'a', 'wolf']"),
        (tuple(("wolf", str(n)) for n in range(1_001)), "expected at most 1,000 brokers behind 'wolf', not 1,001"),
    ],
)
def test_impossible_paths_are_refused(paths: tuple[tuple[str, ...], ...], problem: str) -> None:
    network = Network([("here", "city"), ("here", "wolf")], "covering")
    network.settle(Random(0))
    for message in (Hello({}, paths), Reach(paths)):
        with pytest.raises(FederationError, match=re.escape(problem)):
            network.brokers["here"].receive("wolf", message)
    assert list(network.brokers["here"].links) == ["city", "wolf"]


def test_false_loop_of_one_neighbour_takes_no_other_link_down() -> None:
    network = Network([("x", "yonder"), ("wolf", "x")], "covering")
    network.settle(Random(0))
    x, yonder = network.brokers["x"], network.brokers["yonder"]
    sent = x.receive("wolf", Reach((("wolf",), ("wolf", "yonder"))))
    assert list(x.links) == ["yonder", "wolf"]
    assert [to for to, _ in sent] == ["yonder"]
    for _, message in sent:
        yonder.receive("x", message)
    assert (list(yonder.links), yonder.refused) == (["x"], {})


def test_false_path_takes_no_later_link_down() -> None:
    """The other end of the link must report the same loop."""
    network = Network([("a", "wolf"), ("yonder", "zoo")], "covering")
    network.settle(Random(0))
    a = network.brokers["a"]
    a.receive("wolf", Reach((("wolf",), ("wolf", "zoo"))))
    network.connect("a", "yonder")
    network.settle(Random(0))
    assert (list(a.links), a.refused) == (["wolf", "yonder"], {})
    assert list(network.brokers["yonder"].links) == ["zoo", "a"]


@given(seed=st.integers(0, 2**32))
def test_one_of_two_simultaneous_links_that_close_a_loop_is_given_up(seed: int) -> None:
    network = Network([("a", "b"), ("c", "d")], "covering")
    network.settle(Random(0))
    network.subscribe("a", "s", Filter("x = 1"))
    network.connect("a", "c")
    network.connect("b", "d")  # neither knows of the other's link yet
    network.settle(Random(seed))
    links = {(one, other) for one, broker in network.brokers.items() for other in broker.links}
    assert all((other, one) in links for one, other in links)
    assert len(links) == 6
    number = network.publish("d", {"x": 1})
    network.settle(Random(0))
    assert network.delivered[number] == network.wanted({"x": 1})


# Errors ----------------------------------------------------------------------------


def test_impossible_requests_raise_errors_with_a_hint() -> None:
    broker = Broker("here")
    broker.subscribe("gps", "fast", Filter("a > 1"))
    with pytest.raises(FederationError, match="subscription 'fast' of 'gps' is there already; change it"):
        broker.subscribe("gps", "fast", Filter("a > 1"))
    with pytest.raises(FederationError, match="no subscription 'fats' of 'gps'; did you mean 'fast'"):
        broker.unsubscribe("gps", "fats")
    with pytest.raises(FederationError, match="here has no link to 'there'"):
        broker.receive("there", Hello())
    with pytest.raises(FederationError, match="unknown strategy 'coverings'; did you mean 'covering'"):
        Broker("here", "coverings")


def test_flooding_requests_nothing_and_forwards_all_events() -> None:
    network, _ = pair("flooding")
    network.subscribe("here", "s", Filter("a > 1"))
    assert said(network) == []
    assert all(network.brokers["there"].towards(SERVICE, event) == ["here"] for event in EVENTS)
