"""Positions of buses: invented ones by a seed, or those of a real day."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

COLUMNS = ["vehicle", "route", "speed", "lon", "lat", "time"]
"""The attributes of the stream `positions`."""

BEGIN = pd.Timestamp("2026-03-02T06:00:00Z")
CENTRE_LON, CENTRE_LAT = -97.74, 30.27
METRES_PER_DEGREE = 111_195
_CAPMETRICS = {
    "vehicle_id": "vehicle",
    "route_id": "route",
    "speed": "speed",
    "longitude": "lon",
    "latitude": "lat",
    "timestamp": "time",
}


def real_day(path: Path) -> pd.DataFrame:
    """Read a CSV file of CapMetrics: one row per report, in the order of time."""
    found = pd.read_csv(path, usecols=list(_CAPMETRICS), dtype={"vehicle_id": str, "route_id": str})
    found = found.rename(columns=_CAPMETRICS)[COLUMNS]
    found["time"] = pd.to_datetime(found["time"], utc=True)
    return found.sort_values("time", kind="stable").drop_duplicates(["vehicle", "time"], ignore_index=True)


def invented(seed: int, *, routes: int = 6, buses: int = 5, minutes: int = 120) -> pd.DataFrame:
    """Move buses up and down straight routes; some stop, race, fall silent or send nonsense.

    The result is a function of the arguments, in the order of time.
    """
    rows = [
        row
        for route in range(routes)
        for bus in range(buses)
        for row in _reports(random.Random(f"{seed}/{route}/{bus}"), route, bus, minutes)
    ]
    found = pd.DataFrame(rows, columns=COLUMNS)
    return found.sort_values(["time", "vehicle"], ignore_index=True).drop_duplicates(
        ["vehicle", "time"], ignore_index=True
    )


def _reports(rng: random.Random, route: int, bus: int, minutes: int) -> Iterator[tuple[object, ...]]:
    """The reports of one bus, every 20 to 40 seconds."""
    angle, length = 0.5 * route, 4_000 + 500 * route
    way, heading, second = rng.uniform(0, length), rng.choice((-1, 1)), rng.uniform(0, 30)
    pause = 0.0
    while second < minutes * 60:
        mph = 0.0 if pause > 0 else max(0.0, rng.gauss(14 + route, 4))
        if rng.random() < 0.004:
            mph += 45  # an express, or a fault of the device
        lon = CENTRE_LON + way * math.cos(angle) / METRES_PER_DEGREE / math.cos(math.radians(CENTRE_LAT))
        lat = CENTRE_LAT + way * math.sin(angle) / METRES_PER_DEGREE
        kind = rng.random()
        if kind < 0.01:
            lon = lat = 0.0  # no satellite
        elif kind < 0.015:
            mph = 655.35  # no speed
        at = BEGIN + pd.Timedelta(milliseconds=round(second * 1000))
        yield f"{route}{bus:02}", str(100 + route), mph, lon, lat, at
        step = rng.uniform(20, 40)
        if rng.random() < 0.005:
            step += rng.uniform(120, 1200)  # silent
        second += step
        way += heading * (0.0 if pause > 0 else min(mph, 60) * 0.447 * step)
        if not 0 <= way <= length:
            way, heading = min(max(way, 0.0), length), -heading
            pause = rng.choice((0, 120, 400))
        pause = max(0.0, pause - step) if pause > 0 or rng.random() > 0.01 else rng.uniform(60, 600)
