"""What needs no measure: the same text, numbers, and words that say the opposite of each other.

What a measure can't know is settled before it is asked:

1. The same text, whatever its capitals and blanks, is 1, known to the space or not.
2. Two numbers are 1 or 0: equal or not. `5` and `5.0` are equal.
3. Texts that both name numbers, and not the same ones, are 0: `room 112` is not `room 113`, `desk 7a` not `desk 7b`,
   the `first floor` not the `2nd floor`. Words with digits are told from each other by all their characters; a number
   in words from a plain one alone, as `5G` may be the `fifth generation`.
4. Texts of which one says the opposite of the other are 0: `increased noise` is not `decreased noise`, whatever company
   these words keep. That is for `best`: the paper knows no such rule.

Each is there for one pair, as it reads, and for many at once, where every text is read once and gets numbers to be
compared by, so that a matrix takes no step of Python for each of its cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from tidegate.filters.thematic import NUMBER
from tidegate.semantics.projection import LONGEST
from tidegate.semantics.stemmer import stem
from tidegate.semantics.storage import Array
from tidegate.semantics.words import STOP_WORDS, WORD

_ORDINAL = re.compile(r"(\d+)(st|nd|rd|th)")

_CARDINALS = "one two three four five six seven eight nine ten eleven twelve"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_SPOKEN = {word: str(n) for words in (_CARDINALS, _ORDINALS) for n, word in enumerate(words.split(), 1)}
"""But for `per second`."""

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
"""By stems, so that other forms of these words are opposed too. Kept to what can't both be meant of one thing: `import`
and `export` or `public` and `private` are told apart by a measure, and often belong together."""


def normal(text: str) -> str:
    """A text without what does not change it: capitals, and how many blanks there are."""
    return " ".join(text.split()).casefold()


def settled(a: str, b: str) -> float | None:
    """What the first three rules say of two texts; None: ask a measure."""
    one, other = _read(a), _read(b)
    if one.text == other.text:
        return 1.0
    if one.number is not None and other.number is not None:
        return float(one.number == other.number)
    named = one.marked and other.marked and one.marked != other.marked
    counted = one.counted and other.counted and one.counted != other.counted
    return 0.0 if named or counted else None


def opposed(a: str, b: str) -> bool:
    """Whether a text has a word whose opposite the other has. Who has both says nothing by them.

    >>> opposed("increased noise event", "Noise decreases"), opposed("increase", "rise and fall")
    (True, False)
    """
    one, other = _sides(normal(a)), _sides(normal(b))
    return any((group, not side) in other for group, side in one)


def all_settled(subscribed: Sequence[str], terms: Sequence[str]) -> Array:
    """A row a subscribed term, a column a term of events: 1 the same, 0 not, NaN where a measure must say."""
    asked = _asked(tuple(subscribed))
    out = np.full((len(subscribed), len(terms)), np.nan)
    (text_a, number_a, *named_a), (text_b, number_b, *named_b) = asked.marks, asked.numbered(map(_read_once, terms))
    for left, right in zip(named_a, named_b, strict=True):
        out[(left[:, None] >= 0) & (right >= 0) & (left[:, None] != right)] = 0.0
    numbers = (number_a[:, None] >= 0) & (number_b >= 0)
    same = number_a[:, None] == number_b
    out[numbers] = same[numbers]
    out[text_a[:, None] == text_b] = 1.0
    return out


def all_opposed(subscribed: Sequence[str], terms: Sequence[str]) -> Array:
    """A row a subscribed term, a column a term of events: whether they are opposed."""
    (one_a, other_a), (one_b, other_b) = _asked(tuple(subscribed)).sides, _sides_of(map(_read_once, terms))
    return np.asarray(((one_a[:, None] & other_b) | (other_a[:, None] & one_b)) != 0)


def all_shorter(subscribed: Sequence[str], terms: Sequence[str]) -> Array:
    """A row a subscribed term, a column a term of events: how many words that mean something the shorter one has."""
    lengths = np.array([_read_once(text).length for text in terms], np.int64)
    return np.minimum(_asked(tuple(subscribed)).lengths[:, None], lengths)


class _Asked:
    """What is subscribed to, read: a number for each mark."""

    def __init__(self, subscribed: tuple[str, ...]) -> None:
        read = [_read(text) for text in subscribed]
        self._known: dict[object, int] = {}
        for each in read:
            for mark in _compared(each):
                self._known.setdefault(mark, len(self._known))
        self.marks = self.numbered(read)
        self.sides = _sides_of(read)
        self.lengths = np.array([each.length for each in read], np.int64)

    def numbered(self, read: Iterable[_Marks]) -> Array:
        """The numbers of texts' marks, a line for each kind: -1 where there is none, and one for all that are new."""
        new = len(self._known)
        found = [[-1 if mark is None else self._known.get(mark, new) for mark in _compared(each)] for each in read]
        return np.array(found, np.int64).reshape(len(found), 4).T


_asked = lru_cache(maxsize=16)(_Asked)
"""The last are kept: subscriptions change seldom, events always."""


def _compared(read: _Marks) -> tuple[object, ...]:
    return read.text, read.number, read.marked or None, read.counted or None


def _sides_of(read: Iterable[_Marks]) -> Array:
    sides = [each.sides for each in read]
    return np.array(sides, np.uint64).reshape(len(sides), 2).T


class _Marks(NamedTuple):
    text: str
    number: Decimal | None
    """That the whole text is."""
    marked: tuple[str, ...]
    """Words with digits, in the order of their characters."""
    counted: tuple[str, ...]
    """Numbers among its words, in digits or spoken, in the same order."""
    sides: tuple[int, int]
    """The groups of which it has a word of the one side, and of the other, as bits."""
    length: int
    """How many words it has but for common ones."""


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


_remembered = lru_cache(maxsize=100_000)(_read)


def _read_once(text: str) -> _Marks:
    return _remembered(text) if len(text) <= LONGEST else _read(text)


def _in_digits(word: str) -> str:
    """A word as it is, but for `2nd`, which is `2`."""
    ordinal = _ORDINAL.fullmatch(word)
    return ordinal[1] if ordinal else word


def _sides(text: str) -> set[tuple[int, bool]]:
    """The groups of opposites that a normal text has a word of, and on which side; none that it has on both.

    Of a long text the beginning counts: no more of it means anything.
    """
    sides = _opposites()
    found = {each for word in WORD.findall(text[:LONGEST]) for each in sides.get(_stem(word), ())}
    return {(group, side) for group, side in found if (group, not side) not in found}


_stem = lru_cache(maxsize=100_000)(stem)
"""Texts share their words."""


@cache
def _opposites() -> dict[str, list[tuple[int, bool]]]:
    """Of each stem the groups that it is in, and on which side."""
    found: dict[str, list[tuple[int, bool]]] = {}
    for group, line in enumerate(_OPPOSITES.split("\n")[1:-1]):
        for side, words in enumerate(line.split(":")):
            for each in dict.fromkeys(map(stem, words.split())):
                found.setdefault(each, []).append((group, bool(side)))
    return found
