"""The columnar engine: segments agree with rows; additions, joins and removals lose nothing."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from random import Random
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests import generate
from tests.conftest import LARGE_EXAMPLES
from tests.matching.contract import LOW_LIMITS, MatcherMachine, drawn, expected, matched
from tidegate import Filter, Schema, TidegateError, UnsatisfiableFilter
from tidegate.matching import Matcher, checks, columnar, kernels, segment
from tidegate.matching.axis import Axis, NumberThresholds
from tidegate.matching.columnar import ColumnarIndex
from tidegate.matching.delta_scan import holds
from tidegate.matching.events import read_batch
from tidegate.matching.rows import FLOAT, Axes
from tidegate.matching.segment import BitsetSegment, Spans
from tidegate.model import arrow

randoms = st.integers(0, 2**64).map(Random)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in LOW_LIMITS:
        monkeypatch.setattr(module, name, value)


def settled(matcher: Matcher) -> Matcher:
    assert isinstance(matcher._index, ColumnarIndex)
    matcher._index.settle()
    return matcher


# Segments ----------------------------------------------------------------------


def random_spans(rng: np.random.Generator, rows: int, axes: int, codes: int) -> Spans:
    """Rows with up to two spans on each of some axes."""
    built: list[Axis] = []
    lines: list[tuple[int, int, int]] = []
    first = [0]
    for _ in range(axes):
        path = Filter(f"a{len(built)} > 0", Schema({f"a{len(built)}": "float64"})).tree.root.path  # type: ignore[union-attr]
        built.append(Axis(path, {FLOAT: NumberThresholds(np.arange(codes - 4, dtype=np.float64))}))
    for _ in range(rows):
        for axis in np.flatnonzero(rng.random(axes) < 0.7):
            ends = np.sort(rng.choice(np.arange(codes + 1), rng.choice([2, 2, 4]), replace=False))
            lines += [(int(axis), int(a), int(b)) for a, b in zip(ends[::2], ends[1::2], strict=True)]
        first.append(len(lines))
    return Spans(tuple(built), np.array(first, np.int32), np.array(lines, np.int32).reshape(-1, 3))


def by_hand(spans: Spans, codes: Any) -> list[list[int]]:
    """Evaluate the spans of each row one by one; code 2 is mistyped, and every row allows it."""
    out = []
    for event in codes.tolist():
        holding = []
        for row in range(spans.rows):
            allowed: dict[int, bool] = {}
            for axis, low, high in spans.table[spans.first[row] : spans.first[row + 1]].tolist():
                inside = low <= event[axis] < high or event[axis] == 2
                allowed[axis] = allowed.get(axis, False) or inside
            if all(allowed.values()):
                holding.append(row)
        out.append(holding)
    return out


@pytest.mark.parametrize(
    ("rows", "codes", "buckets"), [(70, 9, 64), (70, 200, 8), (1_500, 40, 12), (3_000, 400, 16), (3_000, 400, 2_048)]
)
def test_segment_agrees_with_its_rows(rows: int, codes: int, buckets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "MAX_BUCKETS", buckets)
    monkeypatch.setattr(segment, "MIN_BUCKETS", buckets)
    rng = np.random.default_rng(rows + codes)
    plain = random_spans(rng, rows, axes=4, codes=codes)
    spans = plain.select(plain.clustered())
    built = BitsetSegment(spans)
    assert all(count <= max(buckets, codes) for count in built.buckets())
    events = rng.integers(0, codes, (25, 4)).astype(np.int32)
    gone = rng.choice(rows, rows // 10, replace=False)
    alive = segment.clear_rows(gone, rows)
    for bits, missing in ((None, set()), (alive, set(gone.tolist()))):
        offsets, found_rows = built.candidates(events, bits)
        per_event = [found_rows[a:b].tolist() for a, b in pairwise(offsets)]
        assert per_event == [[r for r in holding if r not in missing] for holding in by_hand(spans, events)]


def test_clustering_keeps_every_row_once() -> None:
    spans = random_spans(np.random.default_rng(3), 5_000, axes=3, codes=300)
    assert sorted(spans.clustered().tolist()) == list(range(5_000))


# Rows --------------------------------------------------------------------------


@given(randoms)
@settings(max_examples=LARGE_EXAMPLES)
def test_rows_without_checks_agree_with_the_filter(rng: Random) -> None:
    of = generate.schema(rng)
    schema = of if rng.random() < 0.7 else None
    filter_ = drawn(rng, of, schema)
    axes = Axes()
    compiled = axes.compile(filter_)
    events = [generate.wild_event(rng, of) for _ in range(6)]
    points = {n: read_batch(events).points(path) for n, path in enumerate(axes.paths)}
    for n, event in enumerate(events):
        actual = [(holds(row, points, n), row.checks) for row in compiled.rows]
        if any(holding and calls == () for holding, calls in actual):
            assert filter_.matches(event)
        if all(holding is False for holding, _ in actual):
            assert not filter_.matches(event)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("speed > 3 AND vid = 'B'", "vid = 'B' AND speed > 3", True),
        ("speed BETWEEN 1 AND 3", "speed  between 1 and 3", True),
        ("lane > 0", "lane >= 1", False),
        ("lane > 0", "lane >= 0.5", False),
        ("vid LIKE '%7%' OR lane = 1", "lane = 1 OR vid LIKE '%7%'", True),
    ],
)
def test_equal_filters_are_indexed_once(one: str, other: str, shared: bool) -> None:
    matcher = Matcher(Schema({"speed": "float64", "vid": "string", "lane": "int8"}))
    matcher.add("s1", one)
    matcher.add("s2", other)
    assert (matcher.describe()["filters"] == 1) is shared
    assert (Filter(one, matcher.schema) == Filter(other, matcher.schema)) is shared


# Delta, joins, removals -----------------------------------------------------------


class SmallMachine(MatcherMachine):
    """The same with limits so low that parts are joined all the time, and with steps that wait for a join."""

    engine = "columnar"

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        for module, name, value in LOW_LIMITS:
            self.patch.setattr(module, name, value)
        super().__init__()

    def teardown(self) -> None:
        self.patch.undo()

    @rule()
    def settle(self) -> None:
        settled(self.matcher)

    @rule()
    def pickle(self) -> None:
        self.matcher = pickle.loads(pickle.dumps(self.matcher))

    @rule(seed=st.integers(0, 2**32))
    def share(self, seed: int) -> None:
        """Somebody subscribes with a filter that somebody else has."""
        rng = Random(seed)
        if self.model:
            self.put_filter(f"t{rng.randint(0, 20)}", rng.choice(sorted(self.model.items()))[1])

    def put_filter(self, name: str, made: Filter) -> None:
        if name in self.model:
            self.matcher.replace(name, made)
        else:
            self.matcher.add(name, made)
        self.model[name] = made


TestSmallMachine = SmallMachine.TestCase
TestSmallMachine.settings = settings(max_examples=LARGE_EXAMPLES // 2, stateful_step_count=20, deadline=None)


@pytest.mark.usefixtures("small")
def test_changes_during_a_join_are_not_lost() -> None:
    """Filters are added, removed and reassigned while the index is being rebuilt."""
    rng = Random(5)
    schema = Schema({"x": "int32", "y": "float64", "vid": "string"})
    matcher = Matcher(schema)
    model: dict[str, Filter] = {}
    events = [{"x": n, "y": n / 2, "vid": f"v{n % 7}"} for n in range(40)]
    for step in range(1_500):
        name = f"s{rng.randint(0, 300)}"
        text = rng.choice(
            [
                f"x BETWEEN {rng.randint(-5, 20)} AND {rng.randint(20, 45)}",
                f"vid = 'v{rng.randint(0, 9)}' AND y > {rng.randint(0, 15)}",
                f"x = {rng.randint(0, 40)} OR vid LIKE '%{rng.randint(0, 9)}'",
                f"y IS TRIANGLE({rng.randint(0, 9)}, 10, 12)",
            ]
        )
        if name in model and rng.random() < 0.5:
            matcher.remove(name)
            del model[name]
        elif name in model:
            matcher.replace(name, text)
            model[name] = Filter(text, schema)
        else:
            matcher.add(name, text)
            model[name] = Filter(text, schema)
        if step % 10 == 0:
            event = rng.choice(events)
            assert matched(matcher, [event], 1) == expected(model, [event])
    assert matched(matcher, events, 40) == expected(model, events)
    assert matched(settled(matcher), arrow.to_batch(events, schema), 40) == expected(model, events)


@pytest.mark.usefixtures("small")
def test_parts_are_joined_after_quiet_matches() -> None:
    matcher = Matcher()
    for n in range(100):
        matcher.add(f"s{n}", f"x = {n}")
        matcher.match([{"x": n}])
    for _ in range(10):  # a join that is slow to start or to end must not take the place of one after these matches
        settled(matcher).match([{"x": 1}])
    shape = settled(matcher).describe()
    assert [part["filters"] for part in shape["segments"]] + [shape["delta"]] == [100, 0]


def test_no_join_thread_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Thread] = []

    class Noted(Thread):
        def start(self) -> None:
            started.append(self)
            super().start()

    monkeypatch.setattr(columnar, "Thread", Noted)
    matcher = Matcher()
    matcher.add_all({f"s{n}": f"x = {n}" for n in range(20)})
    matcher.match([{"x": 1}] * 100)  # enough that the delta is indexed
    matcher.add("later", "x > 0")
    for _ in range(2 * columnar.QUIET_MATCHES):
        assert len(matcher.match([{"x": 1}])) == 2
    assert started == []


@pytest.mark.usefixtures("small")
def test_thresholds_of_removed_filters_are_dropped() -> None:
    matcher = Matcher(Schema({"x": "float64", "vid": "string"}))
    sizes = []
    for turn in range(6):
        for n in range(60):
            matcher.add(f"s{turn}-{n}", f"x > {turn * 1000 + n} AND vid = 'v{turn}-{n}'")
            matcher.match([{"x": 0.5}])
        for n in range(60):
            matcher.remove(f"s{turn}-{n}")
            matcher.match([{"x": 0.5}])
        sizes.append(settled(matcher).describe()["bytes"])
    assert max(sizes[1:]) < 3 * max(sizes[0], 20_000)


def test_many_filters_are_stored_unindexed_until_the_first_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "MAX_UNMATCHED_DELTA", 100)
    matcher = Matcher(Schema({"x": "int32"}))
    for n in range(350):
        matcher.add(f"s{n}", f"x = {n % 50} OR x = -{n}")
    assert matcher.describe()["delta"] <= 101
    assert len(matcher.match([{"x": 7}])) == 7


def test_add_all_adds_all_or_none() -> None:
    matcher = Matcher(Schema({"x": "int32"}))
    matcher.add_all({"a": "x = 1", "b": "x = 1", "c": "x > 5"})
    assert matcher.describe()["filters"] == 2
    with pytest.raises(Exception, match="subscription 'c' already exists"):
        matcher.add_all({"d": "x = 2", "c": "x = 3"})
    with pytest.raises(Exception, match="'y'"):
        matcher.add_all({"d": "x = 2", "e": "y = 3"})
    assert sorted(matcher) == ["a", "b", "c"]
    assert matcher.match([{"x": 1}]).for_event(0) == ["a", "b"]


def test_set_params_keeps_the_text() -> None:
    matcher = Matcher(Schema({"x": "int32"}))
    matcher.add("s", Filter("x > %0", matcher.schema, ["3"]))
    matcher.set_params("s", ["10"])
    assert matcher.match([{"x": 5}, {"x": 11}]).for_subscription("s").tolist() == [1]
    assert str(matcher.filter("s")) == "x > 10"
    with pytest.raises(Exception, match="%0"):
        matcher.set_params("s", ["many"])
    assert matcher.match([{"x": 5}, {"x": 11}]).for_subscription("s").tolist() == [1]


# Checks --------------------------------------------------------------------------


@pytest.mark.parametrize("remembered", [2**24, 40])
def test_text_answers_are_cached_up_to_a_limit(remembered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_CACHED_ANSWERS", remembered)
    schema = Schema({"vid": "string", "n": "int32"})
    matcher = Matcher(schema)
    filters = {f"s{n}": Filter(f"vid LIKE '%{n}%' AND n > {n}", schema) for n in range(10)}
    filters |= {f"t{n}": Filter(f"vid NOT LIKE '%{n}_' OR vid STRLIKE 'v{n}'", schema) for n in range(5)}
    matcher.add_all(filters)
    for turn in range(4):
        events = [{"vid": f"v{turn * 50 + n}", "n": n % 12} for n in range(120)] + [{"vid": None, "n": 3}, {"n": 4}]
        assert matched(matcher, events, 122) == expected(filters, events)
        assert matched(matcher, arrow.to_batch(events, schema), 122) == expected(filters, events)


@given(randoms)
@settings(max_examples=LARGE_EXAMPLES)
def test_fuzzy_groups_agree_with_the_filter(rng: Random) -> None:
    schema = Schema({"a": "float64", "b": "int32", "c": "float32"})
    filters = {f"s{n}": drawn_group(rng, schema) for n in range(8)}
    matcher = Matcher(schema)
    matcher.add_all(filters)
    events = [generate.event(rng, schema) for _ in range(80)]
    assert matched(matcher, events, 80) == expected(filters, events)
    matches = matcher.match(arrow.to_batch(events, schema))
    for event, name, degree in zip(*matches.pairs(), matches.degrees(), strict=True):
        assert degree == pytest.approx(filters[name].degree(events[event]))


@given(randoms)
@settings(max_examples=LARGE_EXAMPLES)
def test_areas_agree_with_the_filter(rng: Random) -> None:
    schema = Schema({"lon": "float64", "lat": "float64", "n": "int32"})
    matcher = Matcher(schema)
    texts = {f"s{n}": f"(lon, lat) {rng.choice(['', 'NOT '])}INSIDE {rng.choice(generate.AREAS)}" for n in range(12)}
    texts |= {f"t{n}": f"(n, lat) INSIDE {rng.choice(generate.AREAS)} AND lon > {n}" for n in range(4)}
    filters = {name: Filter(text, schema) for name, text in texts.items()}
    matcher.add_all(filters)
    places = [-200.0, -180.0, -171.5, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 175.0, 180.0, float("nan"), None]
    events = [
        {"lon": rng.choice(places), "lat": rng.choice(places), "n": rng.choice([0, 1, 3, None])} for _ in range(90)
    ]
    assert matched(matcher, events, 90) == expected(filters, events)
    assert matched(matcher, arrow.to_batch(events, schema), 90) == expected(filters, events)


def drawn_group(rng: Random, schema: Schema) -> Filter:
    while True:
        try:
            return Filter(generate.group(rng, schema), schema)
        except UnsatisfiableFilter:
            continue


# Corners -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "base", "step"), [("int64", 1_700_000_000_000_000_000, 100), ("uint64", 2**63 + 5, 70)]
)
def test_integers_that_floats_round_are_distinguished(kind: str, base: int, step: int) -> None:
    schema = Schema({"n": kind})
    filters = {f"s{k}": Filter(f"n >= {base + k * step}", schema) for k in range(60)}
    filters |= {f"t{k}": Filter(f"n = {base + k * step}", schema) for k in range(60)}
    matcher = Matcher(schema)
    matcher.add_all(filters)
    events = [{"n": base + k * step // 2} for k in range(120)]
    assert matched(matcher, events, 120) == expected(filters, events)
    assert matched(matcher, arrow.to_batch(events, schema), 120) == expected(filters, events)


@pytest.mark.parametrize("size", [1, 12])
def test_integers_in_a_float_attribute(size: int) -> None:
    schema = Schema({"x": "float64"})
    filters = {"a": Filter(f"x < {2**53 + 1}", schema), "b": Filter("x IN (9223372036854775807)", schema)}
    filters |= {f"s{k}": Filter(f"x > {k}", schema) for k in range(40)}
    matcher = Matcher(schema)
    matcher.add_all(filters)
    for value in (2**53 + 1, 2**63 - 1, 7, -3, 10**400):
        events = [{"x": value}] * size
        assert matched(matcher, events, size) == expected(filters, events)


@pytest.mark.parametrize("value", [-(2**53) - 1, -(2**53), 2**53, 2**53 + 1])
def test_integers_that_no_float_equals_in_a_float_attribute(value: int) -> None:
    schema = Schema({"x": "float64"})
    filters = {
        f"{relation}{end}": Filter(f"x {relation} {end}", schema) for relation in "<=>" for end in (-(2**53), 2**53)
    }
    matcher = Matcher(schema)
    matcher.add_all(filters)
    events = [{"x": value}] * 100
    assert matched(matcher, events, 100) == expected(filters, events)
    assert matched(matcher, pa.record_batch({"x": pa.array([value] * 100)}), 100) == expected(filters, events)


def test_dictionary_with_duplicates_and_unsigned_indices_matches() -> None:
    matcher = Matcher(Schema({"vid": "string"}))
    matcher.add_all({"b": "vid LIKE '%b%'", "a": "vid LIKE '%a%'", "is a": "vid = 'a'"})
    for index in (pa.int8(), pa.uint32()):
        codes = pa.array([n % 3 for n in range(21)], index)
        batch = pa.record_batch({"vid": pa.DictionaryArray.from_arrays(codes, pa.array(["a", "a", "b"]))})
        assert matched(matcher, batch, 3) == [["a", "is a"], ["a", "is a"], ["b"]]


def test_set_params_of_a_shared_filter_changes_one_subscription() -> None:
    matcher = Matcher(Schema({"x": "int32"}))
    matcher.add("a", "x > 3")
    matcher.add("b", Filter("x > %0", matcher.schema, ["3"]))
    matcher.set_params("b", ["10"])
    assert matcher.match([{"x": 5}]).for_event(0) == ["a"]
    assert [str(matcher.filter(name)) for name in "ab"] == ["x > 3", "x > 10"]


def test_added_and_removed_filters_do_not_accumulate() -> None:
    matcher = Matcher(Schema({"x": "float64"}))
    matcher.add("w", "x > 1.5")
    for n in range(5_000):
        matcher.replace("w", f"x > {n}.25")
        if n % 10 == 0:
            matcher.match([{"x": 3.0}])
    index = settled(matcher)._index
    assert isinstance(index, ColumnarIndex)
    assert len(index._now.items) < 10 * columnar.MAX_DELTA


def test_like_star_distinguishes_equal_patterns() -> None:
    matcher = Matcher()
    matcher.add("sql", Filter("a LIKE b"))
    matcher.add("star", Filter("a LIKE b", like_star=True))
    assert matcher.match([{"a": "xyz", "b": "x*"}]).for_event(0) == ["star"]


def test_each_subscription_is_listed_once() -> None:
    matcher = Matcher()
    matcher.add_all({f"s{n}": f"x = {n} OR y = {n}" for n in range(100)})
    ids, offsets, events = matcher.match([{"x": 1}, {"y": 1}, {"x": 2}] * 10).by_subscription()
    assert sorted(ids.tolist()) == ["s1", "s2"]
    at = ids.tolist().index("s1")
    assert events[offsets[at] : offsets[at + 1]].tolist() == [n for n in range(30) if n % 3 < 2]


def test_filters_with_own_schemas_in_a_matcher_without_schema() -> None:
    matcher = Matcher()
    filters = {"a": Filter("x > 3", Schema({"x": "float64"})), "b": Filter("x = 'abc'")}
    filters |= {f"q{n}": Filter(f"x = 'v{n}'") for n in range(60)}
    matcher.add_all(filters)
    matcher.add("c", filters["a"])
    filters["c"] = filters["a"]
    events: list[dict[str, Any]] = [{"x": "abc"}, {"x": 5.0}, {"x": "v7"}] * 4
    assert matched(matcher, events, 12) == expected(filters, events)
    assert matcher.filter("a").schema == filters["a"].schema


@pytest.mark.parametrize("text", ["vid = '''", "vid = 'abc''"])
def test_doubled_quotes_are_parsed(text: str) -> None:
    matcher = Matcher(Schema({"vid": "string"}))
    matcher.add("s", "vid = 'x'")
    plain = [caught for _ in range(2) if (caught := refused(matcher, text)) is not None]
    assert len(set(plain)) <= 1


def refused(matcher: Matcher, text: str) -> str | None:
    try:
        matcher.add(text + "?" * len(matcher), text)
    except TidegateError as exc:
        return str(exc)
    return None


@pytest.mark.parametrize("size", [3, 12])
def test_times_beyond_pythons_calendar(size: int) -> None:
    matcher = Matcher(Schema({"t": "timestamp"}))
    matcher.add_all({f"s{n}": f"t > '20{n:02d}-01-01'" for n in range(10, 80)})
    matcher.match([{"t": "2030-01-01"}] * 20)
    batch = pa.record_batch({"t": pa.array([400_000_000_000] * size, pa.timestamp("s"))})
    assert len(settled(matcher).match(batch)) == 70 * size


def test_signaling_nan_is_null() -> None:
    matcher = Matcher()
    matcher.add_all({"more": "x > 3", "none": "x IS NULL"})
    for size in (1, 12):
        assert matched(matcher, [{"x": Decimal("sNaN")}] * size, size) == [["none"]] * size


def test_minimum_membership_below_slack_is_ignored() -> None:
    text = "FUZZY(a = 1 AT LEAST 0.0000000001, b IS TRIANGLE(0, 1, 2)) >= 0.3"
    matcher = Matcher()
    matcher.add("s", text)
    event = {"a": 0, "b": 1}
    assert matched(matcher, [event], 1) == expected({"s": Filter(text)}, [event])


def test_removal_before_the_first_match_builds_no_index() -> None:
    matcher = Matcher(Schema({"x": "float64"}))
    matcher.add_all({f"s{n}": f"x > {n}" for n in range(columnar.MAX_UNMATCHED_DELTA + 10)})
    matcher.remove("s5")
    matcher.describe()
    index = matcher._index
    assert isinstance(index, ColumnarIndex)
    assert not any(view.part.is_indexed for view in index._now.views)
    assert len(matcher.match([{"x": 10.5}])) == 10


# Input and output -----------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_text_matches_in_every_arrow_form(kind: pa.DataType) -> None:
    schema = Schema({"vid": "string", "other": "string", "n": "float64"})
    filters = ["vid = 'B7'", "vid LIKE '%7' AND n > 1", "vid < other", "vid < other OR n IS TRIANGLE(0, 1, 2)"]
    matcher = Matcher(schema)
    matcher.add_all({f"s{n}": text for n, text in enumerate(filters)})
    events = [{"vid": vid, "other": "B8", "n": n / 8} for n, vid in enumerate(["B7", "C7", None, "", "B9"] * 4)]
    plain = arrow.to_batch(events, schema)
    batch = plain.set_column(0, "vid", plain.column("vid").cast(kind)).slice(3)
    truth = expected({f"s{n}": Filter(text, schema) for n, text in enumerate(filters)}, events[3:])
    assert matched(matcher, batch, 17) == truth
    assert len(matcher.match(batch).degrees()) == sum(map(len, truth))


def test_ndjson_lines_are_events() -> None:
    matcher = Matcher(Schema({"x": "int32", "time": "timestamp"}))
    matcher.add("s", "x > 3 AND time >= '2026-01-01T00:00:00Z'")
    lines = b'{"x": 5, "time": "2026-01-02T00:00:00Z"}\n\n{"x": 5, "time": "2025-01-02T00:00:00Z"}\r\n{"x": 3}'
    matches = matcher.match(lines)
    assert matches.events == 3
    assert matches.for_subscription("s").tolist() == [0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b'{"x": 1}\n{"x": }', "line 2: expected a JSON object, not '{\"x\": }': "),
        (b"[1]", "line 1: expected a JSON object, not '[1]'"),
        (b'\n\n{"x": 1', "line 3: expected a JSON object"),
        (b"\xff\xfe", "line 1: expected a JSON object, not '\ufffd\ufffd'"),
    ],
)
def test_invalid_json_line_is_shown_in_the_error(lines: bytes, message: str) -> None:
    with pytest.raises(Exception, match="expected a JSON object") as caught:
        Matcher().match(lines)
    assert message in str(caught.value)


@given(randoms)
@settings(max_examples=LARGE_EXAMPLES // 5)
def test_results_by_event_and_by_subscription_agree(rng: Random) -> None:
    matcher = Matcher()
    for n in range(rng.randint(1, 60)):
        matcher.add(f"s{n}", f"x > {rng.randint(0, 9)}" if n % 3 else f"x = {n % 7} OR y = {n}")
    matches = matcher.match([{"x": rng.randint(0, 10), "y": rng.randint(0, 60)} for _ in range(rng.randint(1, 90))])
    event, names = matches.pairs()
    pairs = list(zip(event.tolist(), names.tolist(), strict=True))
    offsets, index, ids = matches.by_event()
    by_event = [(e, ids[i]) for e in range(matches.events) for i in index[offsets[e] : offsets[e + 1]]]
    some, starts, events = matches.by_subscription()
    by_name = [(e, some[n]) for n in range(len(some)) for e in events[starts[n] : starts[n + 1]].tolist()]
    assert sorted(by_event) == sorted(by_name) == sorted(pairs)
    assert len(matches) == len(pairs) == len(set(pairs))


def signatures() -> Iterator[tuple[str, int]]:
    for name, var in vars(kernels).items():
        if hasattr(var, "signatures"):
            yield name, len(var.signatures)


def test_warm_up_compiles_all_kernels() -> None:
    schema = Schema({"a": "float64", "i": "int16", "u": "uint64", "vid": "string", "t": "timestamp", "f": "float32"})
    matcher = Matcher(schema)
    before = dict(signatures())
    texts = ["a > 3 AND i < 5", "u > 7 AND vid LIKE '%x'", "vid >= 'b' AND t > '2026-01-01'", "f IS GAUSS(1, 2)", ""]
    events = [generate.event(Random(n), schema) for n in range(50)]
    for turn in range(3):
        matcher.add_all(
            {
                f"{turn}-{n}-{k}": f"{text} OR a = {turn * 300 + n}" if text else ""
                for n in range(60)
                for k, text in enumerate(texts)
            }
        )
        for batch in (events, events[:1], arrow.to_batch(events, schema), arrow.to_batch(events[:1], schema)):
            matches = matcher.match(batch)
            matches.by_subscription()
            matches.degrees()
    settled(matcher)
    assert dict(signatures()) == before


# Explain ---------------------------------------------------------------------------


def test_explain_returns_location_and_matches() -> None:
    schema = Schema({"speed": "float64", "vid": "string", "lane": "int8"})
    matcher = Matcher(schema)
    matcher.add("s", "speed BETWEEN 10 AND 20.5 AND vid LIKE '%7%'")
    matcher.add("same", "vid LIKE '%7%' AND speed BETWEEN 10 AND 20.5")
    waiting = matcher.explain("s")
    assert (waiting["where"], waiting["shared_with"]) == ("delta", ["same"])
    assert waiting["rows"] == [
        {
            "allows": {"speed": ["float from 10.0 below 20.500000000000004"], "vid": ["string"]},
            "asks": ["vid LIKE '%7%'"],
        }
    ]
    matcher.add_all({f"n{n}": f"lane = {n % 100} AND speed > {n}" for n in range(2_000)})
    batch = [{"speed": 15.0, "vid": "B7"}, {"speed": 15.0, "vid": "B8"}, {"speed": 30.0, "vid": "B7"}] * 400
    matcher.match(batch)
    found_ = settled(matcher).explain("s", batch)
    assert found_["where"] == "segment"
    assert found_["rows"][0]["allows"] == waiting["rows"][0]["allows"]
    assert (found_["candidates"], found_["matches"]) == (800, 400)


def test_explain_without_batch_and_with_unknown_subscription() -> None:
    matcher = Matcher()
    matcher.add("s", "x > 3")
    with pytest.raises(Exception, match="no subscription 't'"):
        matcher.explain("t")
    matcher.add("null", "x IS NULL")
    assert matcher.explain("null")["rows"][0]["allows"] == {"x": ["null"]}


def test_memory_is_reported() -> None:
    matcher = Matcher(Schema({"x": "float64"}))
    matcher.add_all({f"s{n}": f"x > {n}" for n in range(2_000)})
    matcher.match([{"x": 1.0}] * 10)
    shape = settled(matcher).describe()
    assert shape["bytes"] == sum(part["bytes"] for part in shape["segments"]) > 2_000 * 12
