"""Search by attributes, compared with a simple implementation, while services change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.strategies import requests, services
from tidegate import Schema
from tidegate.discovery import index as index_module
from tidegate.discovery.attributes import ServiceAttribute, WantedAttribute, attributes_of, value_range
from tidegate.discovery.bloom import Bloom
from tidegate.discovery.index import AttributeIndex, VectorEncoding, minimum_count
from tidegate.discovery.names import NameMatcher, by_edits, exact
from tidegate.errors import DiscoveryError
from tidegate.filters import sets

BITS = Bloom(64, 2)
"""So few that services are mistaken for each other all the time."""
steps = st.lists(st.tuples(st.sampled_from("pqrstu"), st.none() | services), max_size=12)
encodings = st.sampled_from(["auto", "bitmap", "bloom"])


def obvious(
    services: dict[str, list[ServiceAttribute]], wanted: Sequence[WantedAttribute], least: float, alike: NameMatcher
) -> dict[str, tuple[float, float]]:
    known = {item.name for offers in services.values() for item in offers}
    actual = {}
    for name, offers in services.items():
        best = []
        for item in wanted:
            likeness = alike(item.name, known)
            best.append(max((likeness.get(o.name, 0.0) for o in offers if item.fits(o)), default=0.0))
        has = [x for x in best if x > 0]
        if len(has) >= minimum_count(least, len(wanted)):
            actual[name] = len(has) / len(wanted), sum(has) / len(has)
    return actual


@given(steps, requests, st.sampled_from([0.0, 0.5, 1.0]), encodings, st.sampled_from([exact, by_edits]))
def test_search_agrees_with_a_simple_implementation(
    steps: list[tuple[str, list[ServiceAttribute] | None]],
    wanted: list[WantedAttribute],
    least: float,
    encoding: VectorEncoding,
    alike: NameMatcher,
) -> None:
    index, present = AttributeIndex(BITS, encoding), dict[str, list[ServiceAttribute]]()
    for name, attributes in steps:
        if attributes is None:
            assert (index.remove(name) is None) is (present.pop(name, None) is None)
        else:
            index.add(name, attributes)
            present[name] = attributes
    assert len(index) == len(present)
    expected = obvious(present, wanted, least, alike)
    actual = index.search(wanted, least=least, limit=10, alike=alike)
    assert {item.name: item.coverage for item in actual} == {name: cover for name, (cover, _) in expected.items()}
    assert {item.name: item.likeness for item in actual} == pytest.approx(
        {n: alike for n, (_, alike) in expected.items()}
    )
    order = [(item.coverage, round(item.likeness, 5)) for item in actual]
    assert order == sorted(order, reverse=True)
    short = index.search(wanted, least=least, limit=2, alike=alike)
    assert short == actual[:2]
    covering = index.covering(wanted, least=least, alike=alike)
    assert {index.vectors.name(slot) for slot in covering.slots.tolist()} == set(expected)
    for item in actual:
        slot = index.slot(item.name)
        assert slot is not None
        given_ = index.given(slot, wanted, alike)
        assert sum(g.offered is not None for g in given_) == round(item.coverage * len(wanted))


def test_bitmap_becomes_a_bloom_filter_when_it_would_be_larger() -> None:
    index = AttributeIndex(Bloom(128, 3))
    for n in range(200):
        index.add(f"s{n}", [ServiceAttribute(f"a{n}", "number"), ServiceAttribute("all", "text")])
        description = index.describe()
        if n in (10, 100, 199):
            assert [description["encoding"], description["bits"]] == {
                10: ["bitmap", 64],
                100: ["bitmap", 128],
                199: ["bloom", 128],
            }[n]
    assert description["why"] == "more distinct attributes than 128 bits"
    assert [item.name for item in index.search([WantedAttribute("a150"), WantedAttribute("all")], least=1.0)] == [
        "s150"
    ]
    assert len(index.search([WantedAttribute("all")], limit=1_000)) == 200


def test_requested_bitmap_stays_a_bitmap() -> None:
    index = AttributeIndex(Bloom(128, 3), "bitmap")
    for n in range(200):
        index.add(f"s{n}", [ServiceAttribute(f"a{n}", "number")])
    assert index.describe()["why"] == "200 distinct attributes fit in 256 bits, one each: exact"
    assert index.covering([WantedAttribute("a7")]).candidates == 1


def test_slots_and_numbers_are_reused() -> None:
    index = AttributeIndex()
    first = [index.add(f"s{n}", [ServiceAttribute(f"a{n}", "number")]) for n in range(50)]
    for n in range(50):
        index.remove(f"s{n}")
    again = [index.add(f"t{n}", [ServiceAttribute(f"b{n}", "number")]) for n in range(50)]
    assert sorted(again) == sorted(first)
    assert index.describe()["attributes"] == 50
    assert index.describe()["bits"] == 64
    assert index.search([WantedAttribute("a7")]) == []


def test_more_services_than_a_block_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.discovery import slot_table, vectors

    for module in (slot_table, vectors, index_module):
        monkeypatch.setattr(module, "BLOCK", 128)
    monkeypatch.setattr(slot_table, "_MASK", 255)
    monkeypatch.setattr(vectors, "WORDS", 2)
    index = AttributeIndex(Bloom(64, 2))
    for n in range(500):
        index.add(f"s{n}", [ServiceAttribute(f"a{n % 7}", "number"), ServiceAttribute(f"b{n}", "text")])
    for n in range(0, 500, 3):
        index.remove(f"s{n}")
    for n in range(0, 500, 6):
        index.add(f"s{n}", [ServiceAttribute(f"a{n % 7}", "number")])
    left = {f"s{n}" for n in range(500) if n % 3 or not n % 6}
    assert set(index.vectors.names()) == left
    actual = index.covering([WantedAttribute("a3")])
    assert {index.vectors.name(p) for p in actual.slots.tolist()} == {s for s in left if int(s[1:]) % 7 == 3}
    assert all(index.slot(name) is not None for name in left)
    assert index.slot("s3") is None


SCHEMA = Schema(
    {
        "speed": "float64",
        "satellites": "uint8",
        "kind": "enum(CAR, BUS, TRAM)",
        "vid": "string",
        "pos": {"x": "float32"},
        "wheels": "int32[4]",
        "time": "timestamp",
    },
    constraints={"speed": "BETWEEN 0 AND 250", "kind": "<> 'TRAM'", "vid": "LIKE '%x%'", "pos.x": "> 3"},
)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (WantedAttribute("speed", "number", value_range(0, 120)), True),
        (WantedAttribute("speed", "number", value_range(0, 300)), False),
        (WantedAttribute("speed", "number", value_range(None, 120)), False),
        (WantedAttribute("speed", "text"), False),
        (WantedAttribute("satellites", "number", value_range(0, 255)), True),
        (WantedAttribute("satellites", "number", value_range(0, 256)), False),
        (WantedAttribute("kind", "text", sets.points(["CAR", "BUS"])), True),
        (WantedAttribute("kind", "text", sets.points(["TRAM"])), False),
        (WantedAttribute("kind", None, value_range(1, 2)), False),
        (WantedAttribute("vid"), True),
        (WantedAttribute("vid", None, sets.points(["xy"])), False),
        (WantedAttribute("pos.x", "number", value_range(3, 5)), False),
        (WantedAttribute("pos.x", "number", value_range(3.5, None)), True),
        (WantedAttribute("pos", "object"), True),
        (WantedAttribute("wheels", "list"), True),
        (WantedAttribute("time", "time", value_range(0, 10)), True),
    ],
)
def test_wanted_values_must_lie_inside_the_constraint(wanted: WantedAttribute, fits: bool) -> None:
    index = AttributeIndex()
    slot = index.add("gps", attributes_of(SCHEMA))
    assert bool(index.search([wanted])) is fits
    (given_,) = index.given(slot, [wanted])
    assert (given_.offered == wanted.name) is fits
    assert bool(given_.why) is not fits


def test_reasons_name_missing_properties() -> None:
    index = AttributeIndex()
    slot = index.add("gps", attributes_of(SCHEMA))
    wanted = [
        WantedAttribute("rpm"),
        WantedAttribute("speed", "text"),
        WantedAttribute("speed", None, value_range(0, 300)),
    ]
    assert [item.why for item in index.given(slot, wanted)] == [
        "it has no such attribute",
        "its speed is of type number, not text",
        "its speed can't have all of the wanted values",
    ]


def test_sizes_beyond_the_limits_are_refused() -> None:
    index = AttributeIndex()
    with pytest.raises(DiscoveryError, match="attributes: expected at most 4,096, not 5,000: big"):
        index.add("big", [ServiceAttribute(f"a{n}", "text") for n in range(5_000)])
    for many in ([], [WantedAttribute(f"a{n}") for n in range(257)]):
        with pytest.raises(DiscoveryError, match="expected 1 to 256 attributes"):
            index.search(many)


def test_custom_name_matcher_is_used() -> None:
    def meaning(wanted: str, known: Any) -> dict[str, float]:
        return {"velocity": 0.9} if wanted == "speed" else {wanted: 1.0}

    index = AttributeIndex()
    index.add("gps", [ServiceAttribute("velocity", "number")])
    (actual,) = index.search([WantedAttribute("speed")], alike=meaning)
    assert actual.likeness == pytest.approx(0.9)
