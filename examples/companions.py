"""Vehicles that travel together: the SDaaS paper's analysis of number plates, as a custom operator.

    services:
      companions:
        from: anpr
        pipeline:
          - custom:
              function: examples.companions:companions
              schema: {a: string, b: string, cameras: int32, first: timestamp, last: timestamp}
              window: {length: 10m, slide: 1m}
              options: {together: 3, within_s: 60}

It is given all sightings of a window at once. What it costs grows with the
pairs of vehicles that pass a camera within `within_s`: keep that small where
traffic is dense.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.model import Schema, timestamps
from tidegate.model.ids import window_id

ATTRIBUTES = Schema(
    {"a": "string", "b": "string", "cameras": "int32", "first": "timestamp", "last": "timestamp"}, event_time="last"
)

_BATCH = 10_000

Numbers = npt.NDArray[np.int64]


def companions(
    batches: Iterable[pa.RecordBatch], *, together: int = 3, within_s: float = 60
) -> Iterator[pa.RecordBatch]:
    """Find the pairs of vehicles that at least `together` cameras saw within `within_s` of each other.

    `a` is the lesser of the two plates, `cameras` how many cameras saw both,
    `first` and `last` the times of the earliest and the latest sighting that count.
    The `_id` says the pair, the last moment and the cameras: a window that slides
    on and finds just the same gives the same id.
    """
    given = [batch.select(["cid", "vid", "time"]) for batch in batches]
    if not given:
        return
    table = pa.Table.from_batches(given).drop_null()
    cameras, _ = _codes(table["cid"])
    vehicles, plates = _codes(table["vid"])
    moments = table["time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    found = _pairs(*_meetings(cameras, vehicles, moments, round(within_s * 1e6)))
    counts = found[2] >= together
    for begin in range(0, int(counts.sum()), _BATCH):
        yield _batch([column[counts][begin : begin + _BATCH] for column in found], plates)


def _codes(column: pa.ChunkedArray) -> tuple[Numbers, list[str]]:
    """Texts as numbers in the order of the texts, and the texts."""
    encoded = pa.concat_arrays(column.cast(pa.string()).chunks).dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts), dtype=np.int64)
    rank[order] = np.arange(len(texts))
    return rank[encoded.indices.to_numpy()], [texts[n] for n in order]


def _meetings(
    cameras: Numbers, vehicles: Numbers, moments: Numbers, within: int
) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
    """Every two sightings by one camera that are near enough: vehicles, camera, earlier, later.

    Sorted by camera and time, a sighting is compared with the next, with the one
    after that and so on, all sightings at once, until none has a near one left.
    """
    order = np.lexsort((moments, cameras))
    cameras, vehicles, moments = cameras[order], vehicles[order], moments[order]
    parts = []
    left = np.arange(len(order))
    step = 1
    while True:
        left = left[left + step < len(order)]
        right = left + step
        left = left[(cameras[left] == cameras[right]) & (moments[right] - moments[left] <= within)]
        if not len(left):
            break
        right = left + step
        one, two = vehicles[left], vehicles[right]
        apart = one != two
        low, high = np.minimum(one, two), np.maximum(one, two)
        parts.append(np.stack([low, high, cameras[left], moments[left], moments[right]])[:, apart])
        step += 1
    both = np.concatenate(parts, axis=1) if parts else np.empty((5, 0), dtype=np.int64)
    return both[0], both[1], both[2], both[3], both[4]


def _pairs(low: Numbers, high: Numbers, cameras: Numbers, first: Numbers, last: Numbers) -> list[Numbers]:
    """One row a pair: the two, how many cameras, first, last."""
    order = np.lexsort((cameras, high, low))
    low, high, cameras, first, last = (column[order] for column in (low, high, cameras, first, last))
    if not len(order):
        return [low, high, cameras, first, last]
    new_pair = np.r_[True, (np.diff(low) != 0) | (np.diff(high) != 0)]
    new_camera = new_pair | np.r_[True, np.diff(cameras) != 0]
    begins = np.flatnonzero(new_pair)
    return [
        low[begins],
        high[begins],
        np.add.reduceat(new_camera.astype(np.int64), begins),
        np.minimum.reduceat(first, begins),
        np.maximum.reduceat(last, begins),
    ]


def _batch(columns: list[Numbers], plates: list[str]) -> pa.RecordBatch:
    low, high, cameras, first, last = (column.tolist() for column in columns)
    a, b = [plates[n] for n in low], [plates[n] for n in high]
    rows = zip(a, b, cameras, last, strict=True)
    ids: list[Any] = [window_id(f"{one}+{two}", timestamps.to_text(end), count) for one, two, count, end in rows]
    moment = pa.timestamp("us", "UTC")
    return pa.RecordBatch.from_pydict(
        {
            "a": pa.array(a, pa.string()),
            "b": pa.array(b, pa.string()),
            "cameras": pa.array(cameras, pa.int32()),
            "first": pa.array(first, pa.int64()).cast(moment),
            "last": pa.array(last, pa.int64()).cast(moment),
            "_id": pa.array(ids, pa.string()),
        }
    )
