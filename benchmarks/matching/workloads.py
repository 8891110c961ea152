"""GPS events and filters over them, named and seeded. They never change, so that results compare over years.

A vehicle reports time, place, speed, direction, satellites in view, road site and
its own id. Places lie in twelve clusters, a few vehicles and clusters report most.
A filter is a window in the quantiles of some attributes, as wide as its workload's
match rate asks for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate import Filter, Schema

SCHEMA = Schema(
    {
        "time": "timestamp",
        "longitude": "float64",
        "latitude": "float64",
        "speed": "float64",
        "direction": "int32",
        "satellites": "int32",
        "site": "int32",
        "vid": "string",
    }
)
RANGED = ("time", "longitude", "latitude", "speed", "direction", "satellites", "site")
"""The ordered attributes, which windows are drawn from; `vid` has names."""
SATELLITES, SITE = RANGED.index("satellites"), RANGED.index("site")
FLOATS = ("longitude", "latitude", "speed")
SHAPED = RANGED[1:]
"""The attributes for fuzzy shapes: numbers, not times."""

VEHICLES, SITES, CLUSTERS = 5_000, 500, 12
MIDNIGHT = 1_767_571_200
"""2026-01-05T00:00:00Z. Times are whole seconds, so that a peer without timestamps gets the same values."""

CHUNK = 10_000
"""Filters are drawn in chunks, each with its own seed, so that a million are never in memory at once."""
SAMPLED_FILTERS, SAMPLED_EVENTS = 500, 5_000
"""The number of events that match rates are calibrated on."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Events as numbers: `RANGED` row by row (time in seconds), and the number of each vehicle."""

    ranged: Any
    vehicle: Any

    def first(self, count: int) -> Columns:
        """Return the first events."""
        return Columns(self.ranged[:, :count], self.vehicle[:count])

    def __len__(self) -> int:
        return len(self.vehicle)


def columns(count: int, seed: int = 1) -> Columns:
    """Draw events."""
    rng = np.random.default_rng(seed)
    # The clusters do not depend on the seed: other events happen in the same places.
    city = np.random.default_rng(7)
    centres, weights = city.normal(size=(CLUSTERS, 2)) * 0.15, city.dirichlet(np.ones(CLUSTERS))
    cluster = rng.choice(CLUSTERS, count, p=weights)
    return Columns(
        np.array(
            [
                MIDNIGHT + rng.integers(0, 86_400, count),
                np.round(116.4 + centres[cluster, 0] + rng.normal(size=count) * 0.05, 6),
                np.round(39.9 + centres[cluster, 1] + rng.normal(size=count) * 0.05, 6),
                np.round(rng.gamma(2.0, 18.0, count), 1),
                rng.integers(0, 360, count),
                np.clip(np.round(rng.normal(11, 4, count)), 0, 24),
                rng.integers(0, SITES, count),
            ]
        ),
        _vehicles(rng, count),
    )


def _vehicles(rng: np.random.Generator, count: int) -> Any:
    return rng.zipf(1.3, count) % VEHICLES


def vid(vehicle: int) -> str:
    """Return a vehicle's id."""
    return f"V{vehicle:05d}"


def moment(second: float) -> str:
    """Return a second in ISO 8601."""
    return f"{np.datetime64(int(second), 's')}Z"


def batch(events: Columns) -> pa.RecordBatch:
    """Return events as an Arrow record batch of `SCHEMA`."""
    arrays = [
        pa.array((values * 1_000_000).astype("int64")).cast(pa.timestamp("us", "UTC"))
        if name == "time"
        else pa.array(values if name in FLOATS else values.astype("int32"))
        for name, values in zip(RANGED, events.ranged, strict=True)
    ]
    return pa.RecordBatch.from_arrays([*arrays, pa.array([vid(v) for v in events.vehicle])], [*RANGED, "vid"])


def dicts(events: Columns, time: Callable[[float], Any] = moment) -> list[dict[str, Any]]:
    """Return events as decoded from JSON; `time` formats a second."""
    rows = []
    for values, vehicle in zip(events.ranged.T.tolist(), events.vehicle.tolist(), strict=True):
        row = {n: v if n in FLOATS else int(v) for n, v in zip(RANGED, values, strict=True)}
        rows.append(row | {"time": time(values[0]), "vid": vid(vehicle)})
    return rows


def ndjson(events: Columns) -> bytes:
    """Return events as JSON, one per line."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in dicts(events))


@cache
def _quantiles() -> Any:
    return np.sort(columns(200_000, seed=99).ranged, axis=1)


@dataclass(frozen=True, slots=True)
class Boxes:
    """Filters as numbers: from `low` to `high` per attribute, NaN without a predicate."""

    low: Any
    high: Any
    vehicle: Any
    """The number that `vid` has to equal, or -1."""
    pattern: list[str]
    """The pattern of `vid`, or empty."""

    def __len__(self) -> int:
        return len(self.vehicle)

    def rate(self, events: Columns) -> float:
        """Return the share of all pairs of event and filter that match, without patterns."""
        hits = np.ones((len(self), len(events)), dtype=bool)
        for values, low, high in zip(events.ranged, self.low.T, self.high.T, strict=True):
            asked = np.flatnonzero(~np.isnan(low))
            hits[asked] &= (values >= low[asked, None]) & (values <= high[asked, None])
        asked = np.flatnonzero(self.vehicle >= 0)
        hits[asked] &= events.vehicle == self.vehicle[asked, None]
        return float(hits.mean())

    def text(self, row: int, split: int = 0) -> str:
        """Return one filter; the first `split` windows are written as two comparisons each."""
        parts = []
        for name, low, high in zip(RANGED, self.low[row].tolist(), self.high[row].tolist(), strict=True):
            if low != low:
                continue
            first, last = _literal(name, low), _literal(name, high)
            if split > 0:
                parts.append(f"{name} >= {first} AND {name} <= {last}")
                split -= 1
            else:
                parts.append(f"{name} = {first}" if low == high else f"{name} BETWEEN {first} AND {last}")
        if self.vehicle[row] >= 0:
            parts.append(f"vid = '{vid(self.vehicle[row])}'")
        if self.pattern[row]:
            parts.append(f"vid {self.pattern[row]}")
        return " AND ".join(parts)

    def rule(self, row: int) -> dict[str, Any]:
        """Return one filter as a rule of event-ruler, with the time in seconds."""
        rule: dict[str, Any] = {}
        for name, low, high in zip(RANGED, self.low[row].tolist(), self.high[row].tolist(), strict=True):
            if low == low:
                first, last = (low, high) if name in FLOATS else (int(low), int(high))
                rule[name] = [{"numeric": ["=", first] if low == high else [">=", first, "<=", last]}]
        if self.vehicle[row] >= 0:
            rule["vid"] = [vid(self.vehicle[row])]
        return rule

    def event(self, row: int) -> dict[str, Any]:
        """Return an event that a filter without a pattern matches."""
        base = columns(1, seed=3)
        low = self.low[row]
        ranged = np.where(np.isnan(low), base.ranged[:, 0], low)[:, None]
        vehicle = base.vehicle if self.vehicle[row] < 0 else self.vehicle[row : row + 1]
        return dicts(Columns(ranged, vehicle))[0]


def _literal(name: str, value: float) -> str:
    if name == "time":
        return f"'{moment(value)}'"
    return repr(value) if name in FLOATS else str(int(value))


@dataclass(frozen=True, slots=True)
class Workload:
    """Filters of one kind: their number, number of predicates and match rate."""

    name: str
    count: int
    predicates: int = 6
    rate: float = 0.01
    """The share of events that the average filter matches."""
    equal: float = 0.0
    """The share of filters that name one vehicle (five of eight) or one site (three of eight)."""
    like: float = 0.0
    """The share of filters that have a LIKE or a STRLIKE on `vid`, half of them each."""
    seed: int = 2

    def texts(self, first: int = 0, count: int | None = None) -> Iterator[str]:
        """Return the filters as text; further ones follow after the last, for later additions."""
        split = max(0, self.predicates - len(RANGED))
        for boxes, row in self.places(first, count):
            yield boxes.text(row, split)

    def filters(self, first: int = 0, count: int | None = None) -> list[Filter]:
        """Return the filters, typed by `SCHEMA`."""
        return [Filter(text, SCHEMA) for text in self.texts(first, count)]

    def places(self, first: int = 0, count: int | None = None) -> Iterator[tuple[Boxes, int]]:
        """Yield the filters, each as a row of the boxes of its chunk."""
        last = first + (self.count - first if count is None else count)
        width = calibrated(self)
        for chunk in range(first // CHUNK, -(-last // CHUNK)):
            start = chunk * CHUNK
            boxes = _boxes(self, chunk, width)
            for row in range(max(first - start, 0), min(last - start, CHUNK)):
                yield boxes, row


def _boxes(workload: Workload, chunk: int, width: float, count: int = CHUNK) -> Boxes:
    """Draw a chunk of filters, with the same random draws for every width, so that a rate can be searched for."""
    rng = np.random.default_rng([workload.seed, chunk])
    used = min(workload.predicates, len(RANGED))
    order = rng.random((CHUNK, len(RANGED)))
    kind, liked = rng.random(CHUNK), rng.random(CHUNK)
    jitter, centre = np.exp(rng.normal(size=(CHUNK, used)) * 0.2), rng.random((CHUNK, used))
    site, vehicle = rng.integers(0, SITES, CHUNK), _vehicles(rng, CHUNK)

    has_vid = kind < workload.equal * 5 / 8
    has_site = (kind < workload.equal) & ~has_vid
    patterned = liked < workload.like
    order[has_site, SITE] = 2  # the last position, which is free for the equality
    if workload.predicates < 3:
        order[:, SATELLITES] = 3  # a tenth of all events have eleven: too coarse for a narrow window
    chosen = np.argsort(order, axis=1)[:, :used]
    windows = np.clip(width * jitter, 1e-4, 0.98)
    quantiles = _quantiles()
    top = quantiles.shape[1] - 1
    begin = centre * (1 - windows)
    low, high = (np.full((CHUNK, len(RANGED)), np.nan) for _ in range(2))
    rows = np.arange(CHUNK)
    for slot in range(used):
        attribute = chosen[:, slot]
        last = slot == used - 1
        filled = ~(has_vid | has_site | patterned) if last else np.ones(CHUNK, dtype=bool)
        at = rows[filled], attribute[filled]
        low[at] = quantiles[at[1], (begin[filled, slot] * top).astype(int)]
        high[at] = quantiles[at[1], ((begin + windows)[filled, slot] * top).astype(int)]
    low[has_site, SITE] = high[has_site, SITE] = site[has_site]
    patterns = [_pattern(v, s) if p else "" for v, s, p in zip(vehicle, site, patterned, strict=True)]
    return Boxes(low[:count], high[:count], np.where(has_vid, vehicle, -1)[:count], patterns[:count])


def _pattern(vehicle: int, number: int) -> str:
    """Half are STRLIKE; of the LIKE patterns, half are anchored at the start and half at the end."""
    text = vid(vehicle)
    if number % 2:
        return f"STRLIKE '{text}' WITHIN 1 EDITS"
    return f"LIKE '{text[:4]}%'" if number % 4 else f"LIKE '%{text[-1]}'"


@cache
def calibrated(workload: Workload) -> float:
    """Return the width of the windows that gives the match rate of a workload."""
    sample = columns(SAMPLED_EVENTS, seed=98)
    alike = replace(workload, like=0.0)
    least, most = 1e-4, 1.0
    for _ in range(12):
        width = math.sqrt(least * most)
        # Always uses the same number of filters, so that a smaller workload is a prefix of a larger one.
        if _boxes(alike, 0, width, SAMPLED_FILTERS).rate(sample) > workload.rate:
            most = width
        else:
            least = width
    return math.sqrt(least * most)


TEN_THOUSAND = Workload("10,000 filters", 10_000)
LIKES = Workload("10,000 filters, one in ten with LIKE or STRLIKE", 10_000, like=0.1)
HUNDRED_THOUSAND = Workload("100,000 filters", 100_000, rate=0.001)
MILLION = Workload("1,000,000 filters, 80 % with an equality", 1_000_000, rate=0.0001, equal=0.8)


@dataclass(frozen=True, slots=True)
class Groups:
    """Fuzzy groups of three shapes, and corresponding conjunctions of three windows."""

    count: int
    rate: float = 0.01
    seed: int = 4

    def texts(self) -> list[str]:
        """Return the groups, with the default thresholds."""
        return [_group(*group) for group in self._windows(_calibrated_groups(self))]

    def filters(self) -> list[Filter]:
        """Return the groups, typed by `SCHEMA`."""
        return [Filter(text, SCHEMA) for text in self.texts()]

    def crisp(self) -> list[Filter]:
        """Return as many conjunctions: the middle half of each shape's window, where its degree is highest."""
        filters = []
        for names, low, high, _ in self._windows(_calibrated_groups(self)):
            quarter = (high - low) / 4
            parts = [
                f"{n} BETWEEN {a:.6f} AND {b:.6f}" for n, a, b in zip(names, low + quarter, high - quarter, strict=True)
            ]
            filters.append(Filter(" AND ".join(parts), SCHEMA))
        return filters

    def _windows(self, width: float, count: int | None = None) -> Iterator[tuple[list[str], Any, Any, Any]]:
        rng = np.random.default_rng(self.seed)
        quantiles = _quantiles()
        top = quantiles.shape[1] - 1
        for _ in range(count or self.count):
            chosen = rng.choice(len(SHAPED), 3, replace=False) + 1
            begin = rng.random(3) * (1 - width)
            low = quantiles[chosen, (begin * top).astype(int)]
            high = quantiles[chosen, ((begin + width) * top).astype(int)]
            yield [RANGED[n] for n in chosen], low, np.maximum(high, low + 0.01), rng.permutation(len(SHAPES))[:3]


SHAPES: tuple[Callable[[float, float], str], ...] = (
    lambda a, b: f"TRAPEZOID({a:.6f}, {a + (b - a) / 4:.6f}, {b - (b - a) / 4:.6f}, {b:.6f})",
    lambda a, b: f"TRIANGLE({a:.6f}, {(a + b) / 2:.6f}, {b:.6f})",
    lambda a, b: f"GAUSS({(a + b) / 2:.6f}, {(b - a) / 4:.6f})",
    lambda a, b: f"BELL({(b - a) / 4:.6f}, 2, {(a + b) / 2:.6f})",
)
"""Shapes over a window, each with its highest degree in the middle."""


def _group(names: list[str], low: Any, high: Any, kinds: Any) -> str:
    items = [f"{n} IS {SHAPES[k](a, b)}" for n, a, b, k in zip(names, low, high, kinds, strict=True)]
    return f"FUZZY({', '.join(items)})"


@cache
def _calibrated_groups(groups: Groups) -> float:
    sample = batch(columns(2_000, seed=98))
    least, most = 0.01, 0.99
    for _ in range(8):
        width = (least + most) / 2
        masks = [Filter(_group(*g), SCHEMA).mask(sample) for g in groups._windows(width, 60)]
        if float(np.mean(masks)) > groups.rate:
            most = width
        else:
            least = width
    return (least + most) / 2


FUZZY = Groups(1_000)
