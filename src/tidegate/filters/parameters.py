"""Reads the value of a parameter as the field that it is compared with expects it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from tidegate.filters.nodes import Literal, Span
from tidegate.filters.token_reader import MAX_DIGITS, read_number
from tidegate.filters.tokens import MAX_BYTES, NUMBER, string_value
from tidegate.model import timestamps
from tidegate.model.types import Enum, Scalar, Type

_NUMBER = re.compile(NUMBER)
_STRING = re.compile(r"'''|[`'](?:[^']|'')*+'", re.DOTALL)


def read_param(value: Any, kind: Type | None, span: Span) -> Literal | str:
    """Return a parameter as a literal of the field's type; if it can't be read, the message with the expected text.

    Without a schema, a text that is a number or a truth value is read as one.
    """
    match value:
        case bool():
            return Literal(value, "bool", span)
        case int():
            return _whole(int(value), span)
        case float():
            return Literal(float(value), "float", span) if value == value else "expected a number"
        case datetime():
            micros = timestamps.from_datetime(value)
            if not timestamps.is_writable(micros):
                return "expected a time in the years 1 to 9999"
            return Literal(timestamps.to_text(micros), "string", span)
        case str():
            return _read_text(value, kind, span)
    return f"expected text, a number or a truth value, not {type(value).__name__}"


def _whole(number: int, span: Span) -> Literal:
    """Return an integer as a literal; one of too many digits is infinite, as in a filter's text."""
    if abs(number) < 10**MAX_DIGITS:
        return Literal(number, "int", span)
    return Literal(float("inf") if number > 0 else float("-inf"), "float", span)


def _read_text(value: str, kind: Type | None, span: Span) -> Literal | str:
    if len(value) > MAX_BYTES:
        return f"expected at most {MAX_BYTES} characters, not {len(value)}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "expected Unicode text without lone surrogates"
    text = value.strip()
    if text[:1] in ("'", "`"):
        if _STRING.fullmatch(text) is None:
            return "expected a quote ' that ends this string"
        return Literal(string_value(text), "string", span)
    field_kind = kind.kind if kind is not None else ""
    if field_kind in ("string", "char", "time"):
        return Literal(value, "string", span)
    if isinstance(kind, Enum) and value in kind.labels:
        return Literal(value, "string", span)
    if _NUMBER.fullmatch(text):
        number = read_number(text)
        return Literal(number, "int" if isinstance(number, int) else "float", span)
    if text.upper() in ("TRUE", "FALSE"):
        return Literal(text.upper() == "TRUE", "bool", span)
    return Literal(value, "string", span)


def placeholder(kind: Type | None, span: Span) -> Literal:
    """Return a literal in place of a value that could not be read, so that no second problem follows."""
    if isinstance(kind, Enum):
        return Literal(kind.labels[0], "string", span)
    if isinstance(kind, Scalar) and kind.kind in ("string", "char"):
        return Literal("", "string", span)
    if isinstance(kind, Scalar) and kind.kind == "time":
        return Literal("1970-01-01", "string", span)
    return Literal(1, "int", span)
