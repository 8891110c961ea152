"""One signature of a function or operator, with its implementations in Spark SQL and in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.expressions.casts import BOOL, FLOAT, INT, STRING, TEXTS, TIME
from tidegate.model.types import Type


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function, with its implementations."""

    takes: tuple[str, ...]
    """Kinds of the arguments, of `KINDS`; a kind that ends in `*` takes one or more arguments."""
    gives: Type | None
    """The type of the result; None: the common type of the arguments."""
    sql: str | Callable[..., str]
    """A format string with {0}, {1}, ... for the arguments, {all} for all and {rest} for all but the first; or a
    function of the arguments that returns one.
    """
    python: Callable[..., Any]
    """Never called with None, unless `takes_nulls`."""
    total: bool = False
    """True if the result is not null whenever no argument is null."""
    takes_nulls: bool = False
    """True if the function also runs if an argument is null."""
    is_required: Callable[[Sequence[bool]], bool] | None = None
    """Returns whether the result is never null, given which arguments never are. None: `total`, and all of them."""


KINDS: dict[str, tuple[tuple[str, ...], Type | None, str]] = {
    "bool": (("bool",), BOOL, "a condition"),
    "int": (("int",), INT, "a whole number"),
    "number": (("int", "float"), FLOAT, "a number"),
    "text": (TEXTS, STRING, "text"),
    "word": ((*TEXTS, "int", "bool"), STRING, "text, a whole number or a truth value"),
    "time": (("time",), TIME, "a timestamp"),
    "array": (("array",), None, "an array"),
    "anything": (("bool", "int", "float", "time", "array", "struct", *TEXTS), None, "a value"),
    "digits": (("int",), None, "a number of decimal places from 0 to 15, not computed"),
    "place": (("int",), None, "a place, a whole number, not computed"),
    "length": (("int",), None, "a length from 1 to 12, not computed"),
    "zone": (("string",), None, "a time zone such as 'Europe/Berlin', not computed"),
    "pattern": (("string",), None, "a pattern in quotes"),
}
"""By name: the accepted kinds of types, the type they are converted to (None: unchanged), and a description."""

LITERALS = {"digits": (0, 15), "place": (-(2**31), 2**31 - 1), "length": (1, 12)}
"""Kinds of arguments that must be integer literals, with their range."""

COMMON = {
    "any*": ("bool", "int", "float", "time", "array", "struct", *TEXTS),
    "ordered*": ("int", "float", "time", "string", "char"),
}
"""Kinds of arguments that are converted to one common type, with the accepted kinds of types."""

COMPARED = {
    "equal*": ("bool", "int", "float", "time", *TEXTS),
    "ordered*": ("int", "float", "time", "string", "char"),
}
"""Kinds of arguments that a comparison takes, with the accepted kinds of types."""
