"""Reads a filter's tokens one after another: marks, keywords and operands.

`predicate_parser` and `parser` are functions over a `TokenReader`. Every method that reads moves the reader
behind the tokens that it has read. Every failure is a `FilterSyntaxError` with the position and the expected token.
"""

from __future__ import annotations

import math
import re
from typing import NoReturn

from tidegate.errors import FilterSyntaxError
from tidegate.filters.nodes import Literal, Operand, Param, Path, Span, Value
from tidegate.filters.tokens import Token, string_value, tokenize

MAX_DIGITS = 1000
"""Integers with more digits are read as infinite: no value of an event is as large."""

MAX_INDEX = 2**31 - 1
"""The greatest index of an array: the greatest that Arrow and Spark can hold."""

RESERVED_WORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "LIKE", "TRUE", "FALSE"})
"""Keywords that name a field only when quoted. All other keywords are field names, unless the grammar expects the
keyword.
"""

_PATH_PART = re.compile(r'\[\s*(\d+)\s*\]|\.?(?:([^\W\d]\w*)|"((?:[^"]|"")+)")')
_HUGE = 10**MAX_DIGITS


class TokenReader:
    """A position in the tokens of a text. `kind`, `word` and `at` are kind, text and offset of the next token."""

    __slots__ = ("_closings", "at", "is_semantic", "kind", "next", "text", "tokens", "word")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.next = 0
        """The index of the next token."""
        self.kind, self.word, self.at = self.tokens[0]
        self.is_semantic = False
        """True once a predicate with `~` has been read."""
        self._closings: dict[int, int] | None = None

    # Tokens --------------------------------------------------------------------

    def advance(self) -> None:
        """Move behind the next token."""
        self.next += 1
        self.kind, self.word, self.at = self.tokens[self.next]

    def rewind(self, to: int) -> None:
        """Move back to a token."""
        self.next = to
        self.kind, self.word, self.at = self.tokens[to]

    def split_sign(self) -> None:
        """Split the next token, a number with a sign, into the sign and the number."""
        _, text, at = self.tokens[self.next]
        self.tokens[self.next : self.next + 1] = [("sign", text[0], at), ("number", text[1:], at + 1)]
        self._closings = None
        self.rewind(self.next)

    @property
    def closings(self) -> dict[int, int]:
        """The index of the parenthesis that closes each opening one; those that nothing closes are missing."""
        if self._closings is None:
            self._closings = {}
            opened: list[int] = []
            for n, (kind, text, _) in enumerate(self.tokens):
                if kind == "mark" and text == "(":
                    opened.append(n)
                elif kind == "mark" and text == ")" and opened:
                    self._closings[opened.pop()] = n
        return self._closings

    def at_end(self) -> bool:
        """Return True if all tokens have been read."""
        return self.kind == "end"

    def is_word(self, word: str) -> bool:
        """Return True if the next token is this keyword, in any case."""
        return self.kind == "word" and self.word.isascii() and self.word.upper() == word

    def take_word(self, word: str) -> bool:
        """Read this keyword if it comes next, and return whether it did."""
        if self.kind == "word" and self.word.isascii() and self.word.upper() == word:
            self.advance()
            return True
        return False

    def want_word(self, word: str, expected: str = "") -> None:
        """Read this keyword, or fail."""
        if not self.take_word(word):
            self.fail(expected or word)

    def take(self, mark: str) -> bool:
        """Read this mark if it comes next, and return whether it did."""
        if self.word == mark and self.kind == "mark":
            self.advance()
            return True
        return False

    def want(self, mark: str, expected: str = "") -> None:
        """Read this mark, or fail."""
        if not self.take(mark):
            self.fail(expected or mark)

    def since(self, start: int) -> Span:
        """Return the span from an offset to the end of the last token read."""
        _, text, at = self.tokens[self.next - 1]
        return start, at + len(text)

    def fail(self, expected: str) -> NoReturn:
        """Raise `FilterSyntaxError` at the next token."""
        self.fail_at((self.at, self.at + len(self.word)), expected)

    def fail_at(self, span: Span, expected: str) -> NoReturn:
        """Raise `FilterSyntaxError` at a span of the text."""
        raise FilterSyntaxError(self.text, span[0], expected, max(1, span[1] - span[0]))

    # Operands ------------------------------------------------------------------

    def operand(self, expected: str) -> Operand:
        """Read a field, a literal or a parameter."""
        token = kind, text, _ = self.tokens[self.next]
        match kind:
            case "word":
                if text.isalpha() and (upper := text.upper()) in RESERVED_WORDS:
                    if upper not in ("TRUE", "FALSE"):
                        self.fail(f'{expected}, not the keyword {upper} (a field of that name: "{text}")')
                    self.advance()
                    return Literal(upper == "TRUE", "bool", span_of(token))
                self.advance()
                return self.path(token)
            case "number":
                self.advance()
                return number_literal(token)
            case "string":
                self.advance()
                return Literal(string_value(text), "string", span_of(token))
            case "param":
                self.advance()
                if self.kind == "number" and self.at == token[2] + len(text):
                    self.fail_at((token[2], self.at + len(self.word)), "a parameter from %0 to %99")
                return Param(int(text[1:]), span_of(token))
        self.fail("a parameter from %0 to %99" if text == "%" else expected)

    def path(self, token: Token) -> Path:
        """Turn a word that was read already into a path."""
        parts = path_parts(token[1])
        if len(parts) > 1 and any(isinstance(part, int) and part > MAX_INDEX for part in parts):
            self.fail_at(span_of(token), f"an index of at most {MAX_INDEX}")
        return Path(parts, None, span_of(token))

    def field(self, expected: str) -> Path:
        """Read a field."""
        operand = self.operand(expected)
        if not isinstance(operand, Path):
            self.fail_at(operand.span, expected)
        return operand

    def value(self) -> Value:
        """Read a literal or a parameter."""
        if self.kind == "number":
            return self.number()
        operand = self.operand("a value: a number, a string in quotes, TRUE, FALSE or a parameter")
        if isinstance(operand, Path):
            word = self.text[slice(*operand.span)].strip('"')
            self.fail_at(operand.span, f"a value, not a field; did you mean '{word}'?")
        return operand

    def string(self, expected: str) -> str:
        """Read a string in quotes, and return it without them."""
        text = self.word
        if self.kind != "string":
            self.fail(expected)
        self.advance()
        return string_value(text)

    def number(self) -> Value:
        """Read a number or a parameter."""
        token = self.tokens[self.next]
        if token[0] == "number":
            self.advance()
            return number_literal(token)
        if token[0] == "param":
            self.advance()
            return Param(int(token[1][1:]), span_of(token))
        self.fail("a number")

    def numbers(self) -> tuple[Value, ...]:
        """Read numbers or parameters in parentheses, separated by commas."""
        self.want("(")
        numbers = [self.number()]
        while self.take(","):
            numbers.append(self.number())
        self.want(")", ", or )")
        return tuple(numbers)


def read_number(text: str) -> int | float:
    """Return the value of a number as the language writes it.

    >>> read_number("-0x1F"), read_number("5."), read_number(".5e1")
    (-31, 5.0, 5.0)
    """
    if text.isdecimal() and len(text) < 20:
        return int(text)
    is_hex = "x" in text or "X" in text
    if not is_hex and ("." in text or "e" in text or "E" in text):
        return float(text)
    if len(text) <= MAX_DIGITS:
        number = int(text, 16 if is_hex else 10)
        if -_HUGE < number < _HUGE:
            return number
    return -math.inf if text[0] == "-" else math.inf


def number_literal(token: Token) -> Literal:
    """Return a number token as a literal."""
    number = read_number(token[1])
    return Literal(number, "int" if isinstance(number, int) else "float", span_of(token))


def path_parts(text: str) -> tuple[str | int, ...]:
    """Return the names and indices of a path."""
    if text.isidentifier():
        return (text,)
    parts: list[str | int] = []
    for index, name, quoted in _PATH_PART.findall(text):
        parts.append(int((index.lstrip("0") or "0")[:18]) if index else name or quoted.replace('""', '"'))
    return tuple(parts)


def span_of(token: Token) -> Span:
    """Return the start and end of a token in the text."""
    _, text, at = token
    return at, at + len(text)
