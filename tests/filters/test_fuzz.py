"""No text makes the language crash, hang or eat memory."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from random import Random

import pytest

from tests import generate
from tests.conftest import TEXTS
from tidegate import Filter, SemanticsUnavailable, TidegateError
from tidegate.filters.tokens import MAX_BYTES

SLICES = 10

LIMIT_S = 0.05
"""The promise, in CPU time of this thread on a core of its own."""
PLAIN = "x=1 OR " * 2_300 + "x=1"
"""As long as a text may be, and nothing special: some 0.02 s of such a core."""
TIMES_PLAIN = 3
"""What a text may cost where a core is slower than that: others' work on its twin does not stretch one text only."""

WORDS = [
    *"AND OR NOT BETWEEN LIKE MATCH IN IS NULL INSIDE BOX CIRCLE POLYGON STRLIKE WITHIN EDITS SIMILARITY".split(),
    *"FUZZY MEAN MIN AT LEAST WEIGHT TRAPEZOID TRIANGLE RECTANGLE BELL S Z GAUSS WITH THEME THRESHOLD TRUE".split(),
    *"FALSE ~ ( ) , = <> != < <= > >= ' '' ''' ` \" [ ] . %0 %99 % 0x 0xFF 1e5 1e999 -1 .5 5. + - ; -- /*".split(),
    *"a b.c d[3] 'text' \x00 \ud800 \U0010ffff é".split(),
    '"x y"',
]

HOSTILE = [
    "(" * 20_000,
    "(" * 256 + "x=1" + ")" * 256,
    "(" * 257 + "x=1" + ")" * 257,
    "NOT " * 4_000 + "x=1",
    PLAIN,
    "x=1 AND " * 2_000 + "x=1",
    "x<>1 AND " * 1_800 + "x<>1",
    " AND ".join(f"x<>{n}" for n in range(1_000)),
    " AND ".join(f"(a=1 OR b={n})" for n in range(800)),
    " OR ".join(f"(a=1 AND b={n})" for n in range(800)),
    "x IN (" + ",".join(map(str, range(3_500))) + ")",
    "x IN (" + "1," * 8_000 + "1)",
    "x IN (" + ",".join(map(str, range(0, 6_000, 2))) + ") AND x > 3",
    "x < 1" + "0" * 400 + " AND x < 2" + "0" * 400,
    "x > 1.5 AND x < 2" + "0" * 400,
    "x = " + "9" * 16_000,
    "x = 0x" + "f" * 16_000,
    "x = " + "9" * 5_000 + ".5",
    "x = '" + "a" * 16_000 + "'",
    "x = '" + "''" * 8_000 + "'",
    "x = '" + "''" * 8_000,
    "x LIKE '" + "%a" * 8_000 + "'",
    "x LIKE '" + "%_" * 8_000 + "'",
    "x LIKE '" + "%_a" * 5_000 + "'",
    "x LIKE '" + "_" * 16_000 + "'",
    "x MATCH '" + "(a*)*" * 3_000 + "b'",
    "x MATCH '" + "(" * 900 + ")" * 900 + "'",
    "x MATCH '((((a{100}){100}){100}){100})'",
    "x MATCH '" + "a?" * 4_000 + "a" * 4_000 + "'",
    "x MATCH '(?i)" + "[^a]" * 3_000 + "'",
    "x MATCH '\\\\pL{900}'",
    "a" + ".a" * 8_000 + " = 1",
    "a" + "[1]" * 5_000 + " = 1",
    "a[" + "9" * 10_000 + "] = 1",
    '"' + '""' * 8_000 + '" = 1',
    "FUZZY(" + ", ".join(["x IS S(1, 2)"] * 1_100) + ")",
    "(x, y) INSIDE POLYGON(" + ", ".join(["1 1"] * 4_000) + ")",
    "x STRLIKE '" + "ab" * 8_000 + "' WITHIN 9999",
    "~" * 16_000,
    "%0 " * 5_000,
    "x = 1 WITH THEME (" + "'a', " * 3_000 + "'a')",
    "\ud800",
    "x = '\udfff'",
    " " * 16_000,
    "x" * 17_000,
    "é" * 9_000,
    "(" + "a AND (" * 2_000,
    "(a=1 AND (b=1 OR " * 120 + "c=1" + "))" * 120,
]


def check(text: str) -> None:
    found, took = timed(text)
    if took > LIMIT_S:
        pairs = [(timed(text)[1], timed(PLAIN)[1]) for _ in range(8)]
        took, plain = (min(figures) for figures in zip(*pairs, strict=True))
        shown = f"{took:.3f} s for {text[:80]!r} ({len(text)} characters), {plain:.3f} s for a plain one"
        assert took <= max(LIMIT_S, TIMES_PLAIN * plain), shown
    if isinstance(found, Filter):
        with contextlib.suppress(SemanticsUnavailable):
            assert found.matches({"x": "a" * 50, "a": 1}) in (True, False)
        assert isinstance(str(found), str)
        assert found.covers(found)
    else:
        assert str(found)


def timed(text: str) -> tuple[Filter | TidegateError, float]:
    gc.disable()  # what a collection costs depends on all that the test run has alive
    begin = time.thread_time()
    try:
        found: Filter | TidegateError = Filter(text)
    except TidegateError as error:
        found = error
    took = time.thread_time() - begin
    gc.enable()
    return found, took


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: f"{text[:20]!a}-{len(text)}")
def test_hostile_texts_give_a_filter_or_an_error_in_time(text: str) -> None:
    check(text)


@pytest.mark.parametrize("slice_", range(SLICES))
def test_random_and_mutated_texts_give_a_filter_or_an_error_in_time(slice_: int) -> None:
    count = 0
    for text in texts(Random(slice_), TEXTS // SLICES):
        check(text)
        count += 1
    assert count == TEXTS // SLICES


def texts(rng: Random, count: int) -> Iterator[str]:
    """A third noise, a third words of the language in any order, a third mutations of good filters."""
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
    """Cut, double, swap or spoil some places of a text."""
    for _ in range(rng.randint(1, 4)):
        at, to = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        spoiled = rng.choice([*WORDS, chr(rng.randrange(0x110000))])
        text = rng.choice(
            [text[:at] + text[to:], text[:to] + text[at:], text[:at] + spoiled + text[at:], text[to:] + text[:at]]
        )
    return text[: MAX_BYTES * 2]
