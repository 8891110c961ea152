"""Filters with ~ in filters and matchers."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.semantics.spaces import CITY, make
from tidegate import (
    Enum,
    Filter,
    FilterParameterError,
    FilterTypeError,
    Matcher,
    MatcherError,
    Schema,
    SemanticsUnavailable,
    Space,
)
from tidegate.filters.meaning import Meaning


@pytest.fixture(scope="module")
def space() -> Iterator[Space]:
    with tempfile.TemporaryDirectory() as folder:
        yield make(Path(folder, "space"), CITY)


class Likeness:
    """Relatedness from a table: pairs that are not in it have 0, equal texts 1."""

    rivalry = 0.0

    def __init__(self, figures: dict[tuple[str, str], float], threshold: float = 0.5) -> None:
        self.figures, self.threshold = figures, threshold

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: frozenset[str], of: frozenset[str]
    ) -> Any:
        def figure(one: str, other: str) -> float:
            by_theme = self.figures.get((f"{one}/{','.join(sorted(theme))}", f"{other}/{','.join(sorted(of))}"))
            return 1.0 if one == other else by_theme if by_theme is not None else self.figures.get((one, other), 0.0)

        return np.array([[figure(a, b) for b in terms] for a in subscribed]).reshape(len(subscribed), len(terms))


KNOWN = Likeness({("device", "machine"): 0.8, ("laptop", "computer"): 0.9, ("laptop", "notebook"): 0.4})
EVENT = {"machine": "computer", "room": "112", "speed": 61.5}


def test_filter_uses_its_own_semantics() -> None:
    wanted = Filter("device~ = 'laptop'~ AND speed > 60", semantics=KNOWN)
    assert wanted.matches(EVENT)
    assert wanted.truth(EVENT) is True
    assert wanted.degree(EVENT) == pytest.approx(0.72)
    (best,) = wanted.mappings(EVENT, k=3)
    assert (best.attributes, best.probability) == (("machine",), 1)
    assert best.similarities == pytest.approx([0.72])
    assert [predicate.attribute for predicate in best.predicates] == ["device"]
    assert not wanted.matches({**EVENT, "speed": 3})
    assert wanted.mappings({**EVENT, "speed": 3}) == []
    assert wanted.degree({**EVENT, "machine": "garage"}) == 0


def test_threshold_of_filter_precedes_matcher_and_semantics() -> None:
    event = {"device": "notebook"}
    assert not Filter("device~ = 'laptop'~", semantics=KNOWN).matches(event)
    assert Filter("device~ = 'laptop'~ THRESHOLD 0.4", semantics=KNOWN).matches(event)
    assert Filter("device~ = 'laptop'~", semantics=Meaning(KNOWN, 0.3)).matches(event)
    assert not Filter("device~ = 'laptop'~ THRESHOLD 0.5", semantics=Meaning(KNOWN, 0.3)).matches(event)
    assert not Filter("device~ = 'laptop'~", semantics=Meaning(KNOWN, 0.0)).matches({"device": "garage"})


def test_alternative_is_mapped_as_a_whole_without_reusing_a_tuple() -> None:
    both = Filter("a~ = 'laptop'~ AND b~ = 'computer'~ THRESHOLD 0.1", semantics=Likeness({("a", "b"): 0.5}))
    assert not both.matches({"b": "computer", "c": "laptop"})
    assert both.degree({"a": "laptop", "b": "computer"}) == 1
    either = Filter("a~ = 'laptop'~ OR speed > 3", semantics=KNOWN)
    assert either.matches({"speed": 4})
    assert either.matches({"a": "laptop"})
    # An equality takes its tuple: no predicate with ~ can be mapped to it.
    beside = Filter("device~ = 'laptop'~ AND machine = 'computer'", semantics=KNOWN)
    assert not beside.matches(EVENT)
    assert Filter("device~ = 'laptop'~ AND device~ = 'laptop'~", semantics=KNOWN).matches(EVENT)


def test_negated_predicate_with_tilde_is_evaluated_alone() -> None:
    other = Filter("NOT device~ = 'laptop'~ AND speed > 3", semantics=KNOWN)
    assert not other.matches(EVENT)
    assert other.matches({**EVENT, "machine": "garage"})
    assert Filter("NOT device~ = 'laptop'~ THRESHOLD 0", semantics=KNOWN).matches({"a": "b"})
    assert Filter("NOT machine = 'laptop'~", semantics=KNOWN).truth({"a": "b"}) is None
    assert Filter("machine = 'laptop'~", semantics=KNOWN).truth({"machine": None}) is None
    assert Filter("machine = 'laptop'~", semantics=KNOWN).degree({"machine": None}) == 0
    assert Filter("machine = 'laptop'~", semantics=KNOWN).truth({"machine": "garage"}) is False


def test_fuzzy_group_uses_the_degree_of_a_predicate_with_tilde() -> None:
    group = Filter("FUZZY(device~ = 'laptop'~ AT LEAST 0.4, speed IS S(0, 60)) >= 0.8", semantics=KNOWN)
    assert group.degree(EVENT) == pytest.approx((0.72 + 1) / 2)
    assert group.matches(EVENT)
    assert not group.matches({**EVENT, "machine": "garage"})
    other = Filter("FUZZY(NOT device~ = 'laptop'~ AT LEAST 0.4) >= 0.8", semantics=KNOWN)
    assert other.degree(EVENT) == pytest.approx(0.28)


def test_numbers_and_booleans_match_by_equality() -> None:
    known = Likeness({("warmth", "temperature"): 0.8})
    assert Filter("warmth~ = 30", semantics=known).matches({"temperature": 30.0})
    assert not Filter("warmth~ = 30", semantics=known).matches({"temperature": "30"})
    assert Filter("warmth~ = '30'~", semantics=known).matches({"temperature": 30})
    assert not Filter("warmth~ = 'warm'~", semantics=known).matches({"temperature": 30})
    assert Filter("warmth~ = 'true'~", semantics=known).matches({"temperature": True})
    assert Filter("warmth~ = TRUE", semantics=known).matches({"temperature": True})


def test_typed_columns_become_tuples() -> None:
    schema = Schema({"machine": Enum("garage", "computer"), "pos": {"room": "string"}, "at": "timestamp"})
    known = Likeness({**KNOWN.figures, ("place", "pos room"): 1})
    by_label = Filter("device~ = 'laptop'~ AND place~ = '112'~", schema, semantics=known)
    event = {"machine": "computer", "pos": {"room": "112"}, "at": "2026-01-01T00:00:00Z", "stray": "laptop"}
    assert by_label.matches(event)
    assert by_label.matches({**event, "machine": 1})
    assert not by_label.matches({**event, "machine": 0, "stray": "laptop"})
    rows = pa.RecordBatch.from_pylist([event, {**event, "machine": "garage"}])
    assert by_label.mask(rows).tolist() == [True, False]
    positions = rows.set_column(0, "machine", pa.array([1, 0]))
    assert by_label.mask(positions).tolist() == [True, False]
    assert by_label.degrees(positions).tolist() == pytest.approx([by_label.degree(event), 0])


@pytest.mark.parametrize(
    "text",
    [
        "level~ = '5'~",
        "level~ = 'high'~",
        "level~ = 'high'",
        "on~ = 'true'~",
        "pos~ = 'high'~",
        "pos.place~ = 'high'~",
        "wheels~ = 'high'~",
        "grade~ = 'high'",
        "at~ = 'high'~",
    ],
)
def test_name_with_tilde_need_not_be_in_the_schema(text: str) -> None:
    kinds: dict[str, Any] = {"level": "int32", "on": "bool", "pos": {"room": "string"}, "wheels": "int32[4]"}
    schema = Schema({**kinds, "grade": Enum("A", "B"), "at": "timestamp", "load": "string"})
    known = Likeness({(name, "load"): 0.9 for name in ("level", "on", "pos", "pos place", "wheels", "grade", "at")})
    event = {"level": 5, "on": True, "load": "high"}
    built = Filter(text, schema, semantics=known)
    assert built.matches(event)
    assert built.mask(pa.RecordBatch.from_pylist([event])).tolist() == [True]
    assert Filter(str(built), schema, semantics=known) == built


def test_value_beside_a_name_with_tilde_is_typed_if_it_fits() -> None:
    schema = Schema({"level": "int32", "heat": "float32"})
    assert Filter("level~ = %0", schema, ["5"], semantics=KNOWN).matches({"level": 5})
    narrow = Filter("heat~ = 0.1", schema, semantics=KNOWN)
    assert narrow.matches({"heat": 0.1})
    assert narrow.mask(pa.RecordBatch.from_pylist([{"heat": 0.1}], schema.to_arrow().remove(0))).tolist() == [True]
    with pytest.raises(FilterParameterError, match="expected a number"):
        Filter("level~ = %0", schema, ["high"])


def test_event_and_service_themes_are_combined() -> None:
    known = Likeness({("power/politics", "office/state"): 0.9, ("power/politics", "office/city,state"): 0.7})
    wanted = Filter("kind = 'power'~ WITH THEME ('politics')", semantics=known)
    assert not wanted.matches({"kind": "office"})
    assert wanted.degree({"kind": "office", "_themes": ["state"]}) == pytest.approx(0.9)
    matcher = Matcher(semantics=known, themes=["city"])
    matcher.add("s", wanted)
    assert matcher.match([{"kind": "office", "_themes": ["state"]}]).degrees().tolist() == pytest.approx([0.7])


@pytest.mark.parametrize("engine", ["columnar", "scan", "tree", "counting", "improved-tree"])
@pytest.mark.parametrize("arrow", [False, True])
def test_matcher_mixes_filters_with_and_without_tilde(engine: str, arrow: bool) -> None:
    matcher = Matcher(semantics=KNOWN, threshold=0.0, engine=engine)
    matcher.add("meant", "device~ = 'laptop'~ AND speed > 60")
    matcher.add("fast", "speed > 60")
    matcher.add_all({"too": "device ~ = 'laptop'~ and 60 < speed", "sure": "device~ = 'laptop'~ THRESHOLD 0.8"})
    events = [EVENT, {**EVENT, "machine": "laptop"}, {**EVENT, "speed": 3.0}]
    actual = matcher.match(pa.RecordBatch.from_pylist(events) if arrow else events)
    assert [actual.for_event(n) for n in range(3)] == [["meant", "too", "fast"], ["meant", "too", "fast", "sure"], []]
    assert actual.degrees().tolist() == pytest.approx([0.72, 0.72, 1, 0.8, 0.8, 1, 0.8])
    (best,) = actual.mappings(0, "too", k=3)
    assert best.attributes == ("machine",)
    assert best.degree == pytest.approx(0.72)
    assert actual.mappings(0, "fast") == actual.mappings(2, "meant") == actual.mappings(0, "nobody") == []
    with pytest.raises(IndexError, match="expected an event from 0 to 2, not 3"):
        actual.mappings(3, "too")
    assert actual.for_subscription("sure").tolist() == [1]


def test_subscription_may_change_between_filters_with_and_without_tilde() -> None:
    matcher = Matcher(semantics=KNOWN)
    matcher.add("s", "speed > 60")
    matcher.add("t", "speed > 60")
    for text, meant in (("device~ = 'laptop'~", True), ("speed > 61", False), ("device~ = %0~", True)):
        matcher.replace("s", Filter(text, params=["laptop"] if "%" in text else None))
        actual = matcher.match([EVENT])
        assert actual.for_event(0) == (["t", "s"])
        assert bool(actual.mappings(0, "s")) is meant
        assert matcher.explain("s", [EVENT])["matches"] == 1
    matcher.set_params("s", ["garage"])
    assert matcher.match([EVENT]).for_event(0) == ["t"]
    assert matcher.filter("s").matches({"device": "garage"})
    assert matcher.describe()["by_meaning"]["filters"] == 1
    matcher.remove("s")
    assert matcher.match([EVENT]).for_event(0) == ["t"]
    assert "by_meaning" not in matcher.describe()


def test_space_works_as_semantics_and_pickles(space: Space) -> None:
    wanted = Filter("kind~ = 'laptop'~ THRESHOLD 0.01", semantics=space)
    assert 0 < wanted.degree({"kind": "computer"}) < 1
    assert pickle.loads(pickle.dumps(wanted)).degree({"kind": "computer"}) == wanted.degree({"kind": "computer"})
    matcher = Matcher(semantics=space, threshold=0.0)
    matcher.add("s", wanted)
    assert matcher.match([{"kind": "computer"}]).degrees().tolist() == [wanted.degree({"kind": "computer"})]
    moved = pickle.loads(pickle.dumps(Matcher(semantics=space)))
    moved.add("s", wanted)
    assert moved.match([{"kind": "computer"}]).for_event(0) == ["s"]


def test_filter_that_cannot_be_evaluated_raises_the_reason() -> None:
    with pytest.raises(SemanticsUnavailable, match=r"tidegate semantics build CORPUS -o space/"):
        Filter("device~ = 'laptop'").matches({})
    with pytest.raises(SemanticsUnavailable, match="needs a semantic space"):
        Matcher().add("s", Filter("device~ = 'laptop'", semantics=KNOWN))
    with pytest.raises(MatcherError, match=r"semantics: expected a Space, such as .*, not 'space/'"):
        Matcher(semantics="space/")  # type: ignore[arg-type]
    with pytest.raises(MatcherError, match=r"threshold: expected a number from 0 to 1, not '0\.5'"):
        Matcher(semantics=KNOWN, threshold="0.5")  # type: ignore[arg-type]
    with pytest.raises(MatcherError, match=r"themes: expected a list of tags, such as \['energy'\], not a text"):
        Matcher(semantics=KNOWN, themes="energy")
    with pytest.raises(MatcherError, match="threshold: expected a number from 0 to 1, not 2"):
        Matcher(semantics=KNOWN, threshold=2)
    many = " AND ".join(f"a{n}~ = 'x'" for n in range(17))
    with pytest.raises(FilterTypeError, match="expected at most 16 predicates with ~ in one alternative, not 17"):
        Filter(many, semantics=KNOWN).matches({})
    ors = " AND ".join(f"(a{n}~ = 'x' OR b = {n})" for n in range(7))
    with pytest.raises(FilterTypeError, match="expected at most 64 alternatives of a filter with ~"):
        Matcher(semantics=KNOWN).add("s", ors)
    with pytest.raises(FilterTypeError, match="expected a whole field beside ~, not an element of an array"):
        Filter("a[1] = 'x'~", semantics=KNOWN).matches({})


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
    [
        ("a~ = 'x'~", "a~ = 'x'~ AND speed > 3", True),
        (
            "a~ = 'x'~",
            "a~ = 'x'~ AND b~ = 'y'~",
            False,
        ),  # the mean of both may reach a threshold that a~ alone does not
        ("a~ = 'x'~", "a~ = 'x'~ OR a~ = 'x'~ AND b~ = 'y'~", False),
        ("a~ = 'x'~ AND b = 1", "a~ = 'x'~ AND b IN (1)", False),  # there a~ may be mapped to b
        ("speed > 3", "a~ = 'x'~ AND speed > 4", True),
        ("a~ = 'x'~ AND b = 1 OR a~ = 'x'~", "a~ = 'x'~ AND b = 1", True),
        ("a~ = 'x'~ OR b~ = 'y'~", "a~ = 'x'~", False),  # there b~ may be a rival of a~
        ("NOT a~ = 'x'~", "NOT a~ = 'x'~ AND NOT b~ = 'y'~", False),  # and here it may lower a~
        ("speed > 3 OR a~ = 'x'~", "speed > 4 AND b~ = 'y'~", True),
    ],
)
def test_additional_predicate_with_tilde_prevents_covering(wide: str, narrow: str, covers: bool) -> None:
    assert Filter(wide).covers(Filter(narrow)) is covers


def test_additional_rival_prevents_covering() -> None:
    known = Likeness({("device", "machine"): 0.5, ("laptop", "notebook"): 0.5})
    wide, narrow = "device~ = 'laptop'~ OR machine = 'car'~ AND z = 1", "device~ = 'laptop'~"
    event = {"machine": "notebook"}
    known.threshold, known.figures["car", "notebook"] = 0.03, 0.4
    one, other = (Filter(text, semantics=known) for text in (wide, narrow))
    assert one.matches(event)
    assert one.covers(other)
    known.rivalry = 1.0
    assert other.matches(event)
    assert not one.matches(event)
    assert not one.covers(other)
