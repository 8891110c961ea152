"""Generates random expressions, and events for them, from one `random.Random`."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from tidegate.expressions.functions import FUNCTIONS, OPERATORS
from tidegate.model import Schema

SCHEMA = Schema(
    {
        "flag": "bool",
        "tiny": "int8?",
        "count": "int32",
        "big": "int64?",
        "huge": "uint64",
        "small": "float32",
        "speed": "float64?",
        "letter": "char",
        "vid": "string?",
        "kind": "enum(CAR, BUS)",
        "time": "timestamp?",
        "pos": {"x": "float64", "y y": "int16?"},
        "wheels": "int32[4]",
        "`odd`": "string",
    }
)

PATHS = [*("flag", "tiny", "count", "big", "huge", "small", "speed", "letter", "vid", "kind", "time"), "pos.x"]
PATHS += ['pos."y y"', "wheels[0]", "wheels[3]", '"`odd`"']
TEXTS = ["", "a", "B17", "it's", "back\\slash", "${env:HOME}", "ß", "日本🚕", "  x ", "12", "-3.5", "true", "\n"]
TIMES = ["1970-01-01T00:00:00Z", "2026-11-15T12:34:56.789012Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
INTEGERS = [0, 1, -1, 2, 7, -8, 100, 127, -128]
WIDE = [*INTEGERS, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 1_700_000_000]
FLOATS = [0.0, -0.0, 1.0, -1.5, 2.675, 0.1, 1e16, 1e19, -1e19, 1e308, 5e-324, 9.2e18, 12345.678]
LITERALS = {
    "digits": ["0", "2", "5"],
    "place": ["0", "1", "3", "-2"],
    "length": ["1", "6", "12"],
    "zone": ["'Europe/Berlin'", "'Asia/Kathmandu'", "'America/New_York'", "'UTC'"],
    "pattern": ["'B%'"],
}
PATTERNS = ["'%'", "'B__'", "'B%'", "'%s'", "'_%1%'", "''", r"'back\\%'", "'it''s'", r"'\%'", "'日%'"]
ALIKE = {
    "number": ["speed", "big", "count", "huge", "small", "7", "0.1", "pos.x", "null"],
    "text": ["vid", "letter", "'B17'", "'a'", "null", '"`odd`"'],
    "time": ["time", "'1970-01-01T00:00:00Z'", "null"],
    "kind": ["kind", "'BUS'"],
    "flag": ["flag", "true", "null"],
}


def expression(random: Random, depth: int = 3) -> str:
    """Draw an expression that parses; it may have type errors."""
    roll = random.random()
    if depth == 0 or roll < 0.3:
        return random.choice(PATHS) if random.random() < 0.7 else literal(random)
    if roll < 0.65:
        left, right = expression(random, depth - 1), expression(random, depth - 1)
        return f"({left} {random.choice('+-*/%')} {right})"
    if roll < 0.7:
        return f"-{expression(random, depth - 1)}"
    if roll < 0.8:
        return f"({condition(random, depth - 1)})"
    if roll < 0.84:
        return choice(random, depth - 1)
    name = random.choice([name for name in FUNCTIONS if name not in OPERATORS])
    overload = random.choice(FUNCTIONS[name])
    takes = overload.takes * random.randint(1, 3) if overload.takes[0].endswith("*") else overload.takes
    arguments = [random.choice(LITERALS[kind]) if kind in LITERALS else expression(random, depth - 1) for kind in takes]
    return f"{name}({', '.join(arguments)})"


def condition(random: Random, depth: int = 2) -> str:
    """Draw a condition; it may have type errors."""
    if depth <= 0 or random.random() < 0.5:
        return comparison(random, max(depth - 1, 0))
    left, right = condition(random, depth - 1), condition(random, depth - 1)
    return random.choice([f"{left} AND {right}", f"({left} or {right})", f"NOT {left}", f"NOT ({left} OR {right})"])


def comparison(random: Random, depth: int) -> str:
    """Draw a comparison of two values that are likely to have one type."""
    kind = random.choice(list(ALIKE))
    one, other, third = (random.choice(ALIKE[kind]) for _ in range(3))
    if depth > 0 and kind == "number":
        one = expression(random, depth)
    match random.randrange(6):
        case 0:
            return f"{one} {random.choice(['', 'NOT '])}IN ({other}, {third})"
        case 1:
            return f"{one} IS {random.choice(['', 'not '])}NULL"
        case 2 if kind == "text":
            return f"{one} LIKE {random.choice(PATTERNS)}"
        case 3:
            return f"{one} BETWEEN {other} AND {third}"
    return f"{one} {random.choice(['=', '<>', '!=', '<', '<=', '>', '>='])} {other}"


def choice(random: Random, depth: int) -> str:
    """Draw a CASE or an if whose values are likely to have one type."""
    values = ALIKE[random.choice(list(ALIKE))]
    if random.random() < 0.4:
        return f"if({condition(random, depth)}, {random.choice(values)}, {random.choice(values)})"
    whens = " ".join(
        f"WHEN {condition(random, depth)} THEN {random.choice(values)}" for _ in range(random.randint(1, 2))
    )
    return f"CASE {whens} {random.choice(['', f'ELSE {random.choice(values)} '])}END"


def literal(random: Random) -> str:
    match random.randrange(4):
        case 0:
            return str(random.choice(WIDE))
        case 1:
            return repr(random.choice(FLOATS))
        case 2:
            return "'" + random.choice(TEXTS).replace("'", "''") + "'"
    return random.choice(["true", "false", "null"])


def event(random: Random) -> dict[str, Any]:
    """Draw an event of `SCHEMA`."""
    number = random.choice(FLOATS)
    values: dict[str, Any] = {
        "flag": random.random() < 0.5,
        "tiny": random.choice([None, *INTEGERS]),
        "count": random.choice([*INTEGERS, 2**31 - 1, -(2**31)]),
        "big": random.choice([None, *WIDE]),
        "huge": random.choice([0, 1, 2**64 - 1, 2**63]),
        "small": random.choice([number for number in FLOATS if abs(number) < 1e38]),
        "speed": random.choice([None, math.nan, math.inf, -math.inf, number, number]),
        "letter": random.choice(["a", "ä", "🚕"]),
        "vid": random.choice([None, *TEXTS]),
        "kind": random.choice(["CAR", "BUS"]),
        "time": random.choice([None, *TIMES]),
        "pos": {"x": number, "y y": random.choice([None, 3])},
        "wheels": [random.choice(INTEGERS) for _ in range(random.randint(0, 4))],
        "`odd`": random.choice(TEXTS),
    }
    return values
