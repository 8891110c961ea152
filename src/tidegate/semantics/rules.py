"""Rules that need no measure: equal texts, numbers, and words of opposite meaning.

They decide what a measure can't know, before it is asked:

1. Equal texts have relatedness 1, ignoring case and blanks, also if the space does not know them. 2. Two numbers have
relatedness 1 if they are equal, else 0. `5` and `5.0` are equal. 3. Texts that both contain numbers, but different
ones, have relatedness 0: `room 112` and `room 113`, `desk 7a` and `desk 7b`, the `first floor` and the `2nd floor`.
Words with digits are compared by all their characters. A number in words is compared with plain numbers only, because
`5G` may be the `fifth generation`. 4. Texts with words of opposite meaning have relatedness 0: `increased noise` and
`decreased noise`, although such words occur in the same documents. This rule is for `best`; the paper has none.

Each rule exists for one pair, and for many texts at once: there each text is read once and gets numbers to compare, so
that a matrix takes no Python step per cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from tidegate.filters.thematic import NUMBER
from tidegate.filters.vectors import NumpyArray
from tidegate.semantics.projection import MAX_TEXT_CHARS
from tidegate.semantics.stemmer import stem
from tidegate.semantics.words import STOP_WORDS, WORD

_ORDINAL = re.compile(r"(\d+)(st|nd|rd|th)")

_CARDINALS = "one two three four five six seven eight nine ten eleven twelve"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_SPOKEN = {word: str(n) for words in (_CARDINALS, _ORDINALS) for n, word in enumerate(words.split(), 1)}
"""Numbers in words. `per second` is not one."""

_OPPOSITES = """
increase rise grow growth climb ascend : decrease fall drop decline reduce reduction shrink diminish descend
high higher highest upper maximum max : low lower lowest minimum min
above : below
up upward upwards : down downward downwards
on : off
open : close closure shut
start begin : stop end finish
arrive arrival enter entry : leave exit departure
inside indoor indoors inbound incoming inward inflow : outside outdoor outdoors outbound outgoing outward outflow
input : output
internal interior : external exterior
hot warm heat : cold cool
wet : dry
bright : dark
loud : quiet silent
fast : slow
accelerate : decelerate brake
full : empty
occupied : vacant unoccupied
present : absent
active : inactive idle
enable : disable
connect : disconnect
lock : unlock
online : offline
left : right
north northern northbound : south southern southbound
east eastern eastbound : west western westbound
upstream : downstream
top : bottom
front : rear
positive : negative
normal : abnormal
true : false
upload : download
sunrise : sunset
"""
"""Compared by stems, so that other forms of these words are opposed too. Limited to words that can't both be true of
one thing: a measure distinguishes `import` and `export`, or `public` and `private`, which often belong together.
"""


def normal(text: str) -> str:
    """Return a text without differences of case and blanks."""
    return " ".join(text.split()).casefold()


def settled(a: str, b: str) -> float | None:
    """Return the relatedness of two texts by the first three rules; None if a measure must decide."""
    one, other = _read(a), _read(b)
    if one.text == other.text:
        return 1.0
    if one.number is not None and other.number is not None:
        return float(one.number == other.number)
    named = one.marked and other.marked and one.marked != other.marked
    counted = one.counted and other.counted and one.counted != other.counted
    return 0.0 if named or counted else None


def opposed(a: str, b: str) -> bool:
    """Return True if a text has a word whose opposite the other has. A text that has both says nothing by them.

    >>> opposed("increased noise event", "Noise decreases"), opposed("increase", "rise and fall")
    (True, False)
    """
    one, other = _sides(normal(a)), _sides(normal(b))
    return any((group, not side) in other for group, side in one)


def all_settled(subscribed: Sequence[str], terms: Sequence[str]) -> NumpyArray:
    """Return 1, 0 or NaN (a measure must decide): one row per subscribed term, one column per term of events."""
    subscribed_marks = _subscribed_marks(tuple(subscribed))
    out = np.full((len(subscribed), len(terms)), np.nan)
    (text_a, number_a, *named_a), (text_b, number_b, *named_b) = (
        subscribed_marks.marks,
        subscribed_marks.numbered(map(_read_once, terms)),
    )
    for left, right in zip(named_a, named_b, strict=True):
        out[(left[:, None] >= 0) & (right >= 0) & (left[:, None] != right)] = 0.0
    numbers = (number_a[:, None] >= 0) & (number_b >= 0)
    same = number_a[:, None] == number_b
    out[numbers] = same[numbers]
    out[text_a[:, None] == text_b] = 1.0
    return out


def all_opposed(subscribed: Sequence[str], terms: Sequence[str]) -> NumpyArray:
    """Return whether terms are opposed: one row per subscribed term, one column per term of events."""
    (one_a, other_a), (one_b, other_b) = _subscribed_marks(tuple(subscribed)).sides, _sides_of(map(_read_once, terms))
    return np.asarray(((one_a[:, None] & other_b) | (other_a[:, None] & one_b)) != 0)


def all_shorter(subscribed: Sequence[str], terms: Sequence[str]) -> NumpyArray:
    """Return the number of content words of the shorter term: one row per subscribed term, one column per term of
    events.
    """
    lengths = np.array([_read_once(text).length for text in terms], np.int64)
    return np.minimum(_subscribed_marks(tuple(subscribed)).lengths[:, None], lengths)


class _SubscribedMarks:
    """The subscribed terms, with a number for each mark."""

    def __init__(self, subscribed: tuple[str, ...]) -> None:
        read = [_read(text) for text in subscribed]
        self._known: dict[object, int] = {}
        for marks in read:
            for mark in _compared(marks):
                self._known.setdefault(mark, len(self._known))
        self.marks = self.numbered(read)
        self.sides = _sides_of(read)
        self.lengths = np.array([marks.length for marks in read], np.int64)

    def numbered(self, read: Iterable[_Marks]) -> NumpyArray:
        """Return the numbers of the marks of texts, one line per kind: -1 if there is none.

        All marks that no subscribed term has share one number.
        """
        new = len(self._known)
        numbers = [[-1 if mark is None else self._known.get(mark, new) for mark in _compared(marks)] for marks in read]
        return np.array(numbers, np.int64).reshape(len(numbers), 4).T


_subscribed_marks = lru_cache(maxsize=16)(_SubscribedMarks)
"""Cached, because subscriptions change seldom."""


def _compared(read: _Marks) -> tuple[object, ...]:
    return read.text, read.number, read.marked or None, read.counted or None


def _sides_of(read: Iterable[_Marks]) -> NumpyArray:
    sides = [marks.sides for marks in read]
    return np.array(sides, np.uint64).reshape(len(sides), 2).T


class _Marks(NamedTuple):
    """What the rules read from one text."""

    text: str
    number: Decimal | None
    """The number that the whole text is."""
    marked: tuple[str, ...]
    """Words with digits, sorted."""
    counted: tuple[str, ...]
    """Numbers among the words, in digits or in words, sorted."""
    sides: tuple[int, int]
    """Two bit sets: groups of opposites with a word of the text on the first side, and on the second side."""
    length: int
    """Number of words without stop words."""


def _read(text: str) -> _Marks:
    text = normal(text)
    words = [_in_digits(word) for word in WORD.findall(text)]
    spoken = (_SPOKEN.get(word, word) for word, before in zip(words, ["", *words], strict=False) if before != "per")
    sides = _sides(text)
    one, other = (sum(1 << group for group, side in sides if side is wanted) for wanted in (False, True))
    return _Marks(
        text,
        Decimal(text) if NUMBER.fullmatch(text) else None,
        tuple(sorted(word for word in words if any(map(str.isdigit, word)))),
        tuple(sorted(word for word in spoken if word.isdigit())),
        (one, other),
        sum(word not in STOP_WORDS for word in words),
    )


_cached_read = lru_cache(maxsize=100_000)(_read)


def _read_once(text: str) -> _Marks:
    return _cached_read(text) if len(text) <= MAX_TEXT_CHARS else _read(text)


def _in_digits(word: str) -> str:
    """Return a word, with `2nd` as `2`."""
    ordinal = _ORDINAL.fullmatch(word)
    return ordinal[1] if ordinal else word


def _sides(text: str) -> set[tuple[int, bool]]:
    """Return the groups of opposites with a word of the text, and the side of that word.

    Groups with words of the text on both sides are left out. Only the beginning of a long text counts.
    """
    sides = _opposites()
    on_sides = {
        group_and_side for word in WORD.findall(text[:MAX_TEXT_CHARS]) for group_and_side in sides.get(_stem(word), ())
    }
    return {(group, side) for group, side in on_sides if (group, not side) not in on_sides}


_stem = lru_cache(maxsize=100_000)(stem)
"""Cached, because texts share their words."""


@cache
def _opposites() -> dict[str, list[tuple[int, bool]]]:
    """Return for each stem its groups of opposites, and the side."""
    by_stem: dict[str, list[tuple[int, bool]]] = {}
    for group, line in enumerate(_OPPOSITES.split("\n")[1:-1]):
        for side, words in enumerate(line.split(":")):
            for stem_ in dict.fromkeys(map(stem, words.split())):
                by_stem.setdefault(stem_, []).append((group, bool(side)))
    return by_stem
