"""Translates regular expressions of RE2 to Java, if that is safe.

Java's engine backtracks and recurses: a pattern that takes linear time in RE2 may take exponential time or overflow the
stack in Java. So only a subset is translated, with a quadratic worst case: no quantifier inside a quantified group, no
unbounded repeat of a group, at most two unbounded repeats. Constructs that differ between the engines (`$`, `.`, `\\s`)
are rewritten to the same meaning.
"""

from __future__ import annotations

MAX_UNBOUNDED = 2
"""Unbounded repeats in one pattern. `.*word.*` is common; a third repeat would take cubic time."""

MAX_COUNT = 100
"""The greatest number in `{n,m}`."""

_BLANKS = r"\t\n\f\r "
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": _BLANKS}
_LETTERS = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "a": r"\x07", "v": r"\x0B"}
_SPECIAL = set("\\.+*?()|[]{}^$")


class _Unsafe(Exception):  # noqa: N818 - control flow, not an error
    """The pattern is outside the subset."""


def to_java(pattern: str) -> str | None:
    """Return a pattern for Java's `find` that matches the same whole texts; None if the pattern is not safe in Java.

    >>> to_java("B[0-9]+")
    '(?d)\\\\A(?:B[0-9]{1,})\\\\z'
    >>> to_java("(a+)+") is None
    True
    """
    reader = _Reader(pattern)
    try:
        body = reader.alternatives()
        if not reader.at_end():
            return None
    except _Unsafe:
        return None
    return rf"(?d)\A(?:{body})\z"


class _Reader:
    """Reads a pattern in one pass, and returns the translation of each part."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.unbounded, self.depth = pattern, 0, 0, 0

    def at_end(self) -> bool:
        return self.at >= len(self.pattern)

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def take(self) -> str:
        letter = self.peek()
        if not letter:
            raise _Unsafe
        self.at += 1
        return letter

    def alternatives(self) -> str:
        parts = [self.sequence()]
        while self.peek() == "|":
            self.take()
            parts.append(self.sequence())
        return "|".join(parts)

    def sequence(self) -> str:
        out = ""
        while not self.at_end() and self.peek() not in "|)":
            out += self.quantified()
        return out

    def quantified(self) -> str:
        before = self.unbounded
        atom, single = self.atom()
        low, high = self.repeat()
        if (low, high) == (1, 1):
            return atom
        if not single and (high is None or self.unbounded > before or _is_repeated(atom)):
            raise _Unsafe
        if high is None:
            self.unbounded += 1
            if self.unbounded > MAX_UNBOUNDED:
                raise _Unsafe
        return f"{atom}{{{low},{'' if high is None else high}}}" if (low, high) != (0, None) else f"{atom}*"

    def repeat(self) -> tuple[int, int | None]:
        match self.peek():
            case "*":
                bounds: tuple[int, int | None] = (0, None)
            case "+":
                bounds = (1, None)
            case "?":
                bounds = (0, 1)
            case "{":
                return self.counted()
            case _:
                return 1, 1
        self.take()
        self.lazy()
        return bounds

    def counted(self) -> tuple[int, int | None]:
        end = self.pattern.find("}", self.at)
        low, comma, high = self.pattern[self.at + 1 : end].partition(",")
        if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            raise _Unsafe
        upper = int(low) if not comma else int(high) if high else None
        if int(low) > MAX_COUNT or (upper or 0) > MAX_COUNT:
            raise _Unsafe
        self.at = end + 1
        self.lazy()
        return int(low), upper

    def lazy(self) -> None:
        """Skip the `?` of a lazy repeat, which matches the same whole texts. RE2 refuses a second quantifier."""
        if self.peek() == "?":
            self.take()
        if self.peek() in tuple("*+?{"):
            raise _Unsafe

    def atom(self) -> tuple[str, bool]:
        """Return an atom, and True if it matches a single character."""
        letter = self.take()
        match letter:
            case "(":
                return self.group()
            case "[":
                return self.char_class(), True
            case ".":
                return ".", True
            case "^":
                return r"\A", False
            case "$":
                return r"\z", False
            case "\\":
                return self.escape(), True
            case "*" | "+" | "?" | "{" | ")" | "]" | "}":
                raise _Unsafe
        return letter, True

    def group(self) -> tuple[str, bool]:
        if self.pattern.startswith("?", self.at):
            if not self.pattern.startswith("?:", self.at):
                raise _Unsafe
            self.at += 2
        self.depth += 1
        if self.depth > 50:
            raise _Unsafe
        start = self.at
        # Not for a group in a group: each level would be read twice.
        first, single = self.atom() if self.peek() not in ("(", "|", ")", "") else ("", False)
        if single and self.peek() == ")":  # (X) is X: then (X)+ is safe too
            self.take()
            self.depth -= 1
            return first, True
        self.at = start
        body = self.alternatives()
        if self.take() != ")":
            raise _Unsafe
        self.depth -= 1
        return f"(?:{body})", False

    def escape(self) -> str:
        letter = self.take()
        if letter in _CLASSES:
            return f"[{_CLASSES[letter]}]"
        if letter.lower() in _CLASSES:
            return f"[^{_CLASSES[letter.lower()]}]"
        if letter in _LETTERS:
            return _LETTERS[letter]
        if letter.isascii() and not letter.isalnum():
            return "\\" + letter if letter in _SPECIAL else letter
        raise _Unsafe

    def char_class(self) -> str:
        out = "["
        if self.peek() == "^":
            out += self.take()
        if self.peek() in ("]", "["):
            raise _Unsafe
        while (letter := self.take()) != "]":
            if letter == "\\":
                out += self.class_escape()
            elif letter == "[" or letter == "&" or not letter.isprintable():
                raise _Unsafe  # [:alpha:] in RE2, nested classes and && in Java
            else:
                out += "\\^" if letter == "^" else letter
        return out + "]"

    def class_escape(self) -> str:
        letter = self.take()
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter in _LETTERS:
            return _LETTERS[letter]
        if letter.isascii() and not letter.isalnum() and letter.isprintable():
            return "\\" + letter
        raise _Unsafe


def _is_repeated(atom: str) -> bool:
    """True if a group contains a repeat."""
    return any(mark in atom for mark in ("*", "{"))
