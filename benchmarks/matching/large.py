"""100,000 filters: build, throughput, the latency of one event and of one change."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread
from typing import Any

from benchmarks import measure
from benchmarks.matching import workloads
from benchmarks.matching.harness import (
    BATCH,
    Row,
    Setting,
    batches,
    events,
    filled,
    made,
    rate,
    row,
    skipped,
    speed,
    throughput,
)
from tidegate.matching import Matcher

NAME = workloads.HUNDRED_THOUSAND.name
FIRST = 10_000
"""A sample of filters, to estimate the time of all."""
ONCE = {True: 1_000, False: 10_000}
"""The number of events and changes that are timed one by one, in `--quick` and otherwise."""
LASTING_S = {True: 2.0, False: 15.0}
"""Seconds of changes while another thread matches."""
AFTERWARDS_S = 10.0
"""The approximate time of the measurements on the index."""


def hundred_thousand(setting: Setting) -> Iterator[Row]:
    """Build once, then measure everything on the same index."""
    workload = workloads.HUNDRED_THOUSAND
    setting.say(f"{NAME}: making the filters")
    begin = time.perf_counter()
    filters = made(workload, FIRST)
    if setting.until < math.inf:
        built_s, more = _build(filters)[1], workload.count / FIRST
        # Filters may be cached: the time to compile those is unknown.
        made_s = max(time.perf_counter() - begin - built_s, FIRST * 200e-6)
        needed = (made_s * (more - 1)) + built_s * more + AFTERWARDS_S
        if needed > setting.left_s:
            yield skipped(NAME, f"--quick: it would take {needed:.0f} s, of which {built_s * more:.0f} s to build")
            return
    filters = made(workload)
    made_s = time.perf_counter() - begin
    setting.say(f"{NAME}: building")
    built: dict[str, list[float]] = {"at once": [], "one by one": []}
    for _ in range(1 if setting.quick else 3):
        for how, each in built.items():
            matcher, took_s = _build(filters, at_once=how == "at once")
            each.append(took_s)
            matcher.close()  # background work must not affect the next measurement
    del filters
    for how, each in built.items():
        what = f"build 100,000 filters {how}, to the first match"
        yield row(what, measure.percentile(each, 0.5), "s", below=3, filters_made_s=made_s)
    setting.say(f"{NAME}: batches")
    yield throughput(NAME, speed(setting, matcher), at_least=75_000, rate=rate(matcher, batches()[0]))
    setting.say(f"{NAME}: one event")
    yield from _one_event(setting, matcher)
    setting.say(f"{NAME}: changes")
    yield from _changes(setting, matcher)


def _build(filters: Sequence[Any], *, at_once: bool = True) -> tuple[Matcher, float]:
    batches()
    begin = time.perf_counter()
    matcher = filled(() if at_once else filters)
    if at_once:
        matcher.add_all({f"s{n}": each for n, each in enumerate(filters)})
    matcher.match(batches()[0].slice(0, 1))
    return matcher, time.perf_counter() - begin


def _one_event(setting: Setting, matcher: Matcher) -> Iterator[Row]:
    """The latency of one event per call, with the garbage collector on."""
    count = ONCE[setting.quick]
    some = events(count, 31)
    batch = workloads.batch(some)
    forms: dict[str, list[Any]] = {
        "a dict": [[each] for each in workloads.dicts(some)],
        "Arrow": [batch.slice(n, 1) for n in range(count)],
    }
    for form, inputs in forms.items():
        for each in inputs[:20]:
            matcher.match(each)
        waits = [_timed(matcher.match, each) for each in inputs]
        for share, below in ((0.5, 0.5), (0.99, 2.0)):
            wait = measure.percentile(waits, share) * 1e3
            yield row(f"one event, {form}, p{share * 100:g}", wait, "ms", below=below)


def _timed(call: Callable[..., object], *args: Any) -> float:
    begin = time.perf_counter()
    call(*args)
    return time.perf_counter() - begin


def _changes(setting: Setting, matcher: Matcher) -> Iterator[Row]:
    """Alternate additions and removals, so that the number of filters stays.

    A change is visible when its call has returned; whether it is, is looked at on the way.
    """
    count = ONCE[setting.quick]
    workload = workloads.HUNDRED_THOUSAND
    places = list(workload.places(workload.count, count))
    filters = workload.filters(workload.count, count)
    waits: dict[str, list[float]] = {"add": [], "remove": []}
    seen = []
    for n, (each, (boxes, at)) in enumerate(zip(filters, places, strict=True)):
        waits["add"].append(_timed(matcher.add, f"new{n}", each))
        if n % 50 == 0:
            event = boxes.event(at)
            seen.append(_timed(matcher.match, [event]))
            _require(f"new{n}" in matcher.match([event]).for_event(0), "an added filter does not match")
        waits["remove"].append(_timed(matcher.remove, f"s{n}"))
    _require("s0" not in matcher.match([next(workload.places())[0].event(0)]).for_event(0), "a removed filter matches")
    for change, each_s in waits.items():
        median = measure.percentile(each_s, 0.5) * 1e3
        yield row(f"{change} one filter, p99", measure.percentile(each_s, 0.99) * 1e3, "ms", below=1, p50=median)
    yield row("the first match after an addition, p50", measure.percentile(seen, 0.5) * 1e3, "ms")
    setting.say(f"{NAME}: changes while batches are matched")
    others = workload.filters(workload.count + count, 4 * LAG)
    yield _sustained(matcher, others, LASTING_S[setting.quick])


LAG = 500
"""A subscription is removed after this many additions."""


def _sustained(matcher: Matcher, filters: Sequence[Any], lasting_s: float) -> Row:
    """The maximum changes per second while another thread matches batches."""
    stop, matched, failed = Event(), [0], []

    def go_on() -> None:
        try:
            while not stop.is_set():
                matcher.match(batches()[matched[0] % len(batches())])
                matched[0] += 1
        except BaseException as exc:
            failed.append(exc)

    for n in range(LAG):
        matcher.add(f"more{n}", filters[n % len(filters)])
    beside = Thread(target=go_on)
    beside.start()
    changes = 0
    waits: list[float] = []
    begin = time.perf_counter()
    while (now := time.perf_counter()) < begin + lasting_s:
        n, removing = divmod(changes, 2)
        if removing:
            matcher.remove(f"more{n}")
        else:
            matcher.add(f"more{n + LAG}", filters[(n + LAG) % len(filters)])
        waits.append(time.perf_counter() - now)
        changes += 1
    took_s = time.perf_counter() - begin
    stop.set()
    beside.join()
    if failed:
        raise failed[0]
    return row(
        "changes while another thread matches",
        changes / took_s,
        "changes/s",
        at_least=5_000,
        p99_ms=measure.percentile(waits, 0.99) * 1e3,
        events_per_s=matched[0] * BATCH / took_s,
    )


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
