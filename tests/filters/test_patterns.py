"""LIKE, compared with its definition character by character."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tidegate.filters import patterns

alphabets = st.text("ab%_\\\\🚕", max_size=12)


@given(alphabets, st.text("ab🚕%", max_size=14))
def test_like_agrees_with_its_definition(pattern: str, text: str) -> None:
    assert patterns.like(pattern)(text) is oracle.like(text, pattern)


@given(alphabets)
def test_simplest_like_pattern_matches_the_same_texts(pattern: str) -> None:
    simplest = patterns.canonical_like(pattern)
    assert patterns.canonical_like(simplest) == simplest
    rng = Random(pattern)
    for _ in range(20):
        text = "".join(rng.choices("ab🚕", k=rng.randint(0, 8)))
        assert patterns.like(simplest)(text) is patterns.like(pattern)(text)


@given(st.text("ab*?\\\\", max_size=10), st.text("ab*", max_size=10))
def test_star_and_question_mark_are_percent_and_underscore(pattern: str, text: str) -> None:
    assert patterns.like(pattern, True)(text) is patterns.like(patterns.canonical_like(pattern, True))(text)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("%a_" * 3_000, "a" * 6_000, True),
        ("%a_" * 3_000, "a" * 5_999, False),
        ("_a" * 100 + "%", "ba" * 100, True),
        ("_a" * 100 + "%", "ba" * 99 + "bb", False),
        ("%" + "_a" * 100 + "%", "c" + "ba" * 100, True),
    ],
)
def test_long_patterns(pattern: str, text: str, fits: bool) -> None:
    assert patterns.like(pattern)(text) is fits
