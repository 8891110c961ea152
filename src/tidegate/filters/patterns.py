"""Text predicates: LIKE, MATCH and edit distance.

Every pattern runs in linear time: simple LIKEs as string methods, the rest on RE2, which does not backtrack.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tidegate.expressions.like import ANY, ONE, like_elements
from tidegate.filters.membership import SLACK

if TYPE_CHECKING:
    import re2

TextTest = Callable[[str], bool | None]
"""Returns True if a text fits, None if that can't be decided."""

MAX_REGEX_BYTES = 1 << 20
"""Memory that RE2 may use for one pattern: enough for any that a person writes, and little enough that a hostile one
compiles in milliseconds.
"""

MAX_LIKE_BYTES = 64 << 20
"""The same for a LIKE with `_`: enough for the longest text of a filter, because its program has one step per
character.
"""

MAX_TEXTS = 32
"""Maximum number of texts between two `%` that are searched without RE2: each position costs as many comparisons."""


@lru_cache(maxsize=4096)
def canonical_like(pattern: str, star: bool = False) -> str:
    """Return the canonical form of a LIKE pattern: `a*` becomes `a%` if `star` is set.

    Literal stars are escaped, so that the result means the same with and without `star`.
    """
    written = {ANY: "%", ONE: "_"}
    return "".join(
        written[e] if e is ANY or e is ONE else re.sub(r"([\\%_*?])", r"\\\1", e) for e in like_elements(pattern, star)
    )


@lru_cache(maxsize=4096)
def like(pattern: str, star: bool = False) -> TextTest:
    """Return the test of a LIKE pattern that is a literal of a filter; cached."""
    return make_like(pattern, star)


def make_like(pattern: str, star: bool = False) -> TextTest:
    """Return the test of a LIKE pattern."""
    elements = like_elements(pattern, star)
    match elements:
        case []:
            return _equals("")
        case [str() as text]:
            return _equals(text)
        case [x] if x is ANY:
            return _anything
        case [str() as text, x] if x is ANY:
            return lambda value: value.startswith(text)
        case [x, str() as text] if x is ANY:
            return lambda value: value.endswith(text)
        case [x, str() as text, y] if x is ANY and y is ANY:
            return lambda value: text in value
    pieces = _pieces(elements)
    if max(len(piece.texts) for piece in pieces) > MAX_TEXTS:
        return _regex_test(like_regex(elements), MAX_LIKE_BYTES)
    return _in_order(pieces)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The part of a pattern between two `%`: texts at fixed offsets, `_` elsewhere."""

    length: int
    texts: tuple[tuple[int, str], ...]

    def fits(self, value: str, at: int) -> bool:
        return all(value.startswith(text, at + offset) for offset, text in self.texts)

    def find(self, value: str, at: int, end: int) -> int:
        """Return the first position from `at` where the piece fits before `end`; -1 if there is none."""
        last = end - self.length
        if not self.texts:
            return at if at <= last else -1
        offset, text = self.texts[0]
        while at <= last:
            at = value.find(text, at + offset) - offset
            if at < 0 or at > last:
                return -1
            if self.fits(value, at):
                return at
            at += 1
        return -1


def _pieces(elements: list[Any]) -> list[_Piece]:
    """Split elements at each `%`; the first and the last piece may be empty."""
    pieces: list[_Piece] = []
    length = 0
    texts: list[tuple[int, str]] = []
    for element in [*elements, ANY]:
        if element is ANY:
            pieces.append(_Piece(length, tuple(texts)))
            length, texts = 0, []
        elif element is ONE:
            length += 1
        else:
            texts.append((length, element))
            length += len(element)
    return pieces


def _in_order(pieces: list[_Piece]) -> TextTest:
    """Return a test that finds the pieces one after another; the leftmost position is always the best."""
    head, *middle = pieces
    tail = middle.pop() if middle else None

    def test(value: str) -> bool:
        if tail is None:
            return len(value) == head.length and head.fits(value, 0)
        at, end = head.length, len(value) - tail.length
        if at > end or not head.fits(value, 0) or not tail.fits(value, end):
            return False
        for piece in middle:
            at = piece.find(value, at, end)
            if at < 0:
                return False
            at += piece.length
        return True

    return test


def like_prefix(pattern: str) -> str | None:
    """Return p if the pattern is exactly `p%`, else None."""
    match like_elements(pattern):
        case [x] if x is ANY:
            return ""
        case [str() as text, x] if x is ANY:
            return text
    return None


def like_exact(pattern: str) -> str | None:
    """Return the only text that fits a pattern without wildcards; None for other patterns."""
    match like_elements(pattern):
        case []:
            return ""
        case [str() as text]:
            return text
    return None


def like_regex(elements: list[Any]) -> str:
    """Return LIKE elements as a regular expression for the whole text."""
    written = {ANY: ".*", ONE: "."}
    return "(?s)" + "".join(written[e] if e is ANY or e is ONE else quote(e) for e in elements)


def quote(text: str) -> str:
    r"""Escape a text for a regular expression in a way that RE2 and Java share.

    >>> quote("a.b")
    'a\\.b'
    """
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text).replace("\0", r"\x00")


def _equals(text: str) -> TextTest:
    return lambda value: value == text


def _anything(_: str) -> bool:
    return True


@lru_cache(maxsize=4096)
def match(pattern: str) -> TextTest | None:
    """Return the test of a regular expression over the whole text; None if RE2 refuses it."""
    return None if regex_problem(pattern) else _regex_test(pattern)


@lru_cache(maxsize=4096)
def regex_problem(pattern: str) -> str | None:
    """Return why RE2 refuses a pattern; None if it does not."""
    import re2

    try:
        re2.compile(pattern, _options())
    except re2.error as exc:
        reason = exc.args[0] if exc.args else exc
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    except UnicodeEncodeError:
        return "not valid Unicode text"
    return None


@lru_cache(maxsize=2)
def _options(max_bytes: int = MAX_REGEX_BYTES) -> re2.Options:
    import re2

    options = re2.Options()
    options.max_mem = max_bytes
    options.log_errors = False
    return options


def _regex_test(pattern: str, max_bytes: int = MAX_REGEX_BYTES) -> TextTest:
    import re2

    full = re2.compile(pattern, _options(max_bytes)).fullmatch

    def test(value: str) -> bool | None:
        try:
            return full(value) is not None
        except UnicodeEncodeError:  # a lone surrogate is not Unicode text, so the result is unknown
            return None

    return test


def default_edits(text: str) -> int:
    """Return how many edits a STRLIKE without a bound allows: 0, 1 from 3 characters, 2 from 6."""
    return 0 if len(text) <= 2 else 1 if len(text) <= 5 else 2


def edits(text: str, budget: int) -> TextTest:
    """Return the test "at most `budget` edits from `text`"; it compares lengths first."""
    from rapidfuzz.distance.Levenshtein import distance

    length = len(text)

    def test(value: str) -> bool:
        if not -budget <= len(value) - length <= budget:
            return False
        return distance(text, value, score_cutoff=budget) <= budget

    return test


def similarity(text: str) -> Callable[[str], float]:
    """Return the function 1 - distance / max(length) to `text`; two empty texts have similarity 1."""
    from rapidfuzz.distance.Levenshtein import distance

    length = len(text)

    def grade(value: str) -> float:
        longest = max(length, len(value))
        return 1.0 - distance(text, value) / longest if longest else 1.0

    return grade


def similar(text: str, minimum: float) -> TextTest:
    """Return the test "similarity to `text` is at least `minimum`"."""
    grade = similarity(text)
    length = len(text)
    slack = minimum - SLACK

    def test(value: str) -> bool:
        other = len(value)
        # The distance is never below the difference of the lengths.
        if max(length, other) and 1.0 - abs(length - other) / max(length, other) < slack:
            return False
        return grade(value) >= slack

    return test
