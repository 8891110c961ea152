"""A fleet of taxis around Beijing: the demo's events, seeded and endless."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.model import Enum, Schema

SCHEMA = Schema(
    {
        "vid": "string",
        "kind": Enum("TAXI", "BUS", "TRUCK"),
        "time": "timestamp",
        "longitude": "float64",
        "latitude": "float64",
        "speed": "float64?",
        "satellites": "int32",
    },
    constraints={"longitude": "BETWEEN 115.25 AND 117.30", "latitude": "BETWEEN 39.26 AND 41.03"},
    terms={"speed": {"slow": "TRAPEZOID(0, 0, 15, 30)", "rushing": "S(70, 100)"}},
    event_time="time",
)

_CENTRE = 116.397, 39.908
_START = datetime(2026, 1, 1, tzinfo=UTC)


def batches(rows: int, vehicles: int = 2_000, seed: int = 7) -> Iterator[pa.RecordBatch]:
    """Drive the fleet: each batch is `rows` positions, a tenth of a second after the last."""
    rng = np.random.default_rng(seed)
    place = np.column_stack([rng.normal(_CENTRE[0], 0.12, vehicles), rng.normal(_CENTRE[1], 0.09, vehicles)])
    heading = rng.uniform(0, 2 * np.pi, vehicles)
    speed = rng.gamma(4.0, 10.0, vehicles)
    names = pa.array([f"{'BJ' if n % 5 else 'TJ'}{n:05d}" for n in range(vehicles)])
    kinds = pa.array(rng.choice(["TAXI", "BUS", "TRUCK"], vehicles, p=[0.7, 0.2, 0.1]))
    moment = _START
    while True:
        who = rng.integers(0, vehicles, rows)
        speed[who] = np.clip(speed[who] + rng.normal(0, 4, rows), 0, 140)
        heading[who] += rng.normal(0, 0.3, rows)
        step = speed[who] / 3600 / 111 * 10
        place[who, 0] += step * np.cos(heading[who])
        place[who, 1] += step * np.sin(heading[who])
        np.clip(place, [115.26, 39.27], [117.29, 41.02], out=place)
        yield _batch(rng, who, names, kinds, place, speed, moment)
        moment += timedelta(milliseconds=100)


def _batch(
    rng: np.random.Generator, who: Any, names: pa.Array, kinds: pa.Array, place: Any, speed: Any, moment: datetime
) -> pa.RecordBatch:
    no_fix = rng.random(len(who)) < 0.02  # a receiver without a fix reports no speed
    micros = int(moment.timestamp() * 1e6) + np.sort(rng.integers(0, 100_000, len(who)))
    columns = [
        names.take(pa.array(who)),
        kinds.take(pa.array(who)),
        pa.array(micros, type=pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array(place[who, 0]),
        pa.array(place[who, 1]),
        pa.array(speed[who], mask=no_fix),
        pa.array(rng.integers(3, 14, len(who)).astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.to_arrow())
