"""Changes of a schema that break subscribers, and safe ones."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import generate
from tidegate import Array, Enum, Filter, FilterError, Schema, UnsatisfiableFilter
from tidegate.model.types import INTEGER_RANGES, Field, Scalar, Struct, Type
from tidegate.services.versions import breaking, breaking_for_producers

OLD: dict[str, Any] = {
    "vid": "string",
    "level": "int16",
    "kind": "enum(CAR, BUS)",
    "pos": {"x": "float32"},
    "wheels": "int8[4]",
    "time": "timestamp",
}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"more": "string"},
        {"level": "int64"},
        {"level": "int32?"},
        {"vid": "string?"},
        {"kind": "enum(CAR, BUS, TRAM)"},
        {"pos": {"y": "bool", "x": "float32?"}},
        {"wheels": "int16[6]"},
        {"wheels": "int8[]"},
    ],
)
def test_safe_change_breaks_nothing(change: dict[str, Any]) -> None:
    assert breaking(Schema(OLD), Schema({**OLD, **change})) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"level": "int8"}, "level was int16 and is int8"),
        ({"level": "uint32"}, "level was int16 and is uint32"),
        ({"level": "float64"}, "level was int16 and is float64"),
        ({"vid": "int64"}, "vid was string and is int64"),
        ({"vid": {"x": "bool"}}, "vid was string and is {x: bool}"),
        ({"kind": "enum(CAR, TRAM)"}, "kind has no label BUS any more"),
        ({"kind": "enum(BUS, CAR)"}, "the labels of kind have another order, which comparisons use: BUS, CAR"),
        ({"pos": {"y": "bool"}}, "the attribute pos.x is gone"),
        ({"pos": {"x": "float64"}}, "pos.x was float32 and is float64"),
        ({"wheels": "int8[3]"}, "wheels had at most 4 elements and has at most 3"),
        ({"wheels": "string[4]"}, "wheels[] was int8 and is string"),
    ],
)
def test_breaking_change_is_described(change: dict[str, Any], sentence: str) -> None:
    assert breaking(Schema(OLD), Schema({**OLD, **change})) == [sentence]


def test_removed_attribute_breaks() -> None:
    assert breaking(Schema(OLD), Schema({"vid": "string"}))[:2] == [
        "the attribute level is gone",
        "the attribute kind is gone",
    ]


def test_changed_event_time_breaks() -> None:
    attributes = {"a": "timestamp", "b": "timestamp"}
    sentences = breaking(Schema(attributes, event_time="a"), Schema(attributes, event_time="b"))
    assert sentences == ["the event time was a and is b"]
    assert breaking(Schema(attributes), Schema(attributes, event_time="b")) == []


def test_changed_or_removed_term_breaks() -> None:
    old = Schema({"speed": "float64"}, terms={"speed": {"slow": "Z(20, 40)", "fast": "S(60, 90)"}})
    new = Schema({"speed": "float64"}, terms={"speed": {"Slow": "Z(10, 40)"}})
    assert breaking(old, new) == [
        "the term slow of speed was Z(20, 40) and is Z(10, 40)",
        "the term fast of speed is gone",
    ]


def test_stricter_constraint_breaks_and_weaker_one_does_not() -> None:
    def speed(text: str | None) -> Schema:
        return Schema({"speed": "float64"}, constraints={"speed": text} if text else {})

    assert breaking(speed(">= 0"), speed(">= -1")) == breaking(speed(">= 0"), speed(None)) == []
    assert breaking(speed(">= 0"), speed(">= 0")) == []
    assert breaking(speed(">= 0"), speed("> 0")) == ["the constraint on speed was speed >= 0 and is speed > 0"]
    assert breaking(speed(None), speed("> 0")) == ["speed has a new constraint: speed > 0"]
    assert breaking(Schema({}), speed("> 0")) == []


def changed(random: Random, kind: Type) -> Type:
    """Draw a new version of a type, breaking or safe."""
    match kind:
        case Struct():
            return changed_struct(random, kind)
        case Array():
            return Array(changed(random, kind.item), random.choice([kind.bound, None, 3, 9]))
        case Enum():
            labels = [*kind.labels, "NEW"] if "NEW" not in kind.labels else list(kind.labels)
            if random.random() < 0.3:
                random.shuffle(labels)
            return Enum(*labels)
    if kind.kind == "int" and random.random() < 0.8:
        return Scalar(random.choice(list(INTEGER_RANGES)))
    return Scalar(random.choice(["char", "string", "float32", "float64", "bool", kind.name, kind.name]))


def changed_struct(random: Random, struct: Struct) -> Struct:
    fields = [
        Field(field.name, field.type if random.random() < 0.5 else changed(random, field.type), random.random() < 0.5)
        for field in struct
        if random.random() < 0.95
    ]
    return Struct((*fields, Field("another", Scalar("bool"))))


@given(st.integers(0, 2**32))
def test_filters_keep_their_meaning_if_nothing_breaks(seed: int) -> None:
    random = Random(seed)
    old = generate.schema(random)
    new = Schema(changed_struct(random, old.root))
    assume(breaking(old, new) == [])
    for _ in range(5):
        text = generate.filter_text(random, old)
        try:
            before = Filter(text, old)
        except FilterError:
            continue
        events = [generate.event(random, old) for _ in range(5)]
        try:
            after = Filter(text, new)
        except UnsatisfiableFilter:  # refused now, but it could not match before either
            assert not any(map(before.matches, events))
            continue
        assert list(map(before.matches, events)) == list(map(after.matches, events)), (text, old, new)


def test_enums_that_can_no_longer_be_compared_break() -> None:
    kind, longer = "enum(CAR, BUS)", "enum(CAR, BUS, TRAM)"
    old = Schema({"a": kind, "b": {"c": kind}})
    assert breaking(old, Schema({"a": longer, "b": {"c": longer}})) == []
    assert breaking(old, Schema({"a": longer, "b": {"c": kind}})) == [
        "a and b.c had the same labels, and can no longer be compared"
    ]


def test_unchanged_schema_breaks_nothing() -> None:
    for seed in range(200):
        schema = generate.schema(Random(seed))
        assert breaking(schema, schema) == []


@pytest.mark.parametrize(
    ("change", "sentences"),
    [
        ({}, []),
        ({"more": "string?"}, []),
        ({"vid": "string?"}, []),
        ({"more": "string"}, ["the attribute more is new and required: make it optional, string?"]),
        ({"pos": {"x": "float32", "y": "bool"}}, ["the attribute pos.y is new and required: make it optional, bool?"]),
        ({"pos": {"x": "float32", "y": "bool?"}}, []),
    ],
)
def test_required_attribute_of_a_raw_stream_breaks_producers(change: dict[str, Any], sentences: list[str]) -> None:
    assert breaking_for_producers(Schema(OLD), Schema({**OLD, **change})) == sentences


def test_attribute_that_becomes_required_breaks_producers() -> None:
    old = Schema({"a": "int8?", "b": "{c: bool?}[]"})
    assert breaking_for_producers(old, Schema({"a": "int8", "b": "{c: bool}[]"})) == [
        "the attribute a was optional and is required",
        "the attribute b[].c was optional and is required",
    ]
