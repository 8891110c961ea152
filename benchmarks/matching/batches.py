"""Throughput of batches: the targets of the engine, and a comparison with event-ruler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import measure
from benchmarks.matching import workloads
from benchmarks.matching.harness import (
    BATCH,
    Row,
    Setting,
    SkippedError,
    batches,
    compared,
    events,
    filled,
    made,
    rate,
    ruler,
    ruler_events,
    skipped,
    speed,
    throughput,
)
from benchmarks.matching.harness import row as make_row
from benchmarks.peers import event_ruler
from tidegate.matching import Matcher

RULER = f"event-ruler {event_ruler.version()}"


def thousand(setting: Setting) -> Iterator[Row]:
    """1,000 filters: from Arrow, with the pairs read, from NDJSON, and the same with event-ruler."""
    name = "1,000 filters"
    matcher = filled(made(workloads.TEN_THOUSAND, 1_000))
    ours = speed(setting, matcher)
    yield throughput(f"{name}, Arrow", ours, at_least=1_000_000, rate=rate(matcher, batches()[0]))
    setting.say(f"{name}, event-ruler")
    yield from _beside_ruler(setting, name, matcher, BATCH / ours.wall_s)
    setting.say(name)
    yield _ndjson(setting, f"{name}, NDJSON", matcher)
    yield _with_pairs(setting, f"{name}, Arrow, pairs() read", matcher)


def _beside_ruler(setting: Setting, name: str, matcher: Matcher, ours: float) -> Iterator[Row]:
    what = f"{name}, Arrow, over event-ruler"
    try:
        peer = ruler(len(matcher), setting.quick)
    except event_ruler.UnavailableError as exc:
        yield skipped(what, str(exc))
        return
    same = peer.matches == len(matcher.match(workloads.batch(ruler_events())))
    more: dict[str, Any] = {
        "same_matches": same,
        "per_cpu_s": peer.events_per_cpu_s,
        "build_s": peer.build_s,
        "java": peer.java,
    }
    yield make_row(what, ours / peer.events_per_s, "times", at_least=1_000, **compared(ours, RULER, peer.events_per_s))
    yield make_row(f"{name}, event-ruler itself", peer.events_per_s, "events/s", **more)


def _ndjson(setting: Setting, what: str, matcher: Matcher) -> Row:
    lines = [workloads.ndjson(events(BATCH, seed)) for seed in (1, 11)]
    try:
        return throughput(what, speed(setting, matcher, lines), at_least=150_000)
    except SkippedError as exc:
        return skipped(what, str(exc))


def _with_pairs(setting: Setting, what: str, matcher: Matcher) -> Row:
    taken = measure.taken(lambda b: matcher.match(b).pairs(), batches(), setting.repeats, setting.budget_s)
    return throughput(what, taken)


def ten_thousand(setting: Setting) -> Iterator[Row]:
    """10,000 filters, and the same with a LIKE or STRLIKE in one of ten."""
    matcher = filled(made(workloads.TEN_THOUSAND))
    without = speed(setting, matcher)
    found = rate(matcher, batches()[0])
    yield throughput(workloads.TEN_THOUSAND.name, without, at_least=250_000, rate=found)
    del matcher
    setting.say(workloads.LIKES.name)
    # The filters differ only in the patterns: only the different ones are compiled again.
    pairs = zip(made(workloads.TEN_THOUSAND), workloads.LIKES.texts(), strict=True)
    matcher = filled(plain if plain.text == text else text for plain, text in pairs)
    taken = speed(setting, matcher)
    yield throughput(workloads.LIKES.name, taken, rate=rate(matcher, batches()[0]))
    yield make_row("the same over none", taken.wall_s / without.wall_s, "times the time", below=3)


def fuzzy(setting: Setting) -> Iterator[Row]:
    """1,000 groups of three shapes."""
    matcher = filled(workloads.FUZZY.filters())
    found = rate(matcher, batches()[0])
    yield throughput("1,000 fuzzy groups of three shapes", speed(setting, matcher), at_least=200_000, rate=found)
