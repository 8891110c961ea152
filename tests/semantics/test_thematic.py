"""Thematic matching, one event at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.spaces import CITY, make
from tidegate.errors import MatcherError
from tidegate.filters.thematic import (
    Thematic,
    ThematicPredicate,
    TupleValue,
    match,
    readable,
    text_of,
    themes_of,
    tuples_of,
)
from tidegate.semantics import PaperEsa, Relatedness


@pytest.fixture(scope="module")
def related() -> Iterator[Relatedness]:
    with tempfile.TemporaryDirectory() as folder:
        yield Relatedness(make(Path(folder, "space"), CITY))


PAPER = Thematic(
    (
        ThematicPredicate("type", "increased energy use event", soft_value=True),
        ThematicPredicate("device", "laptop", soft_attribute=True, soft_value=True),
        ThematicPredicate("office", "room 112"),
    ),
    frozenset(("power", "computers")),
)
EVENT = {
    "_themes": ["energy", "appliances", "building"],
    "type": "increased energy consumption event",
    "unit": "kilowatt hour",
    "device": "computer",
    "office": "room 112",
}


def test_paper_example_matches(related: Relatedness) -> None:
    (best,) = match(related, PAPER, EVENT)
    assert best.attributes == ("type", "device", "office")
    assert 0 < best.degree < 1
    assert best.probability == 1
    assert best.mapping.similarities[2] == 1


def test_side_without_tilde_must_be_equal(related: Relatedness) -> None:
    assert match(related, PAPER, {**EVENT, "office": "room 113"}) == []
    assert match(related, PAPER, {**EVENT, "office": "Room 112"}) == []
    renamed = {**EVENT, "Office": "room 112"}
    del renamed["office"]
    assert match(related, PAPER, renamed) == []


def test_each_predicate_needs_its_own_tuple(related: Relatedness) -> None:
    twice = Thematic(
        (ThematicPredicate("computer", "laptop", True, True), ThematicPredicate("computer", "energy", True, True))
    )
    assert match(related, twice, {"computer": "laptop"}) == []
    (best,) = match(related, twice, {"computer": "energy", "laptop": "laptop"})
    assert best.attributes == ("laptop", "computer")


def test_threshold_is_the_minimum_degree(related: Relatedness) -> None:
    predicate = (ThematicPredicate("device", "laptop", soft_value=True),)
    (best,) = match(related, Thematic(predicate), {"device": "computer"})
    assert match(related, Thematic(predicate, threshold=best.degree), {"device": "computer"}) == [best]
    assert match(related, Thematic(predicate, threshold=best.degree + 1e-8), {"device": "computer"}) == []
    assert match(related, Thematic(predicate), {"device": "garage"}) == []  # 0, and a threshold of 0


def test_k_best_mappings_have_probabilities(related: Relatedness) -> None:
    wanted = Thematic((ThematicPredicate("power", "energy", True, True),))
    event = {"energy": "energy", "power": "power", "garage": "garage"}
    actual = match(related, wanted, event, k=5)
    assert [item.attributes for item in actual][:1] in ([("energy",)], [("power",)])
    assert len(actual) == 2
    assert sum(item.probability for item in actual) == pytest.approx(1)
    assert match(related, wanted, event, k=1) == actual[:1]


def test_service_and_event_themes_are_combined(related: Relatedness) -> None:
    wanted = Thematic((ThematicPredicate("kind", "president", soft_value=True),), frozenset(("politics",)))
    alone = match(related, wanted, {"kind": "power"})[0].degree
    by_service = match(related, wanted, {"kind": "power"}, ["politics"])[0].degree
    by_event = match(related, wanted, {"kind": "power", "_themes": ["politics"]})[0].degree
    both = match(related, wanted, {"kind": "power", "_themes": ["politics"]}, ["garage"])[0].degree
    assert by_service == by_event > alone
    assert both == match(related, wanted, {"kind": "power"}, ["politics", "garage"])[0].degree


def test_without_predicates_every_event_matches(related: Relatedness) -> None:
    (only,) = match(related, Thematic(()), {})
    assert (only.degree, only.attributes) == (1.0, ())


values = st.sampled_from(["laptop", "computer", "energy", "garage", "room 112", 5, 5.0, 6, True, "zzz"])
names = st.sampled_from(["device", "energy", "parking", "power", "room"])


@given(
    st.lists(st.builds(ThematicPredicate, names, values, st.booleans(), st.booleans()), max_size=3),
    st.dictionaries(names, values, max_size=4),
    st.lists(st.sampled_from(["energy", "car", "zzz"]), max_size=2),
    st.floats(0, 1),
)
def test_degree_agrees_with_all_permutations(
    related: Relatedness,
    predicates: list[ThematicPredicate],
    event: dict[str, TupleValue],
    themes: list[str],
    threshold: float,
) -> None:
    def similarity(predicate: ThematicPredicate, attribute: str, value: TupleValue) -> float:
        name = related(predicate.attribute, attribute, ["power"], themes)
        meaning = related(text_of(predicate.value), text_of(value), ["power"], themes)
        equal = type(predicate.value) is str and predicate.value == value
        equal |= type(predicate.value) is not str and type(value) is not str and predicate.value == value
        return (name if predicate.soft_attribute else float(predicate.attribute == attribute)) * (
            meaning if predicate.soft_value else float(equal)
        )

    best = 0.0
    for chosen in permutations(event.items(), len(predicates)):
        product = 1.0
        for predicate, (attribute, value) in zip(predicates, chosen, strict=True):
            product *= similarity(predicate, attribute, value)
        best = max(best, product ** (1 / max(1, len(predicates))))
    actual = match(related, Thematic(tuple(predicates), frozenset(["power"])), event, themes)
    assert (actual[0].degree if actual else 0) == pytest.approx(best)
    if abs(best - threshold) > 1e-9:
        reached = match(related, Thematic(tuple(predicates), frozenset(["power"]), threshold), event, themes)
        assert bool(reached) == (best > threshold)


def test_paper_example_matches_with_the_paper_measure(related: Relatedness) -> None:
    without = Thematic(PAPER.predicates), {**EVENT, "_themes": []}
    (best,) = match(Relatedness(related.space, PaperEsa()), *without)
    assert best.attributes == ("type", "device", "office")
    # In the theme `energy` every document has the word: its weight is 0 by the paper, so the theme is ignored.
    (best,) = match(Relatedness(related.space, PaperEsa()), PAPER, EVENT)
    assert best.attributes == ("type", "device", "office")


def test_tuples_skip_values_without_relatedness() -> None:
    event = {"_id": "7", "a": 1, "b": None, "c": float("nan"), "d": [1], "pos": {"x": 1.5, "_y": True}, "e": "text"}
    assert list(tuples_of(event)) == [("a", 1), ("pos.x", 1.5), ("pos._y", True), ("e", "text")]


def test_themes_that_are_no_strings_are_ignored() -> None:
    assert themes_of({"_themes": ["a", 1, None]}) == {"a"}
    assert themes_of({"_themes": 5}) == themes_of({"_themes": {"a": "b"}}) == themes_of({}) == frozenset()


@pytest.mark.parametrize(
    "tags", ["land transport", ("land transport",), {"land transport"}, np.array(["land transport"])]
)
def test_themes_may_be_one_tag_or_any_collection(tags: Any) -> None:
    assert themes_of({"_themes": tags}) == {"land transport"}


def test_names_and_values_become_words(related: Relatedness) -> None:
    assert readable("measurementUnit") == "measurement Unit"
    assert [text_of(value) for value in (True, False, 5, 5.0, 5.5, "x", float("inf"))] == [
        *("true", "false", "5", "5", "5.5", "x", "inf")
    ]
    soft = Thematic((ThematicPredicate("measurement unit", "x", soft_attribute=True),))
    for name in ("measurementUnit", "measurement_unit", "Measurement.Unit"):
        assert match(related, soft, {name: "x"})[0].degree == 1


def test_too_many_predicates_are_refused() -> None:
    with pytest.raises(MatcherError, match="expected at most 16 predicates to be matched by meaning together, not 17"):
        Thematic((ThematicPredicate("a", 1),) * 17)
    with pytest.raises(MatcherError, match=r"expected a threshold from 0 to 1, not 1.5"):
        Thematic((), threshold=1.5)
