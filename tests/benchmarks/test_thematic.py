"""The workloads and counts of the benchmark of thematic matching."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import thematic
from benchmarks.reporting import Setting
from benchmarks.thematic import thesaurus
from benchmarks.thematic.events import EventSet, make, other_words, variants_of
from benchmarks.thematic.heatmap import heat_map
from benchmarks.thematic.scoring import Interned, best_f1, f1_at
from benchmarks.thematic.table3 import parts_exchanged
from benchmarks.thematic.thesaurus import Thesaurus
from tidegate import Matcher, Space
from tidegate.errors import EnvironmentProblem
from tidegate.filters.thematic import Thematic, ThematicPredicate, match
from tidegate.semantics import PaperEsa, esa_only, paper
from tidegate.semantics.relatedness import Relatedness

EUROVOC: dict[str, Any] = {
    "microthesauri": {"5": {"label": "4811 land transport"}},
    "concepts": {
        "1": {"pref": "motor car", "alt": ["automobile"], "rt": [2, 99], "mt": [5], "top": False},
        "2": {"pref": "bus", "alt": [], "rt": [], "mt": [5], "top": True},
    },
}


@pytest.fixture(scope="module")
def own() -> Thesaurus:
    return thesaurus.load(thesaurus.OWN)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Space:
    return thematic.own_space(tmp_path_factory.mktemp("own") / "space")


def test_perfect_ranking_is_one_and_ties_count_against_us() -> None:
    def f1(degrees: list[list[float]], relevant: list[list[bool]]) -> float:
        return best_f1(np.array(degrees), np.array(relevant))

    assert f1([[0.9, 0.8, 0.1]], [[True, True, False]]) == 1
    assert f1([[0.5, 0.5]], [[True, False]]) == pytest.approx(2 / 3)
    assert f1([[0.9, 0.1], [0.3, 0.3]], [[True, False], [False, False]]) == 1  # nothing is asked of the second


def test_one_threshold_counts_its_matches() -> None:
    degrees, relevant = np.array([[0.9, 0.4, 0.6]]), np.array([[True, True, False]])
    assert f1_at(degrees, relevant, 0.5) == pytest.approx(0.5)
    assert f1_at(degrees, relevant, 0.3) == pytest.approx(0.8)
    assert f1_at(degrees, relevant, 0.95) == 0


def test_words_are_exchanged_for_labels_of_their_concept_and_of_related_ones(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text(json.dumps(EUROVOC))
    found = thesaurus.load(tmp_path / "small.json")
    assert found.exchange == {"motor car": ("automobile", "bus"), "automobile": ("bus", "motor car"), "bus": ()}
    assert (found.tops, found.groups) == (("bus",), {"land transport": ("motor car",)})


def test_invalid_thesaurus_is_refused_with_the_expected_form(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"nowhere.json can't be read: .*No such file"):
        thesaurus.load(tmp_path / "nowhere.json")
    (tmp_path / "other.json").write_text('{"words": []}')
    with pytest.raises(EnvironmentProblem, match=r"other.json is no thesaurus: expected 'concepts' .* KeyError"):
        thesaurus.load(tmp_path / "other.json")


_CAR = EUROVOC["concepts"]["1"]


@pytest.mark.parametrize(
    ("concepts", "said"),
    [
        ([], "is no thesaurus: expected 'concepts' .* AttributeError"),
        ({"1": "motor car"}, "is no thesaurus: expected 'concepts' .* TypeError"),
        ({"1": {**_CAR, "pref": 5}}, "is no thesaurus: .* a label that is no text: 5"),
        ({"1": {**_CAR, "alt": "automobile"}}, "is no thesaurus: .* what is no list: 'automobile'"),
        ({"1": {**_CAR, "mt": []}}, "is no thesaurus: .* IndexError"),
        ({}, "is of no use: no concept has another label or a related one"),
        ({"1": _CAR}, "is of no use: no concept is a top term"),
    ],
)
def test_problem_of_a_thesaurus_is_named(tmp_path: Path, concepts: Any, said: str) -> None:
    (tmp_path / "own.json").write_text(json.dumps({**EUROVOC, "concepts": concepts}))
    with pytest.raises(EnvironmentProblem, match=rf"own.json {said}"):
        thesaurus.load(tmp_path / "own.json")


def test_measured_word_of_a_type_is_exchanged(own: Thesaurus) -> None:
    assert "increased sound level event" in variants_of(own, "increased noise event")
    assert variants_of(own, "room 112") == []


def test_longest_known_part_of_a_term_is_exchanged() -> None:
    words = Thesaurus({"light": ("lamp",), "traffic light": ("signal",), "traffic": ("cars",)}, (), {})
    assert parts_exchanged(words, "traffic light") == ["signal"]
    assert parts_exchanged(words, "red traffic light on") == ["red signal on"]
    assert parts_exchanged(words, "living room light") == ["living room lamp"]
    assert parts_exchanged(words, "room 112") == []


def test_set_is_reproducible_and_relevant_events_fit_every_predicate(own: Thesaurus) -> None:
    given = make(own, 60)
    assert given == make(own, 60)
    assert given != make(own, 60, seed=8)
    assert len(given.events) == 60
    assert len(given.subscriptions) == 94
    for wanted, row in zip(given.subscriptions, given.relevant, strict=True):
        for event, relevant in zip(given.events, row, strict=True):
            assert relevant or not set(wanted) <= set(event.items())
    assert any(any(row) for row in given.relevant)


def test_never_seen_means_that_no_exchangeable_term_of_a_subscription_is_in_an_event(own: Thesaurus) -> None:
    given = make(own, 60, unseen=True)
    asked = {term for each in given.subscriptions for pair in each for term in pair}
    told = {term for each in given.events for pair in each.items() for term in pair}
    assert not any(variants_of(own, term) for term in asked & told)
    assert any(any(row) for row in given.relevant)


def test_other_words_of_two_parts_share_no_value(own: Thesaurus) -> None:
    def values(given: EventSet) -> set[str]:
        return {value for each in given.subscriptions for _, value in each}

    some, others, again = other_words(own, 0), other_words(own, 1), other_words(own, 1, draw=1)
    assert some is not None
    assert others is not None
    assert again is not None
    one, two, three = (values(make(own, 10, seeds=each)) for each in (some, others, again))
    assert one.isdisjoint(two)
    assert one.isdisjoint(three)
    assert two != three


def test_small_thesaurus_yields_fewer_seeds(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text(json.dumps(EUROVOC))
    small = thesaurus.load(tmp_path / "small.json")
    assert other_words(small, 1) is None
    assert list(thematic.event_sets(small, 20)) == ["sensors", "table 3", "never seen"]
    made = make(small, 20, seeds=lambda _: {"vehicle": "bus", "town": "Galway", "kind": "noise"})
    assert len(made.subscriptions) == 4  # of three tuples two or three


def test_degrees_are_those_of_the_matcher(own: Thesaurus, space: Space) -> None:
    given = make(own, 5)
    found = Interned(given).degrees(paper(space), ["pollution"], ["climate"])
    related = Relatedness(space, PaperEsa())
    for row, wanted in list(zip(found, given.subscriptions, strict=True))[:20]:
        filter_ = Thematic(tuple(ThematicPredicate(*each, True, True) for each in wanted), frozenset(["pollution"]))
        best = [match(related, filter_, event, ["climate"]) for event in given.events]
        assert row == pytest.approx([each[0].degree if each else 0 for each in best], abs=1e-6)


def test_degrees_among_rivals_are_those_of_the_matcher(own: Thesaurus, space: Space) -> None:
    given = make(own, 6)
    semantics = esa_only(space)
    found = Interned(given).degrees(semantics)
    matcher = Matcher(semantics=semantics, threshold=0.0)
    for n, wanted in enumerate(given.subscriptions):
        matcher.add(f"{n}", " AND ".join(f"\"{name}\"~ = '{value}'~" for name, value in wanted))
    matched = matcher.match(given.events)
    event, subscription = matched.pairs()
    degrees = np.zeros_like(found)
    degrees[subscription.astype(int), event] = matched.degrees()
    assert degrees == pytest.approx(found, abs=1e-9)


def test_one_of_two_themes_contains_the_other(own: Thesaurus) -> None:
    for many, few in ((5, 2), (2, 5), (3, 3)):
        of_filters, of_events = thematic.tags_of(own, many, few, 0)
        assert (len(of_filters), len(of_events)) == (many, few)
        assert set(of_filters) <= set(of_events) or set(of_events) <= set(of_filters)
    assert thematic.tags_of(own, 5, 2, 0) != thematic.tags_of(own, 5, 2, 1)


def test_tags_that_mean_nothing_change_nothing(own: Thesaurus, space: Space) -> None:
    given = Interned(make(own, 20))
    plain = given.degrees(esa_only(space))
    assert np.array_equal(given.degrees(esa_only(space), thematic.NONSENSE, thematic.NONSENSE[:1]), plain)


def test_heat_map_has_a_cell_for_each_pair_of_sizes() -> None:
    drawn = heat_map("F1 < 1", (1, 2), {(1, 1): 0.5, (1, 2): 0.7, (2, 1): 0.6, (2, 2): 0.8}, baseline=0.6)
    assert drawn.count('rx="22"') == 2
    assert drawn.count('rx="0"') == 2
    assert "F1 &lt; 1" in drawn


def test_every_table_has_rows(own: Thesaurus, space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thematic, "QUICK_EVENTS", 20)
    monkeypatch.setattr(thematic, "PAPER_EVENTS", 30)
    monkeypatch.setattr(thematic, "SIZES", (1, 2, 3))
    drawn: dict[str, str] = {}
    setting = Setting(quick=True)
    rows = [
        *thematic.no_themes(space, own, True, setting),
        *thematic.themes(space, own, True, False, drawn, setting),
        *thematic.controls(space, own, setting),
        *thematic.throughput(space, thesaurus.OWN, True, setting),
    ]
    assert all(0 <= row["value"] <= 1 for row in rows if row["unit"] == "F1" and "gain" not in row["what"])
    assert [row["value"] for row in rows if "nonsense tags" in row["what"]] == [0, 0, 0]
    by_the_letter = next(row for row in rows if row["what"] == "sensors: esa-paper-by-the-letter")
    assert by_the_letter["target"] == "0.57 to 0.65 F1"
    assert by_the_letter["met"] is (0.57 <= by_the_letter["value"] <= 0.65)
    assert [row["target"] for row in rows if "from Arrow" in row["what"]] == ["at least 100000 events/s"]
    assert sorted(drawn) == sorted(f"{mode}-figure{n}" for mode in thematic.MODES for n in (7, 8, 9, 10))
