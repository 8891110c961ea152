"""Search in a registry of a million services, and requests to a directory of complete services."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.discovery import workloads
from benchmarks.reporting import Row, Setting, measured
from tidegate.discovery import Directory, Observation, Request, kernels
from tidegate.discovery.attributes import WantedAttribute
from tidegate.discovery.index import AttributeIndex, minimum_count
from tidegate.discovery.names import by_edits
from tidegate.discovery.vectors import each_bit, forms


def million(setting: Setting) -> Iterator[Row]:
    """Bloom filters of 1,024 bits: scan, search, change, memory."""
    count = workloads.SEARCHED[setting.quick]
    kernels.warm_up()
    index = AttributeIndex(encoding="bloom")
    gc.collect()  # or garbage of earlier work is freed meanwhile, and the difference is negative
    before = _resident_mb()
    took = _filled(index, count)
    gc.collect()
    memory = max(0.0, _resident_mb() - before)
    said = f"{count:,} services"
    yield measured(f"{said}: memory, names included", memory, "MB", most=300)
    yield measured(f"{said}: add, median", measure.percentile(took, 0.5), "ms", most=1)
    yield measured(f"{said}: add, 99.9 %", measure.percentile(took, 0.999), "ms")
    repeats, requests = (9 if setting.quick else 41), workloads.requests(20)
    for least in (0.1, 0.8):
        counted = [
            forms([[index.dictionary.positions((each.name, "number"))] for each in wanted]) for wanted in requests
        ]
        at_least = minimum_count(least, len(requests[0]))
        taken = measure.taken(partial(index.vectors.count, least=at_least), counted, repeats, 3.0)
        row = measured(
            f"{said}: scan for {least:.0%} of ten attributes", count / taken.wall_s / 1e6, "M vectors/s", least=20
        )
        yield row | {"per_cpu_s": count / taken.cpu_s / 1e6}
        taken = measure.taken(partial(index.search, least=least), requests, repeats, 3.0)
        yield measured(f"{said}: the 20 best, {least:.0%} at least, verified", taken.wall_s * 1e3, "ms", most=100)
    bits = [each_bit(index.bloom.vector((each.name, "number") for each in wanted)) for wanted in requests]
    taken = measure.taken(partial(index.vectors.count, least=1), bits, repeats, 3.0)
    yield measured(f"{said}: scan for B-Coverage", count / taken.wall_s / 1e6, "M vectors/s", least=20)
    taken = measure.taken(partial(index.search, least=0.8, alike=by_edits), requests, repeats, 3.0)
    yield measured(f"{said}: the 20 best, names by edit distance", taken.wall_s * 1e3, "ms", most=100)
    yield from _changes(index, count, said)


def _filled(index: AttributeIndex, count: int) -> list[float]:
    """Fill an index; return the milliseconds of every hundredth addition."""
    took = []
    for n, (name, attributes) in enumerate(workloads.services(count)):
        begin = time.perf_counter()
        index.add(name, attributes)
        if n % 100 == 0:
            took.append((time.perf_counter() - begin) * 1e3)
    return took


def _changes(index: AttributeIndex, count: int, said: str) -> Iterator[Row]:
    took = []
    rng = np.random.default_rng(9)
    for n in rng.permutation(count)[:2_000].tolist():
        begin = time.perf_counter()
        index.remove(f"service{n}")
        took.append((time.perf_counter() - begin) * 1e3)
    yield measured(f"{said}: remove, median", measure.percentile(took, 0.5), "ms", most=1)
    yield measured(f"{said}: remove, 99 %", measure.percentile(took, 0.99), "ms", most=1)


def _resident_mb() -> float:
    line = next(n for n in Path("/proc/self/status").read_text().splitlines() if n.startswith("VmRSS"))
    return int(line.split()[1]) / 1_024


def bitmaps(setting: Setting) -> Iterator[Row]:
    """The paper's universe of 200 attributes: memory and search time of bitmaps and of Bloom filters."""
    count = workloads.KEPT[setting.quick]
    known = workloads.attributes()[:200]
    for encoding in ("auto", "bloom"):
        rng = np.random.default_rng(7)
        index = AttributeIndex(encoding="bloom" if encoding == "bloom" else "auto")
        for n in range(count):
            index.add(f"s{n}", [known[each] for each in rng.permutation(200)[:20].tolist()])
        said = index.describe()
        wanted = [WantedAttribute(each.name, "number") for each in known[:10]]
        taken = measure.taken(partial(index.search, least=0.4), [wanted], 9, 1.0)
        candidates = index.covering(wanted, least=0.4).candidates
        what = f"{count:,} services, {said['attributes']} attributes, {said['encoding']}"
        yield measured(f"{what}: bytes a service", said["bytes_a_service"], "bytes")
        yield measured(f"{what}: search", taken.wall_s * 1e3, "ms")
        yield measured(f"{what}: candidates", float(candidates), "services")


def _request() -> Request:
    return Request.from_dict(
        {
            "attributes": [each.name for each in workloads.attributes()[-400::100]],
            "coverage": 0.25,
            "filter": "FUZZY(price IS TRIANGLE(1, 8, 30), rate IS S(2, 20)) >= 0.5",
            "qos": {"limits": {"availability": 0.91}, "weights": {"latency": 2, "availability": 1}},
        }
    )


def directory(setting: Setting) -> Iterator[Row]:
    """Complete requests over services whose quality is observed and changes."""
    count = workloads.ASKED[setting.quick]
    found = Directory()
    begin = time.perf_counter()
    for offer in workloads.offers(count):
        found.put(offer)
    said = f"{count:,} whole services"
    yield measured(f"{said}: put, on average", (time.perf_counter() - begin) / count * 1e3, "ms", most=1)
    for n in range(0, count, 10):
        found.observe(f"service{n}", Observation(at=100.0, up=True, latency_s=0.05, events=3))
    request = _request()
    answer = found.discover(request, 101.0)
    took, changed = [], []
    some = list(workloads.offers(50))
    for n in range(50):
        begin = time.perf_counter()
        found.put(some[n])
        changed.append((time.perf_counter() - begin) * 1e3)
        begin = time.perf_counter()
        found.discover(request, 101.0 + n / 100)
        took.append((time.perf_counter() - begin) * 1e3)
    yield measured(
        f"{said}: a request with everything, a change before each", measure.percentile(took, 0.5), "ms", most=100
    )
    yield measured(f"{said}: that, 95 %", measure.percentile(took, 0.95), "ms")
    yield measured(f"{said}: a change", measure.percentile(changed, 0.5), "ms", most=1)
    yield measured(f"{said}: that fit", float(answer.total), "services")
