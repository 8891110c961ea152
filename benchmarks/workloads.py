"""Named, seeded workloads. They never change, so that results compare over years."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate import Schema

TEN_PREDICATES = (
    "speed > 60 AND speed <= 120.5 AND vid = 'BJ00017' AND line LIKE 'B%' AND longitude BETWEEN 116.2 AND 116.6 "
    "AND satellites <> 0 AND lane IN (1, 2, 3) AND heading < 270 AND latitude >= 39.8 AND moving = TRUE"
)
"""One conjunction of ten predicates, one of every common kind."""

TWO_PREDICATES = "speed > 60 AND vid = 'BJ00017'"

FIVE_NUMERIC = "a > 10 AND b < 90 AND c >= 20 AND d <= 80 AND e > 30"
"""Five ordered predicates over five float64 columns of `numeric_batch`: about 0.35 of the rows."""

LONG = "x=1 OR " * 2_300 + "x=1"
"""A plain text of the maximum length."""

HOSTILE = [
    "(" * 20_000,
    "(" * 256 + "x=1" + ")" * 256,
    "(" * 257 + "x=1" + ")" * 257,
    "NOT " * 4_000 + "x=1",
    LONG,
    "x=1 AND " * 2_000 + "x=1",
    "x<>1 AND " * 1_800 + "x<>1",
    " AND ".join(f"x<>{n}" for n in range(1_000)),
    " AND ".join(f"(a=1 OR b={n})" for n in range(800)),
    " OR ".join(f"(a=1 AND b={n})" for n in range(800)),
    "x IN (" + ",".join(map(str, range(3_500))) + ")",
    "x IN (" + "1," * 8_000 + "1)",
    "x IN (" + ",".join(map(str, range(0, 6_000, 2))) + ") AND x > 3",
    "x < 1" + "0" * 400 + " AND x < 2" + "0" * 400,
    "x > 1.5 AND x < 2" + "0" * 400,
    "x = " + "9" * 16_000,
    "x = 0x" + "f" * 16_000,
    "x = " + "9" * 5_000 + ".5",
    "x = '" + "a" * 16_000 + "'",
    "x = '" + "''" * 8_000 + "'",
    "x = '" + "''" * 8_000,
    "x LIKE '" + "%a" * 8_000 + "'",
    "x LIKE '" + "%_" * 8_000 + "'",
    "x LIKE '" + "%_a" * 5_000 + "'",
    "x LIKE '" + "_" * 16_000 + "'",
    "x MATCH '" + "(a*)*" * 3_000 + "b'",
    "x MATCH '" + "(" * 900 + ")" * 900 + "'",
    "x MATCH '((((a{100}){100}){100}){100})'",
    "x MATCH '" + "a?" * 4_000 + "a" * 4_000 + "'",
    "x MATCH '(?i)" + "[^a]" * 3_000 + "'",
    "x MATCH '\\\\pL{900}'",
    "a" + ".a" * 8_000 + " = 1",
    "a" + "[1]" * 5_000 + " = 1",
    "a[" + "9" * 10_000 + "] = 1",
    '"' + '""' * 8_000 + '" = 1',
    "FUZZY(" + ", ".join(["x IS S(1, 2)"] * 1_100) + ")",
    "(x, y) INSIDE POLYGON(" + ", ".join(["1 1"] * 4_000) + ")",
    "x STRLIKE '" + "ab" * 8_000 + "' WITHIN 9999",
    "~" * 16_000,
    "%0 " * 5_000,
    "x = 1 WITH THEME (" + "'a', " * 3_000 + "'a')",
    "\ud800",
    "x = '\udfff'",
    " " * 16_000,
    "x" * 17_000,
    "é" * 9_000,
    "(" + "a AND (" * 2_000,
    "(a=1 AND (b=1 OR " * 120 + "c=1" + "))" * 120,
]
"""Hostile texts that are slow, deep or large; each gives a filter or an error."""

VEHICLE = Schema(
    {
        "speed": "float64",
        "vid": "string",
        "line": "string",
        "longitude": "float64",
        "latitude": "float64",
        "satellites": "int32",
        "lane": "int8",
        "heading": "float64",
        "moving": "bool",
    }
)

EVENT: dict[str, Any] = {
    "speed": 61.5,
    "vid": "BJ00017",
    "line": "B7",
    "longitude": 116.4,
    "latitude": 39.9,
    "satellites": 9,
    "lane": 2,
    "heading": 120.0,
    "moving": True,
}


def numeric_batch(rows: int, seed: int = 1) -> pa.RecordBatch:
    """Five float64 columns, uniform over 0 to 100."""
    rng = np.random.default_rng(seed)
    return pa.RecordBatch.from_pydict({name: rng.uniform(0, 100, rows) for name in "abcde"})


SIMPLE = {
    "no": None,
    "simple": "key = 10",
    "complex": "key >= 10 AND key <= 20 AND id > 0 AND load < 100 AND on = TRUE",
}
NESTED = {
    "no": None,
    "simple": "head.key = 10",
    "complex": "head.key >= 10 AND head.key <= 20 AND body.parts[1].id > 0 AND body.load[2] < 100 AND head.on = TRUE",
}
"""The paper's cases: the complex rule has five times the nodes of the simple one."""


def messages(nested: bool, count: int = 1_000, seed: int = 2) -> list[bytes]:
    """Return JSON messages, flat or nested; one in ten has the key of the simple rule."""
    import json

    rng = np.random.default_rng(seed)
    out = []
    for n in range(count):
        key, load = int(rng.integers(10, 20)), [float(x) for x in rng.uniform(0, 120, 3)]
        if nested:
            head = {"key": key, "on": True, "name": f"station {n}"}
            event: dict[str, Any] = {"head": head, "body": {"parts": [{"id": n}, {"id": n + 1}], "load": load}}
        else:
            event = {"key": key, "id": n + 1, "load": load[2], "on": True, "name": f"station {n}"}
        out.append(json.dumps(event).encode())
    return out
