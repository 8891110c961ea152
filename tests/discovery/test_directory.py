"""Requests against services that are added, removed, changed, fall silent or break promises."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.strategies import services
from tests.discovery.test_index import SCHEMA, obvious
from tidegate.discovery import Directory, Observation, Offer, Request, changes
from tidegate.discovery.attributes import ServiceAttribute, WantedAttribute
from tidegate.discovery.names import by_edits, exact
from tidegate.errors import DiscoveryError, NotRegistered
from tidegate.filters import Filter
from tidegate.services import loads, output_schema
from tidegate.services.definitions import Qos

SPEED, VID, PM10 = (
    ServiceAttribute("speed", "number"),
    ServiceAttribute("vid", "text"),
    ServiceAttribute("pm10", "number"),
)


def city() -> Directory:
    directory = Directory()
    directory.put(
        Offer("gps", (SPEED, VID), {"price": 3, "region": "north"}, ("traffic",), ("land",), Qos(0.05, 0.999))
    )
    directory.put(Offer("bus", (SPEED,), {"price": 6, "region": "north"}, ("traffic",), (), Qos(0.5, 0.99, 10.0)))
    directory.put(Offer("air", (PM10,), {"price": 1, "region": "south"}, ("air",), ("weather",)))
    return directory


def ask(directory: Directory, now: float = 0.0, **document: Any) -> list[str]:
    return [result.name for result in directory.discover(Request.from_dict(document), now).results]


def hints(directory: Directory, **document: Any) -> list[str]:
    return [str(hint) for hint in directory.discover(Request.from_dict(document), 0.0).hints]


def keeps(qos: Qos, metric: str, bound: float) -> bool:
    if metric == "latency":
        return qos.latency_p99_s is not None and qos.latency_p99_s <= bound
    return qos.availability is not None and qos.availability >= bound


# Compared with a simple implementation -----------------------------------------------------

FILTERS = [None, "price < 5", "FUZZY(price IS Z(0, 10)) >= 0.5", "region = 'a'"]
offers = st.builds(
    lambda attributes, properties, categories, qos: (tuple(attributes), properties, tuple(categories), qos),
    services,
    st.dictionaries(st.sampled_from(["price", "region"]), st.integers(0, 9) | st.sampled_from(["a", "b"])),
    st.lists(st.sampled_from("xyz"), unique=True),
    st.builds(Qos, st.none() | st.sampled_from([0.01, 0.1, 1.0]), st.none() | st.sampled_from([0.9, 0.99])),
)
steps = st.lists(st.tuples(st.sampled_from("pqrstu"), st.none() | offers), max_size=10)


@given(
    steps,
    st.sampled_from(
        [
            [],
            [WantedAttribute("speed")],
            [WantedAttribute("speed"), WantedAttribute("vid", "text"), WantedAttribute("a")],
        ]
    ),
    st.sampled_from([0.0, 0.6, 1.0]),
    st.sampled_from(FILTERS),
    st.sampled_from([(), ("x",), ("x", "y")]),
    st.sampled_from([{}, {"latency": 0.1}, {"availability": 0.95}]),
    st.sampled_from([{}, {"latency": 2.0, "availability": 1.0}]),
    st.sampled_from(["exact", "edits"]),
)
def test_query_agrees_with_a_simple_implementation(
    steps: list[tuple[str, Any]],
    wanted: list[WantedAttribute],
    least: float,
    text: str | None,
    categories: tuple[str, ...],
    limits: dict[str, float],
    weights: dict[str, float],
    names: str,
) -> None:
    directory, present = Directory(), dict[str, Offer]()
    for name, definition in steps:
        if definition is None:
            assert directory.remove(name) is (present.pop(name, None) is not None)
        else:
            attributes, properties, in_categories, qos = definition
            present[name] = Offer(name, attributes, properties, in_categories, (), qos)
            directory.put(present[name])
    filter_ = None if text is None else Filter(text)
    request = Request(tuple(wanted), names, least, filter_, categories, (), limits, weights, explain=True)
    actual = directory.discover(request, 0.0)

    remaining = dict(present)
    cover: dict[str, tuple[float, float]] = {}
    if wanted:
        attributes_of = {name: list(offer.attributes) for name, offer in present.items()}
        cover = obvious(attributes_of, wanted, least, {"exact": exact, "edits": by_edits}[names])
        remaining = {name: offer for name, offer in remaining.items() if name in cover}
    if categories:
        remaining = {name: offer for name, offer in remaining.items() if set(categories) & set(offer.categories)}
    for metric, bound in limits.items():
        remaining = {name: offer for name, offer in remaining.items() if keeps(offer.qos, metric, bound)}
    if filter_ is not None:
        remaining = {name: offer for name, offer in remaining.items() if filter_.matches(offer.properties)}
    assert {result.name for result in actual.results} == set(remaining)
    assert actual.total == len(remaining)
    for result in actual.results:
        assert result.coverage == (pytest.approx(cover[result.name][0]) if wanted else None)
        assert result.degree == (pytest.approx(filter_.degree(remaining[result.name].properties)) if filter_ else None)
        parts = [part for part in (result.coverage, result.degree, result.qos) if part is not None]
        assert result.score == pytest.approx(sum(parts) / len(parts) if parts else 1.0)
        assert len(result.given) == len(wanted)
    order = [(-round(result.score, 9), result.rank) for result in actual.results]
    assert order == sorted(order)
    json.dumps(actual.to_dict())
    if not actual.results and present:
        assert actual.hints


# Answers ------------------------------------------------------------------------------------


def test_answer_contains_reasons() -> None:
    directory = city()
    request = Request.from_dict(
        {
            "attributes": ["speed", "vid"],
            "filter": "FUZZY(price IS Z(2, 10), region = 'north') >= 0.7",
            "qos": {"weights": {"latency": 1}},
            "explain": True,
        }
    )
    best, other = directory.discover(request, 0.0).results
    assert (best.name, best.coverage, best.match, best.qos, other.missing) == ("gps", 1.0, "uncertain", 1.0, ("vid",))
    assert best.why == (
        "has 2 of 2 attributes",
        "fits the filter by 0.98: uncertain",
        "quality 1.00 of latency 50ms (promised)",
    )
    assert other.why[0] == "has 1 of 2 attributes, not vid"
    assert [item.degree for item in best.reasons] == [pytest.approx(0.96875), 1.0]
    assert best.figures is not None
    assert (best.figures["latency"].value, best.figures["latency"].measured) == (0.05, False)
    assert [item.why for item in other.given] == ["", "it has no such attribute"]


def test_answer_without_explain_is_short() -> None:
    (first, *_) = city().discover(Request.from_dict({"attributes": ["speed"]}), 0.0).results
    assert (first.given, first.reasons, first.figures) == ((), (), None)


def test_names_within_edit_distance_are_found() -> None:
    directory = city()
    assert ask(directory, attributes=["sped"]) == []
    request = Request.from_dict({"attributes": ["sped"], "names": "edits", "categories": ["traffic"]})
    first, second = directory.discover(request, 0.0).results
    assert first.why == ("has 1 of 1 attributes", "takes speed for sped, likeness 0.80")
    assert (first.name, second.why[-1]) == ("bus", "as good as bus: by name")


def test_name_is_matched_once_per_request() -> None:
    calls: list[str] = []

    def meaning(wanted: str, known: Collection[str]) -> dict[str, float]:
        calls.append(wanted)
        return {name: 0.7 for name in known if name != "pm10"}

    directory = Directory(alike={"meaning": meaning})
    for name in "abc":
        directory.put(Offer(name, (SPEED, PM10)))
    actual = directory.discover(Request.from_dict({"attributes": ["velocity"], "names": "meaning"}), 0.0)
    assert [result.likeness for result in actual.results] == pytest.approx([0.7] * 3)
    assert calls == ["velocity"]


def test_ties_are_explained() -> None:
    directory = Directory()
    for name, price, rate in (("a", 5, 1.0), ("b", 5, 2.0), ("c", 5, 2.0)):
        directory.put(Offer(name, (SPEED,), {"price": price}, qos=Qos(rate=rate)))
    request = Request.from_dict({"attributes": ["speed"], "qos": {"weights": {"rate": 1}}, "weights": {"qos": 0}})
    actual = directory.discover(request, 0.0).results
    assert [(item.name, item.why[-1]) for item in actual[1:]] == [
        ("c", "as good as b: by name"),
        ("a", "as good as c: that has more quality"),
    ]


def test_limit_restricts_results_not_services() -> None:
    directory = Directory()
    for n in range(30):
        directory.put(Offer(f"s{n:02}", (SPEED,)))
    actual = directory.discover(Request.from_dict({"attributes": ["speed"], "limit": 3}), 0.0)
    assert ([result.name for result in actual.results], actual.total) == (["s00", "s01", "s02"], 30)


def test_services_of_a_file_are_found_by_their_output_schema() -> None:
    definitions = loads(
        """
        streams: {raw: {schema: {vid: string, speed: float64}}}
        services:
          fast: {from: raw, pipeline: [{project: {kmh: "speed * 3.6"}}], constraints: {kmh: "BETWEEN 0 AND 300"},
                 properties: {price: 2}, categories: [traffic], themes: [land], qos: {latency_p99: fast}}
        """
    )
    service = definitions.services["fast"]
    directory = Directory()
    directory.put(Offer.of(service, output_schema(service, {"raw": definitions.streams["raw"].schema})))
    assert ask(directory, attributes={"kmh": {"range": [0, 200]}}, filter="price < 3", categories=["traffic"]) == [
        "fast"
    ]
    assert ask(directory, attributes={"kmh": {"range": [0, 500]}}) == []
    assert ask(directory, qos={"limits": {"latency": "50ms"}}, themes="land") == ["fast"]


# Hints ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"attributes": ["sped"]}, "attributes[0]: no service has an attribute 'sped'; did you mean 'speed'?"),
        ({"attributes": ["xyz"]}, "attributes[0]: no service has an attribute 'xyz'; there are pm10, speed, vid"),
        ({"attributes": {"speed": "text"}}, "attributes[0]: no service has speed as text; it is number"),
        ({"categories": ["trafic"]}, "categories[0]: no service has 'trafic'; did you mean 'traffic'?"),
        ({"themes": ["zzz"]}, "themes[0]: no service has 'zzz'; there are land, weather"),
        ({"filter": "prize < 3"}, "filter: no service has a property 'prize'; did you mean 'price'?"),
        ({"filter": "price < 0"}, "filter: none of 3 remaining services matches the filter"),
        (
            {"qos": {"limits": {"freshness": "live"}}},
            "qos.limits.freshness: no service has a promised or measured freshness",
        ),
        (
            {"qos": {"weights": {"completeness": 1}}},
            "qos.weights.completeness: no service has a promised or measured completeness",
        ),
        (
            {"qos": {"limits": {"latency": "instant"}}},
            "qos.limits.latency: none of 3 remaining services keeps the",
        ),
        (
            {"attributes": ["pm10"], "categories": "traffic"},
            "categories: none of 1 remaining services is in one of",
        ),
    ],
)
def test_request_without_results_gets_hints(document: dict[str, Any], expected: str) -> None:
    assert any(expected in hint for hint in hints(city(), **document)), hints(city(), **document)


def test_near_misses_are_shown_if_nothing_fits() -> None:
    actual = city().discover(Request.from_dict({"filter": "FUZZY(price IS Z(0, 4), region = 'north') >= 0.9"}), 0.0)
    assert actual.results == ()
    assert [item.name for item in actual.near] == ["gps", "bus", "air"]
    assert actual.near[0].match == "none"
    assert actual.near[0].why == ("price IS Z(0.0, 4.0): 0.12, and must reach 0.50; price is 3",)


def test_empty_directory_returns_a_hint() -> None:
    assert hints(Directory(), attributes=["speed"]) == [
        "attributes[0]: no service has an attribute 'speed'; none has any"
    ]


def test_service_of_unknown_quality_is_not_ranked_as_the_worst() -> None:
    directory = Directory()
    directory.put(Offer("unmeasured", (SPEED, VID)))
    directory.put(Offer("without_vid", (SPEED,), qos=Qos(rate=5)))
    request = {"attributes": ["speed", "vid"], "coverage": 0.5, "qos": {"weights": {"rate": 1}}}
    best, other = directory.discover(Request.from_dict(request), 0.0).results
    assert (best.name, best.qos, other.name, other.missing) == ("unmeasured", 1.0, "without_vid", ("vid",))


def test_known_quality_comes_before_unknown_quality_if_all_else_is_equal() -> None:
    directory = Directory()
    directory.put(Offer("a", (SPEED,)))
    directory.put(Offer("b", (SPEED,), qos=Qos(rate=5)))
    first, second = directory.discover(Request.from_dict({"qos": {"weights": {"rate": 1}}}), 0.0).results
    assert (first.name, second.name) == ("b", "a")
    assert second.why[-1] == "as good as b: that has a known quality"


def test_unknown_name_matcher_is_refused() -> None:
    with pytest.raises(DiscoveryError, match=r"names: names can't be compared by 'edit'; did you mean 'edits'\?"):
        ask(city(), names="edit")


# Quality, and services that fall silent ------------------------------------------------------


def test_measured_value_counts_and_broken_promise_is_reported() -> None:
    directory = city()
    weights: dict[str, Any] = {"attributes": ["speed"], "qos": {"weights": {"latency": 1}}}
    assert ask(directory, **weights) == ["gps", "bus"]
    for second in range(10):
        directory.observe("gps", Observation(at=float(second), up=True, latency_s=2.0))
        directory.observe("bus", Observation(at=float(second), up=True, latency_s=0.1))
    actual = directory.discover(Request.from_dict(weights), 10.0)
    assert [item.name for item in actual.results] == ["bus", "gps"]
    assert [str(item) for item in actual.results[1].broken] == ["promises latency <= 50ms, broken: measured 1.98s"]
    assert actual.results[1].why[-1] == "promises latency <= 50ms, broken: measured 1.98s"
    assert ask(directory, now=10.0, qos={"limits": {"latency": "moderate"}}) == ["bus"]
    assert [item.verdict for item in directory.certify("gps", 10.0)] == ["broken", "kept"]
    assert directory.measured("air", 10.0) == {}


def test_silent_service_is_lost_until_it_reports_again() -> None:
    directory = city()
    for second in range(3):
        directory.observe("gps", Observation(at=100.0 + second))
    assert ask(directory, now=104.0, categories="traffic") == ["bus", "gps"]
    assert ask(directory, now=107.5, categories="traffic") == ["bus"]
    assert directory.lost(107.5) == ["gps"]
    directory.observe("gps", Observation(at=108.0))
    assert ask(directory, now=108.5, categories="traffic") == ["bus", "gps"]
    assert directory.lost(108.5) == []


def test_service_reported_down_is_left_out_at_once() -> None:
    directory = city()
    before = directory.version
    directory.observe("gps", Observation(at=100.0, up=False))
    assert (ask(directory, now=100.0, categories="traffic"), directory.version) == (["bus"], before + 1)
    directory.observe("gps", Observation(at=101.0, up=False))
    assert directory.version == before + 1
    directory.observe("gps", Observation(at=102.0, up=True))
    assert (ask(directory, now=102.0, categories="traffic"), directory.version) == (["bus", "gps"], before + 2)


def test_hint_says_that_all_services_are_lost() -> None:
    directory = Directory()
    directory.put(Offer("gps", (SPEED,)))
    directory.observe("gps", Observation(at=0.0))
    actual = directory.discover(Request.from_dict({"attributes": ["speed"]}), 60.0)
    assert [str(hint) for hint in actual.hints] == ["present: none of 1 remaining services is present: all are lost"]


def test_observations_survive_a_change_but_not_a_removal() -> None:
    directory = city()
    directory.observe("gps", Observation(at=0.0, latency_s=0.3))
    directory.put(Offer("gps", (SPEED,)))
    assert directory.measured("gps", 1.0)["latency"] == pytest.approx(0.3, rel=0.05)
    directory.remove("gps")
    directory.put(Offer("new", (SPEED,)))
    assert directory.measured("new", 1.0) == {}
    assert "gps" not in directory
    assert (len(directory), directory.offer("new").name) == (3, "new")
    with pytest.raises(NotRegistered, match="no service is named 'gpss'"):
        directory.observe("gpss", Observation(at=0.0))


def test_requests_are_answered_while_services_change() -> None:
    directory, request = Directory(), Request.from_dict({"attributes": ["speed"], "filter": "price < 5", "limit": 100})
    directory.put(Offer("stays", (SPEED,), {"price": 1}))
    done = threading.Event()

    def change() -> None:
        for n in range(400):
            directory.put(Offer(f"s{n % 20}", (SPEED, VID)[: 1 + n % 2], {"price": n % 9}))
            directory.observe(f"s{n % 20}", Observation(at=float(n), latency_s=0.1))
            if n % 3 == 0:
                directory.remove(f"s{n % 20}")
        done.set()

    thread = threading.Thread(target=change)
    thread.start()
    answers = [directory.discover(request, 1e-3)]
    while not done.is_set():
        answers.append(directory.discover(request, 1e-3))
    thread.join()
    assert all("stays" in [result.name for result in answer.results] for answer in answers)
    assert [answer.version for answer in answers] == sorted(answer.version for answer in answers)


# Watching ---------------------------------------------------------------------------------------


def test_changes_between_answers() -> None:
    directory = city()
    request = Request.from_dict({"attributes": ["speed"], "filter": "FUZZY(price IS Z(0, 20))", "limit": 2})
    first = directory.discover(request, 0.0)
    assert [result.name for result in first.results] == ["gps", "bus"]
    assert not changes(first, directory.discover(request, 0.0))

    directory.put(Offer("tram", (SPEED,), {"price": 1}))
    second = directory.discover(request, 0.0)
    reported = changes(first, second)
    assert ([result.name for result in reported.appeared], [result.name for result in reported.left]) == (
        ["tram"],
        ["bus"],
    )
    assert reported.better is not None
    assert reported.better.name == "tram"
    assert changes(first, second, used="tram").better is None

    directory.put(Offer("tram", (SPEED,), {"price": 2.5}))
    third = directory.discover(request, 0.0)
    (moved,) = changes(second, third).changed
    assert (moved.before.name, moved.before.score > moved.after.score) == ("tram", True)
    assert changes(second, third).better is None

    directory.remove("tram")
    directory.remove("gps")
    directory.remove("bus")
    last = changes(third, directory.discover(request, 0.0))
    assert ([result.name for result in last.left], last.better) == (["tram", "gps"], None)


def test_broken_promise_is_a_change_with_the_same_score() -> None:
    directory = city()
    request = Request.from_dict({"attributes": ["speed", "vid"], "coverage": 1})
    before = directory.discover(request, 0.0)
    directory.observe("gps", Observation(at=1.0, latency_s=9.0))
    (moved,) = changes(before, directory.discover(request, 1.0)).changed
    assert [item.metric for item in moved.after.broken] == ["latency"]


def test_schema_is_found_by_all_its_attributes() -> None:
    directory = Directory()
    from tidegate.discovery.attributes import attributes_of

    directory.put(Offer("gps", attributes_of(SCHEMA)))
    assert ask(directory, attributes=["speed", "pos.x", "kind", "wheels"], coverage=1) == ["gps"]
