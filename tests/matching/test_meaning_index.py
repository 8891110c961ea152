"""The index of filters with ~ compared with the scan, and its caches."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Sequence
from threading import Thread
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tidegate import Enum, Filter, Matcher, MatcherError, Schema
from tidegate.matching import meaning_index, meaning_rows


class Chance:
    """Relatedness that looks random, but is the same for the same words and themes."""

    threshold = 0.4

    def __init__(self, competes: bool = False) -> None:
        self.rivalry = 0.7 * competes
        self.asked: list[tuple[str, ...]] = []
        """The terms of events of each question."""
        self.subscribed: list[tuple[str, ...]] = []

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: frozenset[str], of: frozenset[str]
    ) -> Any:
        self.asked.append(tuple(terms))
        self.subscribed.append(tuple(subscribed))

        def figure(one: str, other: str) -> float:
            if one.casefold() == other.casefold():
                return 1.0
            known = crc32(f"{one} {other} {sorted(theme)} {sorted(of)}".encode()) % 10
            return 0.0 if known < 3 else known / 10

        return np.array([[figure(a, b) for b in terms] for a in subscribed]).reshape(len(subscribed), len(terms))


NAMES = ["device", "kind", "room", "deskLamp", "power"]
TEXTS = ["laptop", "computer", "112", "5", "true", "noise", ""]
TAGS = ["energy", "city", "power"]

_quoted = st.sampled_from(TEXTS).map(lambda text: f"'{text}'")
_values = st.one_of(_quoted, st.sampled_from(["5", "5.0", "112", "TRUE", "-1"]))
_soft = st.one_of(
    st.builds("{}~ = {}~".format, st.sampled_from(NAMES), _quoted),
    st.builds("{}~ = {}".format, st.sampled_from(NAMES), _values),
    st.builds("{} = {}~".format, st.sampled_from(NAMES), _quoted),
)
_hard = st.one_of(
    st.builds("{} = {}".format, st.sampled_from(NAMES), _values),
    st.sampled_from(["speed > 3", "room LIKE '1%'", "kind IS NULL", "kind IS NOT NULL", "speed IS S(0, 10)"]),
)
_fuzzy = st.builds(
    "FUZZY({} AT LEAST 0.2, speed IS S(0, 10) AT LEAST 0) >= {}".format, _soft, st.sampled_from([0.3, 0.6])
)
_terms = st.one_of(_soft, _soft, _soft, _hard, _fuzzy, _soft.map("NOT {}".format))
_trees = st.recursive(
    _terms,
    lambda inner: st.lists(inner, min_size=2, max_size=3).flatmap(
        lambda some: st.sampled_from([f"({' AND '.join(some)})", f"({' OR '.join(some)})"])
    ),
    max_leaves=5,
)
_themes = st.lists(st.sampled_from(TAGS), max_size=2).map(
    lambda tags: f" WITH THEME ({', '.join(map(repr, tags))})" if tags else ""
)
_thresholds = st.sampled_from(
    ["", " THRESHOLD 0", " THRESHOLD 0.2", " THRESHOLD 0.5", " THRESHOLD 0.63", " THRESHOLD 1"]
)
texts = st.builds("{}{}{}".format, _trees, _themes, _thresholds)
events = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.one_of(st.none(), st.sampled_from(TEXTS)) for name in NAMES},
        "speed": st.floats(0, 12) | st.sampled_from([5.0, 5, 112]),
        "on": st.booleans(),
        "count": st.integers(-1, 6),
        "pos": st.fixed_dictionaries({"room": st.sampled_from(TEXTS)}),
        "_themes": st.lists(st.sampled_from(TAGS), max_size=2),
    },
)


def _refused(text: str, schema: Schema | None = None) -> bool:
    from tidegate import FilterError

    try:
        Filter(text, schema, semantics=Chance()).require_evaluable()
    except FilterError:
        return True
    return False


def compared(matchers: Sequence[Matcher], batches: Sequence[Any]) -> None:
    """Assert that all matchers give the same result for all forms of a batch."""
    wanted: list[Any] | None = None
    for matcher in matchers:
        for batch in batches:
            actual = matcher.match(batch)
            event, subscription = actual.pairs()
            answer = [*zip(event.tolist(), subscription.tolist(), actual.degrees().round(9).tolist(), strict=True)]
            wanted = answer if wanted is None else wanted
            assert answer == wanted
            for n, name, degree in answer[:3]:
                best = actual.mappings(n, name)
                if best and " OR " not in matcher.filter(name).text and "FUZZY" not in matcher.filter(name).text:
                    assert best[0].degree == pytest.approx(degree, abs=1e-9)  # which is rounded


@settings(deadline=None, max_examples=15)
@given(st.lists(texts, min_size=1, max_size=6), st.lists(events, min_size=1, max_size=6), st.booleans(), st.booleans())
def test_index_agrees_with_the_scan(
    filters: list[str], rows: list[dict[str, Any]], competes: bool, themes: bool
) -> None:
    matchers = [
        Matcher(engine=engine, semantics=Chance(competes), threshold=None if themes else 0.3, themes=["city"] * themes)
        for engine in ("scan", "columnar")
    ]
    for matcher in matchers:
        for n, text in enumerate(filters):
            if not _refused(text):
                matcher.add(f"s{n}", text)
    names = dict.fromkeys(name for row in rows for name in row)
    schema = pa.schema([pa.field(name, _ARROW.get(name, pa.string())) for name in names])
    compared(matchers, [rows, pa.RecordBatch.from_pylist(rows, schema) if len(names) else rows])


_ARROW: dict[str, Any] = {
    "speed": pa.float64(),
    "on": pa.bool_(),
    "count": pa.int8(),
    "pos": pa.struct([("room", pa.string())]),
    "_themes": pa.list_(pa.string()),
}


TYPED = Schema({"kind": Enum("laptop", "computer"), "room": "string", "speed": "float32", "pos": {"power": "string"}})
typed_events = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["laptop", "computer", None]),
        "room": st.sampled_from(TEXTS),
        "speed": st.sampled_from([5.0, 0.5, 9.0]),
        "pos": st.fixed_dictionaries({"power": st.sampled_from(TEXTS)}),
    }
)


@settings(deadline=None, max_examples=15)
@given(st.lists(texts, min_size=1, max_size=4), st.lists(typed_events, min_size=1, max_size=5))
def test_index_agrees_with_the_scan_with_a_schema(filters: list[str], rows: list[dict[str, Any]]) -> None:
    matchers = [Matcher(TYPED, engine=engine, semantics=Chance()) for engine in ("scan", "columnar")]
    for matcher in matchers:
        for n, text in enumerate(filters):
            if not _refused(text, TYPED):
                matcher.add(f"s{n}", text)
    compared(matchers, [rows, pa.RecordBatch.from_pylist(rows), pa.RecordBatch.from_pylist(rows, TYPED.to_arrow())])


def test_semantics_is_asked_once_per_word() -> None:
    known = Chance()
    matcher = Matcher(semantics=known, threshold=0.0)
    matcher.add("s", "device~ = 'laptop'~")
    rows = [{"kind": text, "device": "noise"} for text in TEXTS]
    matcher.match(rows)
    calls = len(known.asked)
    matcher.match(rows * 3)
    matcher.match(pa.RecordBatch.from_pylist(rows))
    assert len(known.asked) == calls
    matcher.match([{"kind": "new"}])
    assert known.asked[calls:] == [("new",)]


def test_attribute_similar_to_no_name_is_not_read() -> None:
    known = Chance()
    matcher = Matcher(semantics=known, threshold=0.9)
    matcher.add("s", "device = 'laptop'~ AND kind~ = 'x'")
    matcher.match([{"number": f"plate {n}", "device": "laptop"} for n in range(10)])
    assert not any("plate" in term for terms in known.asked for term in terms)


def test_tuple_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning_rows, "MAX_CACHED_TUPLES", 20)
    matcher = Matcher(semantics=Chance(), threshold=0.0)
    matcher.add("s", "device~ = 'laptop'~")
    for n in range(10):
        matcher.match([{"device": f"word {m}"} for m in range(10 * n, 10 * n + 10)])
        assert matcher.describe()["by_meaning"]["tuples"] <= 30
    assert matcher.match([{"device": "laptop"}]).for_event(0) == ["s"]


@pytest.mark.parametrize(
    "event",
    [
        lambda n: {f"number {n}": "laptop"},
        lambda n: {"number": "laptop", "_themes": [f"tag {n}"]},
        lambda n: {"device": f"word {n} " + 1_000 * "x"},
    ],
    ids=["attributes", "tags", "letters"],
)
def test_cache_limit_counts_attributes_tags_and_characters(monkeypatch: pytest.MonkeyPatch, event: Any) -> None:
    monkeypatch.setattr(meaning_rows, "MAX_CACHED_TUPLES", 100)
    monkeypatch.setattr(meaning_rows, "MAX_CACHED_CHARACTERS", 40_000)
    known = Chance()
    matcher = Matcher(semantics=known, threshold=0.9)
    matcher.add("s", "device = 'laptop'~")
    for n in range(0, 400, 20):
        matcher.match([event(m) for m in range(n, n + 20)])
    memory = _memory(matcher)
    remaining = [text for tags, met in memory._met.items() for text in (*tags, *met.lines, *met.rows.get("device", ()))]
    assert len(remaining) <= 220
    assert sum(map(len, remaining)) <= 80_000
    assert matcher.match([{"device": "laptop"}]).for_event(0) == ["s"]


def _memory(matcher: Matcher) -> meaning_rows.TupleCache:
    index: Any = matcher._semantic_index
    ((part,),) = (group.parts for group in index._groups)
    actual: meaning_rows.TupleCache = part.memory
    return actual


@settings(max_examples=30)
@given(st.lists(st.integers(-1, 60)), st.integers(61, 2_000))
def test_distinct_codes_are_found_for_any_number_of_codes(codes: list[int], bound: int) -> None:
    used, places = meaning_rows._distinct(np.array(codes, np.int64), bound)
    assert used.tolist() == sorted(set(codes) - {-1})
    assert [-1 if place < 0 else used[place] for place in places] == codes


def test_different_tags_per_event_need_no_quadratic_table() -> None:
    matcher = Matcher(semantics=Chance(), threshold=0.9)
    matcher.add("s", "device = 'laptop'~ THRESHOLD 1")
    rows = [{"device": "laptop" if n % 2 else f"word {n}", "_themes": [f"tag {n}"]} for n in range(600)]
    matcher.match(rows)  # so that only the memory of a match is counted
    tracemalloc.start()
    actual = matcher.match(rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert actual.pairs()[0].tolist() == list(range(1, 600, 2))
    assert peak < 2**20  # five bytes for each pair would be 1.8 million


@pytest.mark.parametrize("text", ["device~ = 'laptop'~", "NOT device = 'laptop'~ OR kind IS NULL"])
def test_empty_batch_matches_nothing(text: str) -> None:
    matcher = Matcher(semantics=Chance(), threshold=0.0)
    matcher.add("s", text)
    empty = pa.RecordBatch.from_pylist([], pa.schema([("device", pa.string()), ("_themes", pa.list_(pa.string()))]))
    forms: tuple[Any, ...] = (empty, empty.select(["device"]), empty.select([]), [])
    for batch in forms:
        actual = matcher.match(batch)
        assert len(actual) == 0
        assert actual.degrees().tolist() == []


def test_numbers_are_compared_exactly_in_every_form() -> None:
    exact, whole = 2**53 + 1, float(2**53)
    filters = [f"speed~ = {exact}", f"speed~ = '{exact}'~", "speed~ = 2.5", "speed~ = '1e999'~", "speed~ = 5"]
    matchers = [Matcher(engine=engine, semantics=Chance()) for engine in ("scan", "columnar")]
    for matcher in matchers:
        matcher.add_all({f"s{n}": text for n, text in enumerate(filters)})
    for values, kind in (
        ([whole, 2.5, 5.0], pa.float64()),
        ([exact, exact - 1, 5], pa.int64()),
        ([exact, 2, 5], pa.uint64()),
    ):
        rows = [{"speed": value} for value in values]
        compared(matchers, [rows, pa.RecordBatch.from_pydict({"speed": pa.array(values, kind)})])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["city"], None, ["power"]], pa.list_view(pa.string())),
        pa.array([["city"], None, ["power"]], pa.large_list_view(pa.large_string())),
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array([["power"], ["city"]])),
        pa.array(["city", None, "power"]),
        pa.array(["city", None, "power"], pa.string_view()),
        pa.array(["city", None, "power"]).dictionary_encode(),
    ],
    ids=["list view", "large list view", "dictionary of lists", "text", "text view", "dictionary of texts"],
)
def test_tags_may_be_any_kind_of_list_or_one_string(column: pa.Array) -> None:
    rows = [{"device": "computer", "_themes": tags} for tags in (["city"], None, ["power"])]
    batch = pa.RecordBatch.from_pydict({"device": ["computer"] * 3, "_themes": column})
    matchers = [Matcher(engine=engine, semantics=Chance(), threshold=0.1) for engine in ("scan", "columnar")]
    for matcher in matchers:
        matcher.add_all({f"s{n}": f"kind~ = '{text}'~" for n, text in enumerate(TEXTS)})
    compared(matchers, [rows, batch])


def test_attribute_name_that_is_no_string_is_no_tuple() -> None:
    matcher = Matcher(semantics=Chance(), threshold=0.0)
    matcher.add("s", "device~ = 'laptop'~")
    stray: Any = {5: "laptop", ("device",): "laptop"}
    actual = matcher.match([{**stray, "device": "laptop"}, stray])
    assert actual.pairs()[0].tolist() == [0]


def test_output_buffer_grows_with_the_matches() -> None:
    matcher = Matcher(semantics=Chance(), threshold=0.0)
    matcher.add_all({f"s{n}": f"device~ = 'laptop'~ THRESHOLD 0.{n + 100}" for n in range(50)})
    actual = matcher.match([{"device": "laptop"}] * 40)
    assert len(actual) == 2_000
    assert actual.degrees().tolist() == [1.0] * 2_000


def test_threads_match_and_change_concurrently() -> None:
    matcher = Matcher(semantics=Chance(), threshold=0.0)
    matcher.add("s", "device~ = 'laptop'~")
    wrong: list[Any] = []

    def match(begin: int) -> None:
        for n in range(30):
            actual = matcher.match([{"device": "laptop", "kind": f"word {begin + n}"}] * 3)
            if "s" not in actual.for_event(2):
                wrong.append(actual.pairs())

    threads = [Thread(target=match, args=(n * 100,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for n in range(20):
        matcher.replace("s", "device = 'laptop'" if n % 2 else "device~ = 'laptop'~")
        matcher.add(f"t{n}", f"room~ = 'word {n}'~")
    for thread in threads:
        thread.join()
    assert wrong == []


class Changing(RuleBasedStateMachine):
    """Filters are added and removed between matches; groups are joined early, so that few filters make many."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = pytest.MonkeyPatch()
        self.sizes.setattr(meaning_index, "MAX_INLINE_FILTERS", 2)
        self.sizes.setattr(meaning_index, "MAX_GROUPS", 2)
        self.matchers: list[Matcher] = []
        self.names: list[str] = []
        self.count = 0

    @initialize(competes=st.sampled_from([False, False, True]))
    def begin(self, competes: bool) -> None:
        self.matchers = [Matcher(engine=engine, semantics=Chance(competes)) for engine in ("scan", "columnar")]

    @rule(filters=st.lists(texts, min_size=1, max_size=4))
    def add(self, filters: list[str]) -> None:
        some = {f"s{self.count + n}": text for n, text in enumerate(filters) if not _refused(text)}
        for matcher in self.matchers:
            matcher.add_all(some)
        self.names += some
        self.count += len(filters)

    @precondition(lambda self: self.names)
    @rule(data=st.data(), text=st.none() | texts)
    def change(self, data: st.DataObject, text: str | None) -> None:
        name = data.draw(st.sampled_from(self.names))
        if text is None:
            self.names.remove(name)
        for matcher in self.matchers:
            if text is None:
                matcher.remove(name)
            elif not _refused(text):
                matcher.replace(name, text)

    @rule(rows=st.lists(events, min_size=1, max_size=4))
    def match(self, rows: list[dict[str, Any]]) -> None:
        compared(self.matchers, [rows])

    @rule()
    def settle(self) -> None:
        self.matchers[1].close()

    def teardown(self) -> None:
        for matcher in self.matchers:
            matcher.close()
        self.sizes.undo()


TestChanging = Changing.TestCase
TestChanging.settings = settings(deadline=None, max_examples=8, stateful_step_count=20)


def test_added_filter_is_indexed_alone_without_asking_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning_index, "MAX_INLINE_FILTERS", 8)
    known = Chance()
    matcher = Matcher(semantics=known, threshold=0.0)
    matcher.add_all({f"s{n}": f"device~ = 'word {n}'~" for n in range(40)})
    event = [{"device": "word 7"}]
    before = matcher.match(event).for_event(0)
    known.subscribed.clear()
    matcher.add("new", "device~ = 'word 40'~")
    assert "new" in matcher.match([{"device": "word 7"}, {"device": "word 40"}]).for_event(1)
    assert ("word 40",) in known.subscribed
    matcher.remove("s7")
    matcher.remove("new")
    known.subscribed.clear()
    assert matcher.match(event).for_event(0) == [name for name in before if name != "s7"]
    assert known.subscribed == []
    assert matcher.describe()["by_meaning"]["gone"] == 2


def test_background_join_asks_semantics_so_that_a_match_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning_index, "MAX_INLINE_FILTERS", 2)
    known = Chance()
    matcher = Matcher(semantics=known, threshold=0.0)
    event = [{"device": "laptop", "kind": "noise", "on": True, "_themes": ["city"]}]
    for n in range(40):
        matcher.add(f"s{n}", f"device~ = 'word {n}'~")
        matcher.match(event)
        matcher.close()
    assert matcher.describe()["by_meaning"]["groups"] <= meaning_index.MAX_GROUPS
    known.subscribed.clear()
    wanted = Matcher(engine="scan", semantics=Chance(), threshold=0.0)
    wanted.add_all({name: matcher.filter(name).text for name in matcher})
    matcher.match(event)
    assert known.subscribed == []
    compared([wanted, matcher], [event])
    for n in range(40):
        matcher.remove(f"s{n}")
    assert matcher.match(event).for_event(0) == []


def test_pickled_index_matches_the_same() -> None:
    matcher = Matcher(semantics=Chance(), threshold=0.0)
    matcher.add_all({f"s{n}": f"device~ = 'word {n}'~" for n in range(5)})
    event = [{"device": "word 3"}]
    wanted = matcher.match(event).for_event(0)
    assert pickle.loads(pickle.dumps(matcher)).match(event).for_event(0) == wanted


def test_duplicate_id_is_refused_for_filters_with_tilde() -> None:
    matcher = Matcher(semantics=Chance())
    matcher.add("s", "device~ = 'laptop'~")
    with pytest.raises(MatcherError, match="subscription 's' already exists"):
        matcher.add("s", "device~ = 'laptop'~")
