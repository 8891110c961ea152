"""Other implementations that we compare with in the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lark
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_GRAMMAR = r"""
start: or
?or: and ("OR"i and)*
?and: not ("AND"i not)*
?not: "NOT"i not | "(" or ")" | predicate
?predicate: FIELD REL value -> compare
          | FIELD "BETWEEN"i value "AND"i value -> between
          | FIELD "LIKE"i value -> like
          | FIELD "IN"i "(" value ("," value)* ")" -> in
?value: NUMBER | STRING | BOOL
REL: "<=" | ">=" | "<>" | "=" | "<" | ">"
BOOL.2: "TRUE"i | "FALSE"i
FIELD: /(?!(AND|OR|NOT|BETWEEN|LIKE|IN|TRUE|FALSE)\b)[A-Za-z_][A-Za-z_0-9.]*/
NUMBER: /[+-]?\d+(\.\d+)?/
STRING: /'[^']*'/
%ignore /\s+/
"""


def lark_parser() -> Callable[[str], object]:
    """An LALR parser of the same predicates by lark: the tree alone, untyped."""
    return lark.Lark(_GRAMMAR, parser="lalr").parse


def by_hand(event: dict[str, Any]) -> bool:
    """`speed > 60 AND vid = 'BJ00017'` in plain Python, without handling of nulls."""
    return bool(event["speed"] > 60 and event["vid"] == "BJ00017")


def numpy_by_hand(batch: pa.RecordBatch) -> Any:
    """The five numeric predicates in plain numpy."""
    a, b, c, d, e = (np.asarray(batch.column(n)) for n in range(5))
    return (a > 10) & (b < 90) & (c >= 20) & (d <= 80) & (e > 30)


def arrow_by_hand(batch: pa.RecordBatch) -> Any:
    """The five numeric predicates in Arrow's compute functions."""
    a, b, c, d, e = (batch.column(n) for n in range(5))
    found = pc.and_(pc.greater(a, 10.0), pc.less(b, 90.0))
    found = pc.and_(found, pc.greater_equal(c, 20.0))
    return pc.and_(pc.and_(found, pc.less_equal(d, 80.0)), pc.greater(e, 30.0))
