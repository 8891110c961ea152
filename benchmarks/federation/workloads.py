"""Named, seeded workloads. Kept unchanged, so that results compare over years."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np

from benchmarks.federation.brokers import Brokers, Events
from benchmarks.reporting import Row, Setting, Workload, measured
from tidegate import Filter, Schema
from tidegate.federation.routes import STRATEGIES
from tidegate.federation.routes.forest import Forest
from tidegate.federation.routes.index import BoxIndex
from tidegate.federation.routes.table import Outgoing

SCHEMA = Schema(
    {"vid": "string", "line": "string", "speed": "float64", "lane": "int32", "lon": "float64", "lat": "float64"}
)
BROKERS = 10
LINES, PLACES = 400, 100
ZIPF = 1.1
"""The exponent of the Zipf distribution: the nth item has a share of 1 / n ** 1.1."""


def tree(rng: Random) -> list[tuple[str, str]]:
    """Return the links of a random tree."""
    return [(f"b{rng.randrange(n)}", f"b{n}") for n in range(1, BROKERS)]


def popular(rng: Random, size: int) -> int:
    """Draw a number below `size` from the Zipf distribution."""
    return rng.choices(range(size), _shares(size))[0]


def _shares(size: int) -> list[float]:
    return [1 / (n + 1) ** ZIPF for n in range(size)]


def overlapping(rng: Random) -> str:
    """Draw a typical filter of a city: a line or a place, by popularity, and a speed."""
    fast = rng.choice(["", *(f" AND speed > {n}" for n in (10, 30, 50, 60, 80))])
    choice = rng.random()
    if choice < 0.45:
        return f"line = 'L{popular(rng, LINES):03}'{fast}"
    if choice < 0.85:
        place, size = popular(rng, PLACES), rng.choice([1, 1, 2, 3])
        east, north = 116 + 0.05 * (place % 10), 39.6 + 0.05 * (place // 10)
        width = 0.01 * size
        sides = (("lon", east), ("lat", north))
        box = " AND ".join(f"{name} BETWEEN {at - width:.3f} AND {at + width:.3f}" for name, at in sides)
        return f"{box}{fast}"
    if choice < 0.95:
        return f"lane = {popular(rng, 8)} AND line = 'L{popular(rng, LINES):03}'"
    return f"vid = 'BJ{rng.randrange(100_000):05}'"


def event(rng: Random) -> dict[str, Any]:
    """Draw an event of a vehicle."""
    return {
        "vid": f"BJ{rng.randrange(100_000):05}",
        "line": f"L{rng.randrange(LINES):03}",
        "speed": rng.uniform(0, 100),
        "lane": rng.randrange(8),
        "lon": rng.uniform(115.9, 116.6),
        "lat": rng.uniform(39.5, 40.2),
    }


@dataclass
class Course:
    """The results of one strategy, by the number of subscriptions and at the end."""

    entries: list[tuple[float, float]] = field(default_factory=list)
    messages: list[tuple[float, float]] = field(default_factory=list)
    crossings: list[tuple[float, float]] = field(default_factory=list)
    last: dict[str, float] = field(default_factory=dict)


def strategies(setting: Setting) -> Iterator[Row]:
    """Ten brokers: entries, control messages and traffic of each strategy, and churn at the end."""
    sizes = (100, 300, 1_000) if setting.quick else (100, 300, 1_000, 3_000, 10_000)
    courses = {name: course(name, sizes) for name in STRATEGIES}
    what = f"{sizes[-1]:,} subscriptions, {BROKERS} brokers"
    simple = courses["simple"].last
    for name, each in courses.items():
        for count in ("entries", "control messages", "events over links"):
            yield measured(f"{what}, {name}: {count}", each.last[count], "")
    flooded = courses["flooding"].last["events over links"]
    for name in ("covering", "merging"):
        last = courses[name].last
        crossed = 100 * last["events over links"] / flooded
        yield measured(f"{what}, {name}: events over links, of flooding's", crossed, "%")
        for count in ("entries", "control messages"):
            most = 25 if sizes[-1] >= 10_000 else None
            yield measured(f"{what}, {name}: {count}, of simple's", 100 * last[count] / simple[count], "%", most=most)
        yield measured(f"{what}, {name}: events over links that nobody behind wants", last["excess"], "", most=0)
        yield measured(f"{what}, {name}: subscribers' brokers that miss an event", last["missed"], "", most=0)
    for title, label, series in (
        ("Routing entries", "entries of all brokers", {name: each.entries for name, each in courses.items()}),
        ("Control messages", "messages so far", {name: each.messages for name, each in courses.items()}),
        ("Event traffic", "1,000 events over links", {name: each.crossings for name, each in courses.items()}),
    ):
        chart = {"title": f"{title}, {BROKERS} brokers", "x": "subscriptions", "y": label, "series": series}
        yield measured(f"{title.lower()}: drawn to", sizes[-1], "subscriptions") | {
            "charts": {title.lower().replace(" ", "-"): {**chart, "log": True, "log_x": True}}
        }


@cache
def _filter(text: str) -> Filter:
    """Parse a filter; cached, as all strategies share it."""
    return Filter(text, SCHEMA)


def course(strategy: str, sizes: tuple[int, ...]) -> Course:
    """Fill a federation step by step, then change a tenth and end a tenth of the subscriptions."""
    rng, found = Random(7), Course()
    brokers = Brokers(tree(rng), strategy, SCHEMA)
    where: list[str] = []

    def some_filter() -> Filter:
        return _filter(overlapping(rng))

    events: Events = [event(Random(f"event {n}")) for n in range(1_000)]
    origins = [f"b{n % BROKERS}" for n in range(len(events))]
    for size in sizes:
        while len(where) < size:
            where.append(f"b{rng.randrange(BROKERS)}")
            brokers.put(where[-1], {f"s{len(where)}": some_filter()})
        if strategy != "flooding":
            found.entries.append((size, brokers.entries()))
            found.messages.append((size, brokers.messages))
        found.crossings.append((size, brokers.traffic(events, origins)[0]))
    for number in rng.sample(range(len(where)), len(where) // 5):
        brokers.put(where[number], {f"s{number + 1}": some_filter() if number % 2 else None})
    crossed, excess, missed = brokers.traffic(events, origins)
    found.last = {"entries": brokers.entries(), "control messages": brokers.messages}
    found.last |= {"events over links": crossed, "excess": excess, "missed": missed}
    return found


def distinct(rng: Random) -> str:
    """Draw a filter that hardly any other covers, for the largest table."""
    choice = rng.random()
    x, y, speed = (rng.uniform(0, 100) for _ in range(3))
    if choice < 0.4:
        return f"speed BETWEEN {speed:.3f} AND {speed + 0.3:.3f} AND lon BETWEEN {x:.3f} AND {x + 0.3:.3f}"
    if choice < 0.7:
        return f"vid = 'BJ{rng.randrange(10**6):06}' AND speed > {speed:.2f}"
    if choice < 0.9:
        return f"lon BETWEEN {x:.3f} AND {x + 0.3:.3f} AND lat BETWEEN {y:.3f} AND {y + 0.3:.3f}"
    return f"lane = {rng.randrange(10**6)} AND speed > {speed:.2f}"


Calls = dict[str, tuple[Callable[[int], object], list[int]]]


def large_table(setting: Setting) -> Iterator[Row]:
    """Search and change one link's table with very many filters that do not cover each other."""
    size, repeats = (20_000, 500) if setting.quick else (100_000, 2_000)
    rng = Random(11)
    filters = [Filter(distinct(rng), SCHEMA) for _ in range(size + 2 * repeats)]
    index = BoxIndex()
    table = Outgoing("vehicles", Forest(index=index))
    table.change(dict(enumerate(filters[:size])), ())
    while table.pending:
        table.work()
    for each in filters[size:]:  # the normal form is computed once, for all tables
        hash(each)
        _ = each.normal.conjuncts[0].necessary
    with _collected():
        what = f"{len(index):,} filters in a table"
        new, gone = list(range(size, size + repeats)), rng.sample(range(size), repeats)
        calls: Calls = {
            "who covers a filter": (lambda n: index.find_covering(filters[n]), new),
            "whom it covers": (lambda n: index.find_covered(filters[n]), new),
            "a subscription more": (lambda n: table.change({n: filters[n]}, ()), new),
            "a subscription less": (lambda n: table.change({}, (n,)), gone),
            "other parameters": (lambda n: table.change({n + repeats: filters[n + repeats]}, (n,)), new),
        }
        for name, (call, numbers) in calls.items():
            yield from _percentiles(f"{what}: {name}", [_took_ms(partial(call, number)) for number in numbers])
        yield from wide_changes(table, what, 2 * size)


WIDE = [f"{name} > {least}" for name in ("speed", "lon") for least in (99, 97, 95, 90, 80, 60)]
"""Filters that each cover hundreds to tens of thousands of the filters in a large table."""


def wide_changes(table: Outgoing, what: str, number: int) -> Iterator[Row]:
    """Add, change and remove subscriptions that cover thousands; deferred work is done afterwards."""
    took: dict[str, list[float]] = {"comes": [], "gets other parameters": [], "goes": []}
    steps: list[float] = []
    covered: list[int] = []
    for text in WIDE:
        wide, narrower = Filter(text, SCHEMA), Filter(f"{text}.5", SCHEMA)
        before = len(table.entries)
        for name, put, drop in (
            ("comes", {number: wide}, ()),
            ("gets other parameters", {number + 1: narrower}, (number,)),
            ("goes", {}, (number + 1,)),
        ):
            took[name].append(_took_ms(partial(table.change, put, drop)))
            while table.pending:
                steps.append(_took_ms(table.work))
            if name == "comes":
                covered.append(before - len(table.entries) + 1)
        number += 2
    span = f"{min(covered):,} to {max(covered):,}"
    for name, each in took.items():
        yield measured(f"{what}: one that covers {span} {name}, median", float(np.median(each)), "ms", most=2)
    yield from _percentiles(f"{what}: a step of what those leave to do", steps)


def _percentiles(what: str, took_ms: list[float]) -> Iterator[Row]:
    yield measured(f"{what}, median", float(np.percentile(took_ms, 50)), "ms", most=1)
    yield measured(f"{what}, p99", float(np.percentile(took_ms, 99)), "ms", most=2)


@contextmanager
def _collected() -> Iterator[None]:
    """Freeze the existing objects, so that the garbage collector does not scan them during a measurement."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _took_ms(call: Callable[[], object]) -> float:
    """Measure the CPU time of this thread, independent of other load."""
    begin = time.thread_time()
    call()
    return (time.thread_time() - begin) * 1e3


WORKLOADS: dict[str, Workload] = {"strategies": strategies, "a large table": large_table}
"""The workloads; each yields rows."""
