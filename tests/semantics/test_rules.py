"""The rules that need no measure, case by case. `test_measures.py` compares them with their matrix form."""

from __future__ import annotations

import pytest

from tidegate.semantics import rules
from tidegate.semantics.rules import all_opposed, opposed, settled


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("Energy  use", "energy USE", 1),
        ("5", "5.0", 1),
        ("5", "6", 0),
        ("room 112", "room 113", 0),
        ("desk 7a", "desk 7b", 0),
        ("room 112", "room", None),
        ("first floor", "second floor", 0),
        ("first floor", "2nd floor", 0),
        ("first floor", "1st floor", None),
        ("ground floor", "first floor", None),
        ("line two", "line 3", 0),
        ("line two", "line 2", None),
        ("5G", "fifth generation", None),
        ("3D printing", "three-dimensional printing", None),
        ("metre per second", "room 112", None),
        ("metre per second", "metre per 60 s", None),
        ("energy", "power", None),
    ],
)
def test_settled_texts_and_numbers(a: str, b: str, expected: float | None) -> None:
    assert settled(a, b) == settled(b, a) == expected


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("increased noise event", "decreased noise event"),
        ("Increasing noise", "noise REDUCTION"),
        ("temperature rises", "falling temperature"),
        ("high tide", "low tide"),
        ("maximum speed", "minimum speed"),
        ("door opened", "door closed"),
        ("outdoor temperature", "indoor temperature"),
        ("lamp on", "lamp off"),
        ("northbound lane", "southbound lane"),
        ("Western Europe", "Eastern Europe"),
    ],
)
def test_opposites_have_relatedness_0(a: str, b: str) -> None:
    assert opposed(a, b)
    assert opposed(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("increased noise event", "increased sound emission event"),
        ("increased noise event", "noise event"),
        ("rise and fall of the tide", "increase of the tide"),  # a text with both words says neither
        ("import", "export"),
        ("public transport", "private transport"),
        ("", "decrease"),
    ],
)
def test_words_that_are_no_opposites_are_left_to_the_measure(a: str, b: str) -> None:
    assert not opposed(a, b)
    assert not opposed(b, a)


def test_no_word_is_twice_in_a_group() -> None:
    assert len(rules._opposites()) > 80
    for sides in rules._opposites().values():
        assert len({group for group, _ in sides}) == len(sides)
    assert max(group for sides in rules._opposites().values() for group, _ in sides) < 64  # bits of a number


def test_opposites_are_found_only_in_the_beginning_of_a_long_text() -> None:
    long = "noise " * 20_000
    assert not opposed(long + "increased", "decreased")
    assert opposed("increased " + long, "decreased")
    assert all_opposed([f"increased {n} {long}" for n in range(20)], ["decreased"]).all()
