"""The slow, obvious evaluator that judges the fast ones.

Works on the typed tree as it was parsed, one node at a time, in plain
three-valued logic; shares no code with `tidegate.filters` but the tree itself.
Numbers are compared as fractions, distances by the textbook.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import re2

from tests.generate import TIMES
from tidegate.expressions import parser as e
from tidegate.filters import nodes as n
from tidegate.model.types import INTEGER_RANGES, Enum, Scalar

Truth = bool | None
UNKNOWN = None


def truth(node: n.Node, event: Mapping[str, Any]) -> Truth:
    match node:
        case n.And(terms):
            found = [truth(term, event) for term in terms]
            return False if False in found else UNKNOWN if None in found else True
        case n.Or(terms):
            found = [truth(term, event) for term in terms]
            return True if True in found else UNKNOWN if None in found else False
        case n.Not(term):
            return negate(truth(term, event), True)
        case n.Compare(path, relation, other):
            return compare(value(path, event), relation, operand(other, path, event))
        case n.Between(path, low, high, negated):
            v = value(path, event)
            above, below = compare(v, ">=", operand(low, path, event)), compare(v, "<=", operand(high, path, event))
            return negate(UNKNOWN if above is None or below is None else above and below, negated)
        case n.In(path, values, negated):
            v = value(path, event)
            found = [compare(v, "=", operand(each, path, event)) for each in values]
            return negate(True if True in found else UNKNOWN if None in found else False, negated)
        case n.IsNull(n.ComputedValue() as path, negated):
            return (value(path, event)[0] == "none") is not negated
        case n.IsNull(path, negated):
            raw = fetch(path, event)
            return (raw is None or raw != raw) is not negated
        case n.Pattern():
            text, pattern = text_of(node.subject, event), text_of(node.pattern, event)
            if text is None or pattern is None:
                return UNKNOWN
            return negate(like(text, pattern) if node.operator == "LIKE" else regex(text, pattern), node.negated)
        case n.StrLike(path):
            text = text_of(path, event)
            return UNKNOWN if text is None else negate(near(text, node), node.negated)
        case n.Inside():
            x, y = real(node.longitude, event), real(node.latitude, event)
            return UNKNOWN if x is None or y is None else negate(inside(node.area, x, y), node.negated)
        case n.Group():
            grades = [grade(item, event) for item in node.items]
            if None in grades:
                return UNKNOWN
            reached = group_degree(node, grades) >= num(node.least) - 1e-9
            pairs = zip(grades, node.items, strict=True)
            betas = all(mu is not None and mu >= num(item.least) - 1e-9 for mu, item in pairs)
            return negate(reached and betas, node.negated)
    raise AssertionError(node)


def negate(found: Truth, negated: bool) -> Truth:
    return found if found is None or not negated else not found


def degree(node: n.Node, event: Mapping[str, Any]) -> float:
    return 0.0 if truth(node, event) is None else _degree(node, event, False)


def _degree(node: n.Node, event: Mapping[str, Any], flip: bool) -> float:
    match node:
        case n.Not(term):
            return _degree(term, event, not flip)
        case n.And(terms) | n.Or(terms):
            found = [_degree(term, event, flip) for term in terms]
            return (min if isinstance(node, n.And) is not flip else max)(found)
        case n.Group():
            grades = [grade(item, event) for item in node.items]
            if None in grades:
                return 0.0
            found_ = group_degree(node, grades)
            return 1 - found_ if node.negated is not flip else found_
    return 1.0 if negate(truth(node, event), flip) else 0.0


def group_degree(group: n.Group, grades: list[Any]) -> float:
    if group.mode == "MIN":
        return float(min(grades))
    weights = [num(item.weight) for item in group.items]
    return float(sum(w * mu for w, mu in zip(weights, grades, strict=True)) / sum(weights))


def grade(item: n.Item, event: Mapping[str, Any]) -> float | None:
    inner = item.predicate
    match inner:
        case n.Member(path, shape):
            x = real(path, event)
            if x is None:
                return None
            mu, negated = membership(shape, x), item.negated
        case n.StrLike(path):
            text = text_of(path, event)
            if text is None:
                return None
            wanted = str(lit(inner.text))
            longest = max(len(text), len(wanted))
            mu = 1 - edits(text, wanted) / longest if longest else 1.0
            if inner.bound is not None and not near(text, inner):
                mu = 0.0
            negated = item.negated ^ inner.negated
        case _:
            found = truth(inner, event)
            if found is None:
                return None
            mu, negated = float(found), item.negated
    return 1 - mu if negated else mu


# Values ------------------------------------------------------------------------


def lit(given: Any) -> Any:
    assert isinstance(given, n.Literal)
    return given.value


def num(given: Any) -> float:
    return float(lit(given))


def fetch(path: n.Path, event: Mapping[str, Any]) -> Any:
    here: Any = event
    for part in path.parts:
        if isinstance(part, int):
            here = here[part] if isinstance(here, list) and part < len(here) else None
        else:
            here = here.get(part) if isinstance(here, dict) else None
    return here


def value(path: n.Path, event: Mapping[str, Any]) -> tuple[str, Any]:
    """A value with the kind it compares as."""
    if isinstance(path, n.ComputedValue):
        types = {leaf.parts: leaf.type for leaf in path.fields}
        return finite(computed(path.term, event, types))
    raw = fetch(path, event)
    if raw is None or (isinstance(raw, float) and math.isnan(raw)):
        return "none", None
    if isinstance(path.type, Enum):
        if isinstance(raw, str):
            return ("int", path.type.labels.index(raw)) if raw in path.type.labels else ("none", None)
        return ("int", raw) if type(raw) is int else ("none", None)
    kind = path.type.name if isinstance(path.type, Scalar) else None
    if kind == "timestamp":
        return ("time", micros(raw)) if isinstance(raw, str) and raw in TIMES else ("none", None)
    if kind in ("string", "char") and not isinstance(raw, str):
        return "none", None
    if kind == "float32":
        return ("float", float32(raw)) if type(raw) in (int, float) else ("none", None)
    names = {bool: "bool", int: "int", float: "float", str: "string"}
    return (names[type(raw)], raw) if type(raw) in names else ("none", None)


def finite(found: tuple[str, Any]) -> tuple[str, Any]:
    return ("none", None) if found[0] == "error" or (found[0] == "float" and math.isnan(found[1])) else found


def computed(term: Any, event: Mapping[str, Any], types: Mapping[Any, Any]) -> tuple[str, Any]:
    """An expression by the textbook: integers of 64 bits, floats of 64 bits, and nothing where there is no result."""
    none = "none", None
    if isinstance(term, e.UntypedConstant):
        return {"int": "int", "float": "float", "str": "string"}[type(term.value).__name__], term.value
    if isinstance(term, e.UntypedPath):
        kind, found = finite(value(n.Path(term.parts, types.get(term.parts)), event))
        typed = types.get(term.parts)
        if typed is None and isinstance(fetch(n.Path(term.parts), event), list):
            return "array", fetch(n.Path(term.parts), event)
        if typed is None:
            return (kind, found) if kind != "int" or -(2**63) <= found < 2**63 else none
        if typed.kind == "float" and kind in ("int", "float"):
            return "float", float32(found) if typed.name == "float32" else float(found)
        if typed.kind == "int" and (kind != "int" or not fits(found, typed.name)):
            return none
        return (kind, found) if kind == {"char": "string"}.get(typed.kind, typed.kind) else none
    arguments = [computed(argument, event, types) for argument in term.arguments]
    if any(kind == "error" for kind, _ in arguments):
        return "error", None
    if term.name == "coalesce":
        return coalesce(arguments, term.arguments, types)
    if any(kind == "none" for kind, _ in arguments):
        return (
            none if {kind for kind, _ in arguments} <= {"none", "int", "float", "string", "time"} else ("error", None)
        )
    kinds, values = [kind for kind, _ in arguments], [found for _, found in arguments]
    return applied(term.name, kinds, values)


def applied(name: str, kinds: list[str], values: list[Any]) -> tuple[str, Any]:
    match name, kinds:
        case (("upper" | "lower" | "trim" | "length"), ["string"]):
            change: Any = {"upper": str.upper, "lower": str.lower, "length": len}.get(
                name, lambda text: text.strip(" ")
            )
            return ("int" if name == "length" else "string"), change(values[0])
        case (("hour" | "weekday" | "year"), ["time", *_]):
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=values[0])
            if len(values) == 2:
                if not timedelta(2) <= moment - datetime.min.replace(tzinfo=UTC) <= timedelta(3652055):
                    return "none", None
                moment = moment.astimezone(ZoneInfo(values[1]))
            return "int", moment.weekday() if name == "weekday" else getattr(moment, name)
    if name == "length" and kinds == ["array"]:
        return "int", len(values[0])
    if not {*kinds} <= {"int", "float"} or name not in ("+", "-", "*", "/", "%", "negative", "abs", "floor"):
        return "error", None  # without a schema: the expression has no meaning for these values
    if kinds == ["int"] * len(kinds) and name != "/":
        return whole(name, values)
    return real_result(name, [float(x) for x in values])


def whole(name: str, values: list[int]) -> tuple[str, Any]:
    """Integers: a result beyond 64 bits is none."""
    if any(not fits(x, "int64") for x in values):
        return "none", None
    a, b = (*values, 0)[:2]
    if name == "%" and b == 0:
        return "none", None
    remainder = int(math.copysign(1, a)) * (abs(a) % abs(b)) if name == "%" else 0
    results = {"+": a + b, "-": a - b, "*": a * b, "%": remainder, "negative": -a, "abs": abs(a), "floor": a}
    return ("int", results[name]) if fits(results[name], "int64") else ("none", None)


def real_result(name: str, values: list[float]) -> tuple[str, Any]:
    a, b = (*values, 0.0)[:2]
    if name in "/%" and b == 0:
        return "none", None
    if name == "floor":
        return ("int", math.floor(a)) if abs(a) < 2.0**63 else ("none", None)
    if name == "%":
        return "float", math.nan if math.isinf(a) else math.fmod(a, b)
    if name == "/":
        return "float", a / b
    return "float", {"+": a + b, "-": a - b, "*": a * b, "negative": -a, "abs": abs(a)}[name]


def fits(number: int, name: str) -> bool:
    low, high = INTEGER_RANGES[name]
    return low <= number <= high


def coalesce(found: list[tuple[str, Any]], terms: Any, types: Mapping[Any, Any]) -> tuple[str, Any]:
    """The first value; a float if any argument is one, even one that is missing here."""
    is_float = any(static_kind(term, types) == "float" for term in terms) or any(kind == "float" for kind, _ in found)
    if any(kind not in ("int", "float", "none") for kind, _ in found):
        return "error", None
    for kind, x in found:
        if kind == "int" and not is_float and not fits(x, "int64"):
            continue
        if kind != "none":
            return ("float", float(x)) if is_float else (kind, x)
    return "none", None


def static_kind(term: Any, types: Mapping[Any, Any]) -> str | None:
    """The kind of an expression with a schema; None without one, or if it is none."""
    if isinstance(term, e.UntypedPath):
        typed = types.get(term.parts)
        return None if typed is None else str(typed.kind)
    if isinstance(term, e.UntypedConstant):
        return "float" if isinstance(term.value, float) else "int"
    kinds = [static_kind(argument, types) for argument in term.arguments]
    return "int" if term.name == "floor" else "float" if "float" in kinds or term.name == "/" else "int"


def operand(given: Any, path: n.Path, event: Mapping[str, Any]) -> tuple[str, Any]:
    if isinstance(given, n.Path):
        return value(given, event)
    if isinstance(path.type, Enum):
        return "int", path.type.labels.index(given.value) if isinstance(given.value, str) else given.value
    return given.kind, given.value


def float32(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def micros(text: str) -> int:
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds


def compare(one: tuple[str, Any], relation: str, two: tuple[str, Any]) -> Truth:
    (a_kind, a), (b_kind, b) = one, two
    pairs = [{"bool", "int"}, {"int", "float"}]
    if "none" in (a_kind, b_kind) or (a_kind != b_kind and {a_kind, b_kind} not in pairs):
        return UNKNOWN
    sign = order(a, b)
    return {"=": sign == 0, "<>": sign != 0, "<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[relation]


def order(a: Any, b: Any) -> int:
    if isinstance(a, str):
        left, right = [ord(c) for c in a], [ord(c) for c in b]
        return (left > right) - (left < right)
    for x, y, sign in ((a, b, 1), (b, a, -1)):
        if isinstance(x, float) and math.isinf(x):
            return 0 if x == y else sign if x > 0 else -sign
    x, y = Fraction(a), Fraction(b)
    return (x > y) - (x < y)


def real(path: n.Path, event: Mapping[str, Any]) -> float | None:
    kind, found = value(path, event)
    if kind not in ("int", "float"):
        return None
    return float(found) if abs(found) < 10**300 else math.copysign(math.inf, found) if kind == "int" else found


def text_of(given: Any, event: Mapping[str, Any]) -> str | None:
    if isinstance(given, n.Literal):
        return str(given.value)
    kind, found = value(given, event)
    return found if kind == "string" else None


# Text --------------------------------------------------------------------------


def like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    head = pattern[0]
    if head == "%":
        return any(like(text[i:], pattern[1:]) for i in range(len(text) + 1))
    if not text:
        return False
    if head == "\\" and len(pattern) > 1:
        return text[0] == pattern[1] and like(text[1:], pattern[2:])
    return (head == "_" or text[0] == head) and like(text[1:], pattern[1:])


def regex(text: str, pattern: str) -> Truth:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.fullmatch(pattern, text, options) is not None
    except re2.error:
        return UNKNOWN


def edits(one: str, other: str) -> int:
    previous = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (a != b)))
        previous = row
    return previous[-1]


def near(text: str, node: n.StrLike) -> bool:
    wanted = str(lit(node.text))
    distance = edits(text, wanted)
    if node.bound is None:
        return distance <= (0 if len(wanted) <= 2 else 1 if len(wanted) <= 5 else 2)
    if node.bound.unit == "EDITS":
        return distance <= int(lit(node.bound.number))
    longest = max(len(text), len(wanted))
    return (1 - distance / longest if longest else 1.0) >= num(node.bound.number) - 1e-9


# Shapes and areas --------------------------------------------------------------


def membership(shape: n.FuzzyShape, x: float) -> float:
    p = [num(each) for each in shape.numbers]
    match shape.name:
        case "TRIANGLE":
            return line(x, p[0], p[1], p[1], p[2])
        case "TRAPEZOID":
            return line(x, *p)
        case "RECTANGLE":
            return 1.0 if p[0] <= x <= p[1] else 0.0
        case "BELL":
            try:
                return float(1 / (1 + abs((x - p[2]) / p[0]) ** (2 * p[1])))
            except OverflowError:
                return 0.0
        case "GAUSS":
            return math.exp(-((x - p[0]) ** 2) / (2 * p[1] ** 2)) if abs(x) < 1e150 else 0.0
        case "S":
            return s_curve(x, *p)
        case "Z":
            return 1.0 if x <= p[0] else 1 - s_curve(x, *p)
    raise AssertionError(shape)


def line(x: float, a: float, b: float, c: float, d: float) -> float:
    if b <= x <= c:
        return 1.0
    if a < x < b:
        return (x - a) / (b - a)
    if c < x < d:
        return (d - x) / (d - c)
    return 0.0


def s_curve(x: float, a: float, b: float) -> float:
    if x >= b:
        return 1.0
    if x <= a:
        return 0.0
    if x <= (a + b) / 2:
        return 2 * ((x - a) / (b - a)) ** 2
    return 1 - 2 * ((x - b) / (b - a)) ** 2


def inside(area: n.Area, x: float, y: float) -> bool:
    p = [num(each) for each in area.numbers]
    if not (-180 <= x <= 180 and -90 <= y <= 90):
        return False
    if area.name == "BOX":
        west, south, east, north = p
        return south <= y <= north and (west <= x <= east if west <= east else x >= west or x <= east)
    if area.name == "CIRCLE":
        return great_circle(x, y, p[0], p[1]) <= p[2] * (1 + 1e-9)
    return winding(list(zip(p[::2], p[1::2], strict=True)), x, y)


def great_circle(x1: float, y1: float, x2: float, y2: float) -> float:
    x1, y1, x2, y2 = map(math.radians, (x1, y1, x2, y2))
    h = math.sin((y2 - y1) / 2) ** 2 + math.cos(y1) * math.cos(y2) * math.sin((x2 - x1) / 2) ** 2
    return 2 * 6_371_008.8 * math.asin(min(1, math.sqrt(h)))


def winding(corners: list[tuple[float, float]], x: float, y: float) -> bool:
    """Even-odd in exact fractions; a point on an edge is inside."""
    px, py = Fraction(x), Fraction(y)
    odd = False
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        x1, y1, x2, y2 = map(Fraction, (ax, ay, bx, by))
        cross = (x2 - x1) * (py - y1) - (px - x1) * (y2 - y1)
        if cross == 0 and min(x1, x2) <= px <= max(x1, x2) and min(y1, y2) <= py <= max(y1, y2):
            return True
        if (y1 > py) != (y2 > py) and px < x1 + (py - y1) * (x2 - x1) / (y2 - y1):
            odd = not odd
    return odd
