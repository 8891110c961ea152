"""The same data for a growing number of subscribers, in four models: SDaaS, tables 4 and 5 and figure 8."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.delivery.demands import CELLS, MODELS, STREAMS, Demand, Model, demands, kinds
from benchmarks.delivery.harness import Serving, appending, listening, of, until
from benchmarks.measure import group_cpu_s, group_memory_bytes
from benchmarks.reporting import Row, Setting, measured, plot

PAPER = 1_000
"""Subscriptions of each of the two kinds of data in table 4."""
TOO_OLD_MS = 5_000.0
KEEPS_UP = 0.999


@dataclass(frozen=True, slots=True)
class Plan:
    """The extent of the measurement."""

    rate: int
    steps: tuple[int, ...]
    warm_s: float
    measured_s: float
    drain_s: float


QUICK = Plan(1_000, (10, 40), 1.0, 3.0, 2.0)
FULL = Plan(10_000, (10, 25, 50, 100, 200, 400, 600, 800, 1_000), 5.0, 10.0, 10.0)
"""The rate of the paper, and its numbers of subscriptions from 100 on."""
JVM_S = {True: 5.0, False: 20.0}
"""Warm-up of models with Spark, in `--quick` and otherwise."""


@dataclass(frozen=True, slots=True)
class Point:
    """The results of one model for a number of subscriptions."""

    subscriptions: int
    p50_ms: float
    p99_ms: float
    wanted: int
    """Events of the whole load that reached subscribers that wanted them."""
    received: int
    """Events that reached any subscriber."""
    server_cpu: float
    """CPU as a share of a core, as in the next field."""
    subscribers_cpu: float
    memory_mb: float
    network_mb_s: float


FIGURES: tuple[tuple[str, str, str, Callable[[Point], float]], ...] = (
    ("figure-8a", "latency, p99", "milliseconds", lambda each: each.p99_ms),
    ("figure-8a-median", "latency, p50", "milliseconds", lambda each: each.p50_ms),
    ("figure-8b", "CPU of the server", "% of a core", lambda each: 100 * each.server_cpu),
    ("figure-8b-subscribers", "CPU of the subscribers", "% of a core", lambda each: 100 * each.subscribers_cpu),
    ("figure-8c", "memory of the server", "MB", lambda each: each.memory_mb),
    ("figure-8d", "network", "MB/s", lambda each: each.network_mb_s),
)
"""Figure 8, (a) to (d), and the work of the subscribers, which it leaves out."""


def models(setting: Setting) -> Iterator[Row]:
    """Measure latency, CPU, memory and network by the number of subscriptions."""
    plan = QUICK if setting.quick else FULL
    yield from tables()
    points = {model.name: list(_climb(model, plan, setting)) for model in MODELS}
    yield from rows(points, plan)


def tables() -> Iterator[Row]:
    """Yield tables 4 and 5: kinds of demand, and the services that they need."""
    asked = demands(2 * PAPER)
    for data, paper in (("gps", 126), ("plates", 6)):
        of_it = [each for each in asked if each.data == data]
        yield measured(f"table 4: kinds of demand among {PAPER:,} for {data}", kinds(of_it), f"(paper: {paper})")
    papers = {"traditional": 132, "topic-only": 4, "content-based": 4, "services": 2}
    for model in MODELS:
        unit = f"services (paper: {papers[model.name]}); left to subscribers: {model.left}"
        yield measured(f"table 5: {model.name}", model.services(asked), unit) | {"left": model.left}


def rows(points: Mapping[str, Sequence[Point]], plan: Plan) -> Iterator[Row]:
    """Yield all results, with figure 8 in the last row."""
    most = {each.subscriptions: max(_wanted(points, each.subscriptions)) for all_ in points.values() for each in all_}
    for name, all_ in points.items():
        for each in all_:
            what = f"{plan.rate:,} events/s, {each.subscriptions} subscriptions, {name}"
            got = 100 * each.wanted / max(1, most[each.subscriptions])
            yield measured(f"{what}: p99", each.p99_ms, "ms") | {"p50_ms": each.p50_ms}
            yield measured(f"{what}: data that arrived", got, "%") | {"events": each.wanted, "received": each.received}
            yield measured(f"{what}: CPU of the server", 100 * each.server_cpu, "% of a core")
            yield measured(f"{what}: CPU of the subscribers", 100 * each.subscribers_cpu, "% of a core")
            yield measured(f"{what}: memory", each.memory_mb, "MB")
            yield measured(f"{what}: network", each.network_mb_s, "MB/s")
    same = measured(
        "numbers of subscriptions at which models that kept up gave other data", _unlike(points, most), "", 0
    )
    yield same | {"charts": figures(points, plan)}


def figures(points: Mapping[str, Sequence[Point]], plan: Plan) -> dict[str, Any]:
    """Return the results as charts by file name."""
    found = {}
    for name, title, unit, value in FIGURES:
        series = {
            model: [(each.subscriptions, min(1e6, max(1e-3, value(each)))) for each in all_]
            for model, all_ in points.items()
        }
        found[name] = plot(f"{title}, {plan.rate:,} events/s", "subscriptions", unit, series)
    return found


def _wanted(points: Mapping[str, Sequence[Point]], subscriptions: int) -> list[int]:
    return [each.wanted for all_ in points.values() for each in all_ if each.subscriptions == subscriptions]


def _keeps_up(point: Point, most: Mapping[int, int]) -> bool:
    return point.p99_ms < TOO_OLD_MS and point.wanted >= KEEPS_UP * most[point.subscriptions]


def _unlike(points: Mapping[str, Sequence[Point]], most: Mapping[int, int]) -> int:
    counts: dict[int, set[int]] = {}
    for each in (each for all_ in points.values() for each in all_ if _keeps_up(each, most)):
        counts.setdefault(each.subscriptions, set()).add(each.wanted)
    return sum(len(each) > 1 for each in counts.values())


def _climb(model: Model, plan: Plan, setting: Setting) -> Iterator[Point]:
    """Measure a growing number of subscriptions, up to the first number at which the model falls behind."""
    with model.serve() as up:
        if model.on_spark:
            warm_up(up, plan.rate, JVM_S[setting.quick])
        for count in plan.steps:
            point = _point(model, up, demands(count), plan)
            yield point
            if point.p99_ms > TOO_OLD_MS:
                return


def warm_up(up: Serving, rate: int, seconds: float) -> None:
    """Warm up the JVM."""
    with appending(up.log, STREAMS, rate, seconds, CELLS) as appender:
        appender.hear(seconds + 60)


def _point(model: Model, up: Serving, asked: Sequence[Demand], plan: Plan) -> Point:
    wanted = [each for demand in asked for each in model.wanted(demand)]
    seconds = plan.warm_s + plan.measured_s
    with listening(up.port, wanted) as subscribers, appending(up.log, STREAMS, plan.rate, seconds, CELLS) as appender:
        time.sleep(plan.warm_s)
        before, began, cpu_s = subscribers.ask(), time.monotonic(), group_cpu_s(up.group)
        time.sleep(plan.measured_s - 0.5)
        found, spent, cpu_s = subscribers.ask(), time.monotonic() - began, group_cpu_s(up.group) - cpu_s
        memory = group_memory_bytes(up.group)
        appender.hear(seconds + 60)
        last = -1

        def is_quiet() -> bool:
            nonlocal last
            had, last = last, int(subscribers.ask()["received"])
            return last == had

        time.sleep(0.5)
        until(is_quiet, plan.drain_s)
        in_all = subscribers.ask()
    return Point(
        len(asked),
        of(found, "p50"),
        of(found, "p99"),
        in_all["total"],
        in_all["received"],
        cpu_s / spent,
        (found["cpu_s"] - before["cpu_s"]) / spent,
        memory / 1e6,
        (found["bytes"] - before["bytes"]) / spent / 1e6,
    )
