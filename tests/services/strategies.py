"""Strategies for random definitions in every form of a service file, valid or not."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import strategies as st

from tidegate.model import Schema
from tidegate.services.definitions import (
    Access,
    Definitions,
    Demo,
    Files,
    Http,
    Kafka,
    Mask,
    Mqtt,
    Qos,
    Retention,
    Service,
    Stream,
)
from tidegate.services.operators import (
    Aggregate,
    Aggregation,
    Branch,
    Computed,
    CountWindow,
    Custom,
    Deduplicate,
    Enrich,
    FilterOperator,
    Incremental,
    Join,
    Lookup,
    Merge,
    PatternOperator,
    PatternStep,
    Previous,
    Project,
    SessionWindow,
    Sort,
    SortKey,
    Table,
    TimeWindow,
)
from tidegate.services.sources.event_format import EPOCHS, TEXT_FORMATS

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}", fullmatch=True).filter(lambda n: not n.endswith("quarantine"))
words = st.sampled_from(["cid", "vid", "speed", "my field", "-x", "+y", "größe", "select", "on", "true", "12:30", "~"])
texts = st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable())
durations = st.one_of(
    st.sampled_from([0.001, 0.05, 1.0, 10.0, 60.0, 90.0, 3600.0, 86400.0, 604800.0]),
    st.floats(min_value=1e-6, max_value=1e9, allow_nan=False),
)
lengths = st.just(0.0) | durations
kinds = st.sampled_from(
    ["bool", "int32", "uint64?", "float64", "string", "int32[4]?", "enum(CAR, BUS)", {"x": "float64"}]
)


@st.composite
def schemas(draw: st.DrawFn, promises: bool = False) -> Schema:
    attributes = draw(st.dictionaries(words, kinds, max_size=4))
    time = draw(st.sampled_from([None, "time"]))
    if time:
        attributes["time"] = "timestamp"
    if not promises:
        return Schema(attributes, event_time=time)
    constraints = draw(st.dictionaries(words, texts, max_size=2))
    terms = draw(st.dictionaries(words, st.dictionaries(words, texts, min_size=1, max_size=2), max_size=2))
    return Schema(attributes, constraints=constraints, terms=terms, event_time=time)


@st.composite
def time_windows(draw: st.DrawFn) -> TimeWindow:
    length = draw(durations)
    slide = draw(st.sampled_from([length, length / 2]))
    offset = draw(st.sampled_from([0.0, slide / 2]))
    zone = draw(st.sampled_from([None, "UTC", "Europe/Berlin"]))
    return TimeWindow(length, slide, draw(lengths), offset, zone)


count_windows = st.integers(1, 10_000).flatmap(lambda n: st.builds(CountWindow, st.just(n), st.integers(1, n)))
fixed_windows = st.one_of(time_windows(), count_windows)
windows = st.one_of(fixed_windows, st.builds(SessionWindow, durations, lengths))
emits = st.sampled_from(["final", "updates"])
hows = st.sampled_from(["inner", "left", "full"])
NAMED_AGGREGATES = ["first", "last", "distinct", "approx_distinct", "stddev", "collect"]
by = st.lists(words, max_size=3).map(tuple)
aggregations = st.lists(
    st.one_of(
        st.builds(Aggregation, st.just("count"), st.none() | words, words),
        st.builds(Aggregation, st.sampled_from(["sum", "avg", "min", "max"]), words, words),
        st.builds(Aggregation, st.sampled_from(NAMED_AGGREGATES), words, words),
        st.builds(Aggregation, st.just("percentile"), words, words, st.floats(0.001, 0.999)),
        words.map(lambda word: Aggregation("percentile", word, f"p95_{word}", 0.95)),
        words.map(lambda word: Aggregation("first", word, f"first_{word}")),
        st.builds(Aggregation, st.sampled_from(["min", "max"]), words, st.none()),
        words.map(lambda word: Aggregation("sum", word, f"sum_{word}")),
        words.map(lambda word: Aggregation("max", word, f"max_{word}")),
    ),
    min_size=1,
    max_size=4,
).map(tuple)
filters = st.builds(FilterOperator, texts, st.lists(texts, max_size=2).map(tuple))
branches = st.lists(st.builds(Branch, names, st.none() | filters), max_size=2).map(tuple)
conditions = st.none() | texts.filter(lambda text: text != "any")
steps = st.one_of(
    st.builds(PatternStep, words, conditions, st.just(1), st.just(1), st.none() | durations),
    st.builds(PatternStep, words, conditions, st.integers(1, 3), st.none() | st.integers(3, 9)),
    st.builds(PatternStep, st.just("absent"), conditions, st.just(1), st.just(1), st.none() | durations, st.just(True)),
)
patterns = st.builds(
    PatternOperator,
    by,
    st.lists(steps, min_size=1, max_size=3).map(tuple),
    st.none() | durations,
    st.none() | st.tuples(words, st.floats(0, 1e9)),
    lengths,
)
joins = st.one_of(
    st.builds(Join, by, lengths, lengths, hows, st.none(), branches),
    st.builds(Join, by, st.none(), st.just(0.0), hows, count_windows, branches),
)
sort_keys = st.lists(st.builds(SortKey, words, st.booleans()), min_size=1, max_size=3).map(tuple)
values: st.SearchStrategy[Any] = st.one_of(
    st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), texts
)
computed = st.builds(Computed, texts, st.none() | values, st.none() | st.sampled_from(["int32", "string"]))
columns = st.none() | st.dictionaries(words, kinds, max_size=3).map(Schema)
tables = st.one_of(
    st.builds(Table, words.map(lambda word: f"{word}.csv"), st.none() | st.just("csv"), columns),
    st.builds(Table, st.none(), st.just("jdbc"), columns, texts, texts),
)
functions = st.sampled_from(["math:sqrt", "a.b.c:f"])
json = st.recursive(
    st.none() | values, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2)
)
operators = st.one_of(
    filters,
    st.builds(Project, st.dictionaries(words, computed, max_size=3), st.booleans()),
    st.builds(Sort, sort_keys, fixed_windows),
    st.builds(Sort, sort_keys, fixed_windows, st.integers(1, 9), by),
    st.builds(Aggregate, aggregations, windows, by, emits, st.none() | texts),
    st.builds(Incremental, aggregations, st.none() | fixed_windows, by, emits, st.none() | texts),
    st.builds(Merge, branches),
    joins,
    st.builds(Lookup, names, by.filter(bool), st.booleans(), st.none() | filters),
    st.builds(Previous, by, st.dictionaries(words, words, max_size=2), st.integers(1, 9)),
    patterns,
    st.builds(Deduplicate, by, durations),
    st.builds(Enrich, tables, by.filter(bool), st.booleans()),
    st.builds(Custom, functions, schemas(), st.dictionaries(texts, json, max_size=2), by, st.none() | windows),
)
text_formats = st.sampled_from(TEXT_FORMATS)
csv_columns = st.lists(words, unique=True, max_size=2).map(lambda names: (*names,))
times = st.dictionaries(words, st.sampled_from([*EPOCHS, "%d.%m.%Y %H:%M"]), max_size=2).map(lambda d: (*d.items(),))
sources = st.one_of(
    st.just(Http()),
    st.builds(Demo, st.sampled_from(["anpr", "gps"]), st.floats(0.1, 1e6), st.integers(0, 9)),
    st.builds(
        Files,
        texts,
        st.none() | st.sampled_from(["csv", "ndjson", "parquet"]),
        st.none() | st.floats(0.1, 100.0),
        columns=csv_columns,
        times=times,
    ),
    st.builds(Kafka, texts, texts, format=text_formats, columns=csv_columns, times=times),
    st.builds(Mqtt, texts, texts, st.none() | texts, st.none() | texts, format=text_formats, times=times),
)
retentions = st.builds(Retention, st.none() | durations, st.none() | st.integers(1, 10**15))
masks = st.one_of(
    st.sampled_from([Mask("drop"), Mask("hmac")]),
    st.builds(Mask, st.just("truncate"), st.integers(0, 9)),
    st.builds(Mask, st.just("round"), st.integers(-15, 15)),
)
shares = st.none() | st.floats(0, 1)
themes = st.lists(texts, max_size=2).map(tuple)
callers = st.lists(texts, min_size=1, max_size=2).map(tuple)
accesses = st.builds(
    Access, st.sampled_from(["public", "keys"]) | callers, st.dictionaries(words, st.just(()) | callers, max_size=2)
)


@st.composite
def streams(draw: st.DrawFn, name: str) -> Stream:
    schema = draw(schemas(promises=True))
    keys = [field.name for field in schema.root if field.type.kind not in ("struct", "array")]
    return Stream(
        name,
        schema,
        draw(st.sampled_from([None, *keys])),
        draw(st.integers(1, 8)),
        draw(sources),
        draw(retentions),
        draw(themes),
        draw(st.just("") | texts),
    )


def services(name: str) -> st.SearchStrategy[Service]:
    return st.builds(
        Service,
        st.just(name),
        st.lists(names, min_size=1, max_size=3).map(tuple),
        st.lists(operators, max_size=4).map(tuple),
        st.dictionaries(words, texts, max_size=2),
        st.sampled_from(["quarantine", "drop", "flag", "fail"]),
        st.dictionaries(words, masks, max_size=2),
        st.builds(Qos, st.none() | durations, shares, st.none() | st.floats(0.1, 1e9), st.none() | durations, shares),
        retentions,
        st.dictionaries(words, st.dictionaries(words, texts, min_size=1, max_size=2), max_size=2),
        themes,
        st.just("") | texts,
        accesses,
        st.dictionaries(words, values.filter(lambda value: value not in (inf, -inf)), max_size=2),
        themes,
        st.just("operator"),
        st.sampled_from(["quarantine", "drop", "update"]),
        st.none() | durations,
        st.none() | durations,
    )


@st.composite
def definitions(draw: st.DrawFn) -> Definitions:
    all_names = draw(st.lists(names, max_size=4, unique=True))
    cut = draw(st.integers(0, len(all_names)))
    return Definitions(
        {name: draw(streams(name)) for name in all_names[:cut]},
        {name: draw(services(name)) for name in all_names[cut:]},
    )
