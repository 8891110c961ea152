"""Rewrites a comparison of a linear expression to the values of its field: `speed * 3.6 > 80` to a range of speeds.

The rewriting is exact. Each step of the expression (add, subtract or multiply a constant, change the sign, convert to
float) is monotonic on the floats and integers that it is computed with, rounding included. So the values whose result
lies between two bounds are again a range, and its ends are found by bisection, with the same operations that evaluators
use.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tidegate.expressions.casts import FLOAT, INT
from tidegate.expressions.functions import FUNCTIONS
from tidegate.expressions.nodes import AttributePath, Cast, Constant, ExpressionNode, FunctionCall
from tidegate.expressions.type_checker import check_values
from tidegate.filters.computed import NUMBER_OR_NULL
from tidegate.filters.nodes import ComputedValue, Path
from tidegate.filters.sets import END, START, Cut, Cuts, ValueSet, domain_of
from tidegate.model.numbers import nearest_float
from tidegate.model.types import INTEGER_RANGES, Scalar, Type

MAX_RANGES = 64
"""A comparison that allows more ranges of results is not rewritten, so that a long IN costs milliseconds."""

_LOW, _HIGH = INTEGER_RANGES["int64"]
_WHOLE = (_LOW, INTEGER_RANGES["uint64"][1])
"""All integers that an attribute may have."""
_OPERATORS = {id(overload): name for name in ("+", "-", "*", "/", "negative") for overload in FUNCTIONS[name]}


@dataclass(frozen=True, slots=True)
class _Step:
    """One monotonic operation."""

    compute: Callable[[Any], Any]
    rising: bool
    takes_float: bool
    gives_float: bool


@lru_cache(maxsize=4096)
def rewritten(computed: ComputedValue, allowed: ValueSet) -> tuple[Path, ValueSet] | None:
    """Return the field of a linear expression, and its values for which the result is allowed; None if not linear."""
    if len(computed.fields) != 1 or allowed.null or allowed.tests:
        return None
    (path,) = computed.fields
    kinds: tuple[tuple[str, Type], ...]
    if computed.root is None:
        kinds = (("int", INT), ("float", FLOAT))
    elif isinstance(path.type, Scalar) and path.type.kind in ("int", "float"):
        kinds = ((path.type.kind, path.type),)
    else:
        return None
    cuts: dict[str, Cuts] = {}
    for name, kind in kinds:
        root = computed.root if computed.root is not None else check_values(computed.term, {path.parts: kind})
        steps = None if root is None else _steps(root)
        if root is None or root.type is None or steps is None:
            return None
        results = allowed.cuts.get(root.type.kind, ())
        if len(results) > 2 * MAX_RANGES:
            return None
        cuts[name] = domain_of(kind).settle(_preimage(steps, name == "float", results))
    return path, ValueSet(cuts)


def _steps(node: ExpressionNode) -> list[_Step] | None:
    """Return the operations of an expression, innermost first; None if it is not linear."""
    match node:
        case AttributePath():
            return []
        case Cast(argument, kind) if argument.type is not None and kind in (INT, FLOAT):
            steps = _steps(argument)
            source = argument.type.kind
            if steps is None or source not in ("int", "float") or (source == "float" and kind == INT):
                return None
            if source == "int":
                convert = nearest_float if kind == FLOAT else _same
                steps.append(_Step(convert, True, takes_float=False, gives_float=kind == FLOAT))
            return steps
        case FunctionCall(overload, arguments) if overload is NUMBER_OR_NULL:
            return _steps(arguments[0])
        case FunctionCall():
            return _operation(node, _OPERATORS.get(id(node.overload), ""))
    return None


def _operation(node: FunctionCall, name: str) -> list[_Step] | None:
    is_float = node.type == FLOAT
    if name == "negative":
        steps = _steps(node.arguments[0])
        return None if steps is None else [*steps, _Step(lambda x: -x, False, is_float, is_float)]
    if not name:
        return None
    constants = [_constant(argument) for argument in node.arguments]
    if (constants[0] is None) == (constants[1] is None):
        return None
    left = constants[0] is not None
    c = constants[0] if left else constants[1]
    steps = _steps(node.arguments[1 if left else 0])
    if steps is None or c is None or not math.isfinite(c) or (name in "*/" and c == 0) or (name == "/" and left):
        return None
    operation, rising = _operator(name, c, left)
    return [*steps, _Step(operation, rising, is_float, is_float)]


def _operator(name: str, c: Any, left: bool) -> tuple[Callable[[Any], Any], bool]:
    """Return an operation with a constant, and whether it rises. Integers do not overflow here."""
    match name:
        case "+":
            return lambda x: x + c, True
        case "-" if left:
            return lambda x: c - x, False
        case "-":
            return lambda x: x - c, True
        case "*":
            return lambda x: x * c, c > 0
    return lambda x: x / c, c > 0


def _constant(node: ExpressionNode) -> Any:
    """Return the value of a constant number; None for any other node."""
    match node:
        case Constant(value) if value is not None and node.type in (INT, FLOAT):
            return value
        case Cast(Constant(int() as value), kind) if kind == FLOAT:
            return nearest_float(value)
    return None


# Ranges ------------------------------------------------------------------------


def _preimage(steps: list[_Step], is_float: bool, results: Cuts) -> Cuts:
    """Return the numbers for which the steps give one of the results."""
    ranges = list(_closed(results, steps[-1].gives_float if steps else is_float))
    for step in reversed(steps):
        ranges = [before for range_ in ranges if (before := _before(step, *range_)) is not None]
    cuts: list[Cut] = []
    for low, high in sorted(ranges):
        begin: Cut = START if low == -math.inf else (0, low, 0)
        end: Cut = END if high == math.inf else (0, high, 1)
        if cuts and cuts[-1] >= begin:
            cuts[-1] = max(cuts[-1], end)
        else:
            cuts += [begin, end]
    return tuple(cuts)


def _closed(cuts: Cuts, is_float: bool) -> Iterator[tuple[Any, Any]]:
    """Yield the ranges of a set with both ends included."""
    for begin, end in zip(cuts[::2], cuts[1::2], strict=True):
        if is_float:
            low = -math.inf if begin[0] else _float_from(begin[1], above=begin[2] == 1)
            high = math.inf if end[0] else -_float_from(-end[1], above=end[2] == 0)
            if low <= high:  # not if one is NaN
                yield low, high
        else:
            low = _LOW if begin[0] else max(_LOW, math.floor(begin[1]) + 1 if begin[2] else math.ceil(begin[1]))
            high = _HIGH if end[0] else min(_HIGH, math.floor(end[1]) if end[2] else math.ceil(end[1]) - 1)
            if low <= high:
                yield low, high


def _float_from(number: Any, above: bool) -> float:
    """Return the least float that is at or above a number, or above it; NaN if there is none."""
    nearest = nearest_float(number)
    if nearest > number or (nearest == number and not above):
        return nearest
    return math.nan if nearest == math.inf else math.nextafter(nearest, math.inf)


def _before(step: _Step, low: Any, high: Any) -> tuple[Any, Any] | None:
    """Return the range of numbers for which a step gives a result from `low` to `high`."""
    if not step.gives_float:  # an integer that overflows is null
        low, high = max(low, _LOW), min(high, _HIGH)
    at: Callable[[int], Any] = _float_at if step.takes_float else _same
    to = _ORDINALS if step.takes_float else _WHOLE
    if step.rising:
        first = _first(lambda n: step.compute(at(n)) >= low, *to)
        last = _first(lambda n: step.compute(at(n)) > high, *to) - 1
    else:
        first = _first(lambda n: step.compute(at(n)) <= high, *to)
        last = _first(lambda n: step.compute(at(n)) < low, *to) - 1
    return (at(first), at(last)) if first <= last else None


def _same(number: int) -> int:
    return number


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number from `low` to `high` for which a rising condition holds; `high + 1` if for none."""
    high += 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _ordinal(number: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


def _float_at(ordinal: int) -> float:
    """Return a float by its place in the order of all floats; both zeros have place 0."""
    magnitude: float = struct.unpack("<d", struct.pack("<q", abs(ordinal)))[0]
    return magnitude if ordinal >= 0 else -magnitude


_ORDINALS = (_ordinal(-math.inf), _ordinal(math.inf))
