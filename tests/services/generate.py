"""Generates random expressions, and events for them, from one `random.Random`."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from tidegate.model import Schema
from tidegate.services.expressions.functions import FUNCTIONS, OPERATORS

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
    name = random.choice([name for name in FUNCTIONS if name not in OPERATORS])
    overload = random.choice(FUNCTIONS[name])
    takes = overload.takes * random.randint(1, 3) if overload.takes[0].endswith("*") else overload.takes
    arguments = [
        str(random.randint(0, 5)) if kind in ("digits", "place") else expression(random, depth - 1) for kind in takes
    ]
    return f"{name}({', '.join(arguments)})"


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
