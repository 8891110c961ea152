"""What needs no measure: the same text, numbers, and texts that name different numbers; many pairs at once.

`relatedness.py` says which rules these are, pair by pair. Here every text is read once and gets three
numbers to be compared by, so that a matrix takes no step of Python for each of its cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache

import numpy as np

from tidegate.semantics.relatedness import LONGEST, NUMBER, WITH_DIGIT, normal
from tidegate.semantics.storage import Array


def settled(subscribed: Sequence[str], terms: Sequence[str]) -> Array:
    """A row a subscribed term, a column a term of events: 1 the same, 0 not, NaN where a measure must say."""
    known: dict[object, int] = {}

    def read(texts: Sequence[str]) -> Array:
        return np.array([_marks(text, known) for text in texts], np.int64).reshape(len(texts), 3).T

    (text_a, number_a, digits_a), (text_b, number_b, digits_b) = read(subscribed), read(terms)
    out = np.full((len(subscribed), len(terms)), np.nan)
    out[(digits_a[:, None] >= 0) & (digits_b >= 0) & (digits_a[:, None] != digits_b)] = 0.0
    numbers = (number_a[:, None] >= 0) & (number_b >= 0)
    same = number_a[:, None] == number_b
    out[numbers] = same[numbers]
    out[text_a[:, None] == text_b] = 1.0
    return out


def _marks(text: str, known: dict[object, int]) -> tuple[int, int, int]:
    """The text, its value as a number, and its words with digits, each as a number of ours; -1: it has none."""
    text, number, digits = _remembered(text) if len(text) <= LONGEST else _read(text)
    return (
        known.setdefault(text, len(known)),
        -1 if number is None else known.setdefault(number, len(known)),
        known.setdefault(digits, len(known)) if digits else -1,
    )


def _read(text: str) -> tuple[str, Decimal | None, tuple[str, ...]]:
    text = normal(text)
    number = Decimal(text) if NUMBER.fullmatch(text) else None
    return text, number, tuple(sorted(WITH_DIGIT.findall(text)))


_remembered = lru_cache(maxsize=100_000)(_read)
"""The same of short texts: subscribed ones are asked for with every batch."""
