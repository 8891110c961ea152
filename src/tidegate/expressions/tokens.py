"""Reads an expression's tokens one after another. What they mean is decided in `parser`."""

from __future__ import annotations

import re
from typing import NoReturn

from tidegate.errors import ExpressionError, Problem

MAX_LENGTH = 4_096
"""The longest text of an expression, in characters."""

_TOKEN = re.compile(
    r"""\s*+(?:
      (?P<number>(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+(?![\w.]))
    | (?P<name>[^\W\d]\w*+)
    | (?P<quoted>"(?:[^"]|"")++")
    | (?P<string>'(?:[^']|'')*+')
    | (?P<mark><=|>=|<>|!=|[-+*/%(),.\[\]=<>])
    | (?P<end>\Z)
    | (?P<unknown>.)
    )""",
    re.VERBOSE | re.DOTALL,
)


class ExpressionTokens:
    """The tokens of one text, with one token of lookahead: its `kind`, its text `piece`, and where it starts.

    `at` is where the next token is searched. Raises `ExpressionError` for a text that is too long, and at the first
    piece of it that is no token.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            message = f"expected at most {MAX_LENGTH} characters, not {len(text)}"
            raise ExpressionError(f"{text[:60]}...", [Problem(0, message)])
        self.text, self.at = text, 0
        self.kind, self.piece, self.start = "", "", 0
        self.advance()

    def advance(self) -> None:
        """Read the next token."""
        token = _TOKEN.match(self.text, self.at)
        assert token is not None
        assert token.lastgroup is not None
        self.kind, self.piece, self.start = token.lastgroup, token[token.lastgroup], token.start(token.lastgroup)
        if self.kind == "unknown":
            expected = {"'": "a quote ' that ends this text", '"': 'a name in quotes "..."'}.get(self.piece)
            self.fail(expected or "a value, an attribute or an operator")
        self.at = token.end()

    def fail(self, expected: str) -> NoReturn:
        """Raise an `ExpressionError` at the token, with the text that was expected there."""
        actual = f", not {self.piece!r}" if self.piece else ""
        raise ExpressionError(self.text, [Problem(self.start, f"expected {expected}{actual}", max(1, len(self.piece)))])

    def take(self, *marks: str) -> str:
        """Consume the token and return it if it is one of `marks`; otherwise return ""."""
        if self.kind != "mark" or self.piece not in marks:
            return ""
        mark = self.piece
        self.advance()
        return mark

    def expect(self, mark: str) -> None:
        """Consume this mark, or fail."""
        if not self.take(mark):
            self.fail(f"{mark!r}")

    def is_word(self, word: str) -> bool:
        """Return True if the token is this keyword, in any case."""
        return self.kind == "name" and self.piece.lower() == word

    def take_word(self, word: str) -> bool:
        """Consume the token if it is this keyword."""
        if not self.is_word(word):
            return False
        self.advance()
        return True

    def expect_word(self, word: str) -> None:
        """Consume this keyword, or fail."""
        if not self.take_word(word):
            self.fail(word.upper())
