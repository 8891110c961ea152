"""Conversions between types: which exist, their Spark SQL, and their Python version.

A cast never raises: a value that the target type can't hold becomes null.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any

from tidegate.model import timestamps
from tidegate.model.numbers import nearest_float, nearest_float32
from tidegate.model.types import INTEGER_RANGES, Array, Enum, Scalar, Struct, Type

BOOL, INT, FLOAT, STRING, TIME = (Scalar(name) for name in ("bool", "int64", "float64", "string", "timestamp"))

SQL_TYPES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "uint8": "SMALLINT",
    "uint16": "INT",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20,0)",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "char": "STRING",
    "string": "STRING",
    "timestamp": "TIMESTAMP",
}
"""The Spark SQL type that carries each of our types."""

# Spark and Python accept more texts as numbers and times, and different ones. Both are limited to these patterns.
_WHOLE = "[+-]?[0-9]{1,20}"
_DECIMAL = "[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,3})?"
_MOMENT = (
    "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
    "(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?)?"
)

TEXTS = ("string", "char", "enum")
"""Kinds of types that are carried as text."""


def problem(source: Type | None, target: Type) -> str:
    """Return why there is no cast between two types; "" if there is one. `source` None is the type of null."""
    if source is None or source == target:
        return ""
    if isinstance(source, Array | Struct) or isinstance(target, Array | Struct):
        return f"{source} can't be cast to {target}: only single values can"
    kind = source.kind
    can_cast_to = {
        "bool": kind in TEXTS,
        "int": kind in (*TEXTS, "float", "int", "bool") and not (kind == "float" and str(target) == "uint64"),
        "float": kind in (*TEXTS, "float", "int"),
        "string": kind in (*TEXTS, "int", "bool", "time"),
        "char": kind in TEXTS,
        "enum": kind in TEXTS,
        "time": kind in TEXTS,
    }
    return "" if can_cast_to[target.kind] else f"{source} can't be cast to {target}"


def may_lose(source: Type | None, target: Type) -> bool:
    """Return True if a cast can turn a value into null."""
    if source is None or source == target:
        return source is None
    match target.kind:
        case "string":
            return False
        case "float":
            return source.kind in TEXTS
        case "int":
            return not _within(source, target)
        case "enum":
            return not (isinstance(source, Enum) and isinstance(target, Enum) and {*source.labels} <= {*target.labels})
    return True


def sql(text: str, source: Type | None, target: Type) -> str:
    """Return Spark SQL that casts the SQL expression `text`."""
    name = type_name(target)
    if source == target:
        return text
    if source is None:
        return f"CAST(NULL AS {name})"
    if isinstance(target, Enum):
        labels = ", ".join(map(quoted, target.labels))
        return text if not may_lose(source, target) else f"IF({text} IN ({labels}), {text}, NULL)"
    if target.kind == "char":
        return f"IF(char_length({text}) = 1, {text}, NULL)"
    if source.kind in TEXTS:
        return _from_text(text, target)
    if target.kind == "string":
        return _time_text(text) if source.kind == "time" else f"CAST({text} AS STRING)"
    if target.kind == "int":
        return _to_int(text, source, str(target))
    # Through double, so that integers are rounded to float32 as the other evaluators do it.
    return _as_double(text, source) if name == "DOUBLE" else f"CAST({_as_double(text, source)} AS {name})"


def _as_double(text: str, source: Type) -> str:
    """Return Spark SQL that converts a number to double."""
    return text if source == FLOAT else f"CAST({text} AS DOUBLE)"


def _to_int(text: str, source: Type, target: str) -> str:
    name = SQL_TYPES[target]
    if source.kind == "bool":
        return f"CAST(CAST({text} AS INT) AS {name})"
    if not target.startswith("u"):
        return f"{'CAST' if _within(source, Scalar(target)) else 'try_cast'}({text} AS {name})"
    if _within(source, Scalar(target)):
        return f"CAST({text} AS {name})"
    low, high = INTEGER_RANGES[target]
    inside = f"{text} BETWEEN {low} AND {high}" if source.kind == "int" else f"{text} > -1 AND {text} < {high + 1}"
    return f"IF({inside}, try_cast({text} AS {name}), NULL)"


def _from_text(text: str, target: Type) -> str:
    match target.kind:
        case "bool":
            return f"CASE lower({text}) WHEN 'true' THEN true WHEN 'false' THEN false END"
        case "int":
            wide = f"IF({_looks_like(text, _WHOLE)}, try_cast({text} AS DECIMAL(20,0)), NULL)"
            low, high = INTEGER_RANGES[str(target)]
            if str(target).startswith("u"):
                return f"IF({wide} BETWEEN {low} AND {high}, CAST({wide} AS {type_name(target)}), NULL)"
            return f"try_cast({wide} AS {type_name(target)})"
        case "float":
            read = f"IF({_looks_like(text, _DECIMAL)}, try_cast({text} AS DOUBLE), NULL)"
            return read if target == FLOAT else f"CAST({read} AS {type_name(target)})"
        case "time":
            return f"IF({_looks_like(text, _MOMENT)}, try_cast({text} AS TIMESTAMP), NULL)"
    return text


def _looks_like(text: str, pattern: str) -> str:
    # \\z instead of $, because $ also matches before a newline at the end.
    return f"{text} RLIKE {quoted(f'^(?:{pattern})' + chr(92) + 'z')}"


def _time_text(text: str) -> str:
    return f"""date_format({text}, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")"""


def convert(value: Any, source: Type | None, target: Type) -> Any:
    """Cast a value in Python, with the same result as Spark; None is null."""
    if value is None or source is None or source == target:
        return value
    if isinstance(target, Enum):
        return value if value in target.labels else None
    if target.kind == "char":
        return value if len(value) == 1 else None
    if source.kind in TEXTS:
        return _value_of_text(value, target)
    match target.kind:
        case "string":
            return _text_of_value(value)
        case "int":
            return _whole(value, str(target))
        case "float":
            return nearest_float32(value) if str(target) == "float32" else nearest_float(value)
    return value


def _value_of_text(text: str, target: Type) -> Any:
    match target.kind:
        case "bool":
            return {"true": True, "false": False}.get(text.lower())
        case "int":
            return _whole(int(text), str(target)) if re.fullmatch(_WHOLE, text) else None
        case "float":
            if not re.fullmatch(_DECIMAL, text):
                return None
            return float(text) if target == FLOAT else nearest_float32(float(text))
        case "time":
            micros = timestamps.from_text(text) if re.fullmatch(_MOMENT, text) else None
            return None if micros is None else timestamps.to_datetime(micros)
    return text


def _text_of_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return timestamps.to_text(timestamps.from_datetime(value)) if isinstance(value, datetime) else str(value)


def _whole(value: float, name: str) -> int | None:
    """Truncate a number to an integer type; None if it is out of range."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if value == 2.0**63 and name == "int64":  # Spark compares with the greatest int64 as a double
            return 2**63 - 1
        value = math.trunc(value)
    low, high = INTEGER_RANGES[name]
    return int(value) if low <= value <= high else None


def _within(source: Type, target: Type) -> bool:
    """Return True if every value of `source` is in the range of the integer type `target`."""
    if source.kind == "bool":
        return True
    if source.kind != "int" or target.kind != "int":
        return False
    low, high = INTEGER_RANGES[str(source)]
    target_low, target_high = INTEGER_RANGES[str(target)]
    return target_low <= low and high <= target_high


def type_name(kind: Type) -> str:
    """Return the Spark SQL name of a scalar type."""
    return SQL_TYPES.get(str(kind), "STRING")


_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "$": "\\u0024"}


def quoted(text: str) -> str:
    r"""Return text as a string literal for Spark's parser.

    Backslashes are escaped. `$` is written as a code, because Spark replaces `${...}` by a setting or an environment
    variable even inside a literal.

    >>> print(quoted("it's C:\\"), quoted("${env:HOME}"))
    'it\'s C:\\' '\u0024{env:HOME}'
    """
    return "'" + "".join(_ESCAPES.get(letter, letter) for letter in text) + "'"
