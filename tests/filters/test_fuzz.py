"""No text makes the language crash, hang or use much memory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeVar

import pytest

from benchmarks.workloads import HOSTILE
from tests import generate
from tests.conftest import TEXTS
from tidegate import Filter, SemanticsUnavailable, TidegateError
from tidegate.filters.tokens import MAX_BYTES

T = TypeVar("T")
SLICES = 10

STEPS_A_CHARACTER = 80
"""Lines of Python that a character may cost; a plain long text costs 20. What that takes is measured in benchmarks."""
STEPS_OF_ANY = 10_000
"""Lines that a text may cost however short it is."""

WORDS = [
    *"AND OR NOT BETWEEN LIKE MATCH IN IS NULL INSIDE BOX CIRCLE POLYGON STRLIKE WITHIN EDITS SIMILARITY".split(),
    *"FUZZY MEAN MIN AT LEAST WEIGHT TRAPEZOID TRIANGLE RECTANGLE BELL S Z GAUSS WITH THEME THRESHOLD TRUE".split(),
    *"FALSE ~ ( ) , = <> != < <= > >= ' '' ''' ` \" [ ] . %0 %99 % 0x 0xFF 1e5 1e999 -1 .5 5. + - ; -- /*".split(),
    *"a b.c d[3] 'text' \x00 \ud800 \U0010ffff é".split(),
    '"x y"',
]


def check(text: str) -> None:
    actual, steps = counted(text)
    assert steps <= STEPS_OF_ANY + STEPS_A_CHARACTER * len(text), f"{steps} for {text[:80]!r} ({len(text)} characters)"
    if isinstance(actual, Filter):
        with contextlib.suppress(SemanticsUnavailable):
            assert actual.matches({"x": "a" * 50, "a": 1}) in (True, False)
        assert isinstance(str(actual), str)
        assert actual.covers(actual)
    else:
        assert str(actual)


def counted(text: str) -> tuple[Filter | TidegateError, int]:
    """Return the result for a text, and the number of Python lines that ran."""

    def parse() -> Filter | TidegateError:
        try:
            return Filter(text)
        except TidegateError as error:
            return error

    return with_steps(parse)


def with_steps(call: Callable[[], T]) -> tuple[T, int]:
    """Return what a call returns, and the number of Python lines that ran: the same on every machine."""
    steps = 0

    def step(*_: object) -> Any:
        nonlocal steps
        steps += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        return call(), steps
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: f"{text[:20]!a}-{len(text)}")
def test_hostile_text_is_handled_in_few_steps(text: str) -> None:
    check(text)


@pytest.mark.parametrize("slice_", range(SLICES))
def test_random_and_mutated_texts_are_handled_in_few_steps(slice_: int) -> None:
    count = 0
    for text in texts(Random(slice_), TEXTS // SLICES):
        check(text)
        count += 1
    assert count == TEXTS // SLICES


def texts(rng: Random, count: int) -> Iterator[str]:
    """Yield one third noise, one third keywords in any order, one third mutations of valid filters."""
    for n in range(count):
        match n % 3:
            case 0:
                yield "".join(
                    chr(rng.choice([rng.randrange(128), rng.randrange(0x110000)])) for _ in range(rng.randint(0, 60))
                )
            case 1:
                yield rng.choice([" ", ""]).join(rng.choices(WORDS, k=rng.randint(1, 30)))
            case _:
                yield mutated(rng, generate.filter_text(rng, generate.schema(rng), depth=2))


def mutated(rng: Random, text: str) -> str:
    """Return a text with some characters cut, doubled, swapped or replaced."""
    for _ in range(rng.randint(1, 4)):
        at, to = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        spoiled = rng.choice([*WORDS, chr(rng.randrange(0x110000))])
        text = rng.choice(
            [text[:at] + text[to:], text[:to] + text[at:], text[:at] + spoiled + text[at:], text[to:] + text[:at]]
        )
    return text[: MAX_BYTES * 2]
