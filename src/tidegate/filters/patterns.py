"""Text predicates: LIKE, MATCH and edit distance.

Every pattern runs in linear time: simple LIKEs as string methods, the rest on
RE2, which has no backtracking to run away with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tidegate.filters.membership import SLACK

if TYPE_CHECKING:
    import re2

TextTest = Callable[[str], bool | None]
"""Says whether a text fits; None where it can't be decided."""

MAX_REGEX_BYTES = 1 << 20
"""Memory that RE2 may use for one pattern: large enough for any that a person
writes, small enough that a hostile one compiles in milliseconds."""

MAX_LIKE_BYTES = 64 << 20
"""The same for a LIKE with `_`: enough for the longest text of a filter; its
program has one step a character and can't grow beyond."""

MAX_TEXTS = 32
"""Texts between two `%`, with `_` between them, that are searched for by hand:
each place costs as many comparisons. Beyond, RE2 does it."""

ANY, ONE = object(), object()
"""What `%` and `_` stand for in a list of LIKE elements."""


def like_elements(pattern: str, star: bool = False) -> list[Any]:
    """Split a LIKE pattern into literal texts, `ANY` and `ONE`, at its simplest.

    >>> like_elements(r"10\\%%") == ["10%", ANY]
    True
    """
    wild = {"%": ANY, "_": ONE, **({"*": ANY, "?": ONE} if star else {})}
    found: list[Any] = []
    literal: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == "\\":
            literal.append(next(letters, "\\"))
        elif letter in wild:
            if literal:
                found.append("".join(literal))
                literal = []
            found.append(wild[letter])
        else:
            literal.append(letter)
    if literal:
        found.append("".join(literal))
    return _simplest(found)


def _simplest(elements: list[Any]) -> list[Any]:
    """Order each run of wildcards as `__%`: `%_` and `_%%` mean the same."""
    out: list[Any] = []
    ones, many = 0, False
    for element in [*elements, None]:
        if element is ONE:
            ones += 1
        elif element is ANY:
            many = True
        else:
            out += [ONE] * ones + [ANY] * many
            ones, many = 0, False
            if element is not None:
                out.append(element)
    return out


@lru_cache(maxsize=4096)
def canonical_like(pattern: str, star: bool = False) -> str:
    """Write a LIKE pattern in one way, whatever its wildcards: `a*` becomes `a%`.

    Literal stars are escaped too, so that the result reads the same either way.
    """
    written = {ANY: "%", ONE: "_"}
    return "".join(
        written[e] if e is ANY or e is ONE else re.sub(r"([\\%_*?])", r"\\\1", e) for e in like_elements(pattern, star)
    )


@lru_cache(maxsize=4096)
def like(pattern: str, star: bool = False) -> TextTest:
    """Give the test of a LIKE pattern that stands in a filter."""
    return make_like(pattern, star)


def make_like(pattern: str, star: bool = False) -> TextTest:
    """Make the test of a LIKE pattern."""
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
    """What stands between two `%`: texts at fixed places, `_` elsewhere."""

    length: int
    texts: tuple[tuple[int, str], ...]

    def fits(self, value: str, at: int) -> bool:
        return all(value.startswith(text, at + offset) for offset, text in self.texts)

    def find(self, value: str, at: int, end: int) -> int:
        """The first place from `at` where the piece fits before `end`, or -1."""
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
    """Cut elements at each `%`; the first and the last piece may be empty."""
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
    """Find the pieces one after the other: the leftmost place is always the best."""
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
    """Give p where the pattern is exactly `p%`, else None."""
    match like_elements(pattern):
        case [x] if x is ANY:
            return ""
        case [str() as text, x] if x is ANY:
            return text
    return None


def like_exact(pattern: str) -> str | None:
    """Give the one text that fits a pattern without wildcards, else None."""
    match like_elements(pattern):
        case []:
            return ""
        case [str() as text]:
            return text
    return None


def like_regex(elements: list[Any]) -> str:
    """Write LIKE elements as a regular expression for the whole text."""
    written = {ANY: ".*", ONE: "."}
    return "(?s)" + "".join(written[e] if e is ANY or e is ONE else quote(e) for e in elements)


def quote(text: str) -> str:
    r"""Quote a text for a regular expression, in a way that RE2 and Java share.

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
    """Give the test of a regular expression over the whole text; None if it is none."""
    return None if regex_problem(pattern) else _regex_test(pattern)


@lru_cache(maxsize=4096)
def regex_problem(pattern: str) -> str | None:
    """Say why RE2 refuses a pattern, or None."""
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
        except UnicodeEncodeError:  # a lone surrogate: no Unicode text, so nothing is known
            return None

    return test


def default_edits(text: str) -> int:
    """Say how many edits a STRLIKE without a bound allows: 0, 1 from 3 characters, 2 from 6."""
    return 0 if len(text) <= 2 else 1 if len(text) <= 5 else 2


def edits(text: str, budget: int) -> TextTest:
    """Give the test "at most `budget` edits from `text`", lengths compared first."""
    from rapidfuzz.distance.Levenshtein import distance

    length = len(text)

    def test(value: str) -> bool:
        if not -budget <= len(value) - length <= budget:
            return False
        return distance(text, value, score_cutoff=budget) <= budget

    return test


def similarity(text: str) -> Callable[[str], float]:
    """Give the function 1 - d / max(length) to `text`; two empty texts are alike."""
    from rapidfuzz.distance.Levenshtein import distance

    length = len(text)

    def grade(value: str) -> float:
        longest = max(length, len(value))
        return 1.0 - distance(text, value) / longest if longest else 1.0

    return grade


def similar(text: str, least: float) -> TextTest:
    """Give the test "similarity to `text` is at least `least`"."""
    grade = similarity(text)
    length = len(text)
    slack = least - SLACK

    def test(value: str) -> bool:
        other = len(value)
        # The distance is never below the difference of the lengths.
        if max(length, other) and 1.0 - abs(length - other) / max(length, other) < slack:
            return False
        return grade(value) >= slack

    return test
