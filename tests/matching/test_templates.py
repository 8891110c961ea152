"""Compilation by template gives the same result as parsing."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import LARGE_EXAMPLES
from tidegate import Filter, Schema, TidegateError
from tidegate.matching import Matcher
from tidegate.matching.rows import Axes
from tidegate.matching.templates import MAX_TEMPLATES, Templates

SCHEMA = Schema(
    {
        "speed": "float64",
        "ratio": "float32",
        "lane": "int8",
        "count": "uint64",
        "vid": "string",
        "letter": "char",
        "time": "timestamp",
        "wheels": "int32[4]",
        "pos": {"x": "float64"},
    },
    constraints={"lane": "BETWEEN 0 AND 9", "pos.x": "> -180"},
)
PREDICATES = [
    "speed > #",
    "speed BETWEEN # AND #",
    "# <= speed",
    "NOT speed < #",
    "lane = #",
    "lane <> #",
    "lane BETWEEN # AND #",
    "lane IN (#, #)",
    "ratio < #",
    "count >= #",
    "vid = #",
    "vid > #",
    "vid LIKE #",
    "letter = #",
    "time BETWEEN # AND #",
    "time > #",
    "wheels[#] = #",
    "wheels[2] > #",
    "pos.x < #",
    "SPEED1# > 3",
    "speed > %0",
]
VALUES = [
    *("0", "1", "3", "7", "-1", "-5", "007", "+3", "200", "0x1F", "1e3", "2.5", "0.1", "-0.0", "5.", ".5", "-200.5"),
    *("18446744073709551615", "9007199254740993", "123456789012345678901234567890", "1.00000000000000000001"),
    *(
        "'B17'",
        "'it''s'",
        "''",
        "'2026-01-01'",
        "'2026-01-01T10:00:00Z'",
        "'noon'",
        "'#'",
        "'a\tb'",
        "'x",
        "TRUE",
        "NULL",
    ),
]


def drawn(rng: Random, terms: list[str]) -> str:
    text = rng.choice([" AND ", " and ", " OR ", "  AND\n"]).join(terms)
    while "#" in text:
        text = text.replace("#", rng.choice(VALUES).replace("#", "\1"), 1)
    return text.replace("\1", "#")


def compiled(make: Any) -> Any:
    try:
        return make()
    except TidegateError as exc:
        return str(exc)


@given(st.integers(0, 2**64).map(Random))
@settings(max_examples=2 * LARGE_EXAMPLES)
def test_template_and_parser_give_the_same_row_or_error(rng: Random) -> None:
    axes = Axes()
    templates = Templates(axes, SCHEMA)
    terms = rng.sample(PREDICATES, rng.randint(1, 3))
    short = 0
    for _ in range(20):
        text = drawn(rng, terms)
        long_way = compiled(lambda text=text: axes.compile(Filter(text, SCHEMA)))
        by_template = templates.compile(text)
        if by_template is not None:
            short += 1
            assert by_template == long_way
        elif not isinstance(long_way, str):
            templates.learn(Filter(text, SCHEMA))


def test_plain_text_is_compiled_from_its_template() -> None:
    axes = Axes()
    templates = Templates(axes, SCHEMA)
    text = "speed BETWEEN {} AND {} AND vid = 'B{}' AND lane >= {} AND time > '2026-01-{}T00:00:00Z' AND pos.x < {}.5"
    templates.learn(Filter(text.format(1.5, 2.5, 1, 2, 10, 3), SCHEMA))
    other = text.format(-7.25, 3.5, "x'".replace("'", ""), 9, 31, 99)
    assert templates.compile(other) == axes.compile(Filter(other, SCHEMA))


@pytest.mark.parametrize("text", ["lane > 20", "lane = -3", "pos.x < -200.5", "lane > 3 AND lane < 4"])
def test_invalid_text_is_refused_also_with_a_known_template(text: str) -> None:
    matcher = Matcher(SCHEMA)
    matcher.add("fine", "lane > 5")
    matcher.add("fine too", "lane = 5")
    matcher.add("and this", "pos.x < 10.5")
    matcher.add("this as well", "lane > 3 AND lane < 8")
    with pytest.raises(TidegateError) as by_template:
        matcher.add("s", text)
    with pytest.raises(TidegateError) as plain:
        Filter(text, SCHEMA)
    assert str(by_template.value) == str(plain.value)
    assert "s" not in matcher


def test_filter_returns_the_subscriptions_own_text() -> None:
    matcher = Matcher(SCHEMA)
    for n in range(5):
        matcher.add(f"s{n}", f"speed > {n}.5 AND vid = 'v{n}'")
    assert str(matcher.filter("s3")) == "speed > 3.5 AND vid = 'v3'"
    assert matcher.match([{"speed": 3.6, "vid": "v3"}]).for_event(0) == ["s3"]
    matcher.replace("s3", "speed > 4.5 AND vid = 'v4'")
    assert matcher.match([{"speed": 5.0, "vid": "v4"}]).for_event(0) == ["s4", "s3"]


def test_template_cache_is_bounded() -> None:
    templates = Templates(Axes(), None)
    for n in range(MAX_TEMPLATES + 10):
        templates.learn(Filter(f"x{'y' * n} > 3"))
    assert len(templates._slots_by_template) <= MAX_TEMPLATES
