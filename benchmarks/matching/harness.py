"""Shared parts of the matcher's measurements: the setting, a filled matcher, a row of the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks import measure
from benchmarks.matching import workloads
from benchmarks.matching.workloads import Columns, Workload
from benchmarks.peers import event_ruler
from tidegate import Filter, Schema
from tidegate.errors import EventError, MatcherError
from tidegate.matching import Matcher

BATCH = 10_000
"""The default batch size."""

Row = dict[str, Any]


class SkippedError(Exception):
    """A measurement that can't run here; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The duration and extent of the measurements."""

    quick: bool
    say: Callable[[str], None] = lambda _: None
    """Called with the current step, for the progress bar."""
    until: float = math.inf
    """The deadline, by `time.perf_counter`."""

    @property
    def repeats(self) -> int:
        """The number of calls of a median."""
        return 9 if self.quick else 41

    @property
    def left_s(self) -> float:
        """The time that is left."""
        return self.until - time.perf_counter()

    @property
    def budget_s(self) -> float:
        """The time after which a median of fewer calls is enough."""
        return 1.0 if self.quick else 15.0


def row(
    what: str,
    value: float,
    unit: str,
    *,
    at_least: float | None = None,
    below: float | None = None,
    **more: Any,
) -> Row:
    """Return one row of the result, with whether it met its target."""
    made: Row = {"what": what, "value": _digits(value), "unit": unit}
    if at_least is not None:
        made |= {"target": f">= {at_least:,}", "met": value >= at_least}
    if below is not None:
        made |= {"target": f"< {below:,}", "met": value < below}
    return made | {name: _digits(each) if isinstance(each, float) else each for name, each in more.items()}


def skipped(what: str, reason: str) -> Row:
    """Return a row with the reason of a missing value."""
    return {"what": what, "skipped": reason}


def compared(value: float, peer: str, peer_value: float) -> dict[str, Any]:
    """Return the comparison of a row with a peer."""
    return {"peer": peer, "peer_value": _digits(peer_value), "ratio": _digits(value / peer_value)}


def _digits(value: float) -> float:
    return float(f"{value:.5g}")


def filled(
    filters: Iterable[Filter | str],
    engine: str = "columnar",
    *,
    schema: Schema = workloads.SCHEMA,
    limit_s: float = float("inf"),
    **options: Any,
) -> Matcher:
    """Return a matcher of an engine with subscriptions `s0`, `s1`, and so on.

    Skipped where the engine or an option of it is not known, or filling takes longer than a limit.
    """
    try:
        matcher = Matcher(schema, engine=engine, **options)
    except (MatcherError, TypeError) as exc:
        raise SkippedError(str(exc)) from exc
    fill(matcher, filters, limit_s)
    return matcher


def fill(matcher: Matcher, filters: Iterable[Filter | str], limit_s: float = float("inf")) -> None:
    """Add subscriptions. Raises `Skipped` if it takes longer than a limit."""
    end = time.perf_counter() + limit_s
    for n, each in enumerate(filters):
        matcher.add(f"s{n}", each)
        if time.perf_counter() > end:
            matcher.close()
            said = f"adding more than {n + 1:,} filters to {matcher.engine} takes longer than {limit_s:g} s"
            raise SkippedError(said)


@cache
def _made(workload: Workload) -> list[Filter]:  # noqa: ARG001
    return []


def made(workload: Workload, count: int | None = None) -> list[Filter]:
    """Return the first filters of a workload, cached, as compiling them takes longer than matching."""
    wanted = workload.count if count is None else count
    filters = _made(workload)
    if wanted > len(filters):
        filters += workload.filters(len(filters), wanted - len(filters))
    return filters[:wanted]


@cache
def ruler(size: int, quick: bool) -> event_ruler.Timed:
    """event-ruler on the first filters and events that match at a rate of 1 %."""
    return event_ruler.time(
        (boxes.rule(n) for boxes, n in workloads.TEN_THOUSAND.places(0, size)),
        workloads.dicts(ruler_events(), time=int),
        warm_up_s=2 if quick else 10,
        measure_s=2 if quick else 15,
        timeout_s=45 if quick else 600,
    )


def ruler_events() -> Columns:
    """Return as many events as event-ruler matches in some seconds."""
    return events(BATCH).first(1_000)


@cache
def events(count: int, seed: int = 1) -> Columns:
    """Return the events that several measurements share; cached."""
    return workloads.columns(count, seed)


@cache
def batches() -> list[Any]:
    """Return four batches, so that no result can be reused."""
    return [workloads.batch(events(BATCH, seed)) for seed in (1, 11, 12, 13)]


def match(matcher: Matcher) -> Callable[[Any], int]:
    """Match a batch and return the number of matches."""
    return lambda batch: len(matcher.match(batch))


def speed(setting: Setting, matcher: Matcher, inputs: Sequence[Any] | None = None) -> measure.Taken:
    """Return the time of one batch. Raises `Skipped` if the matcher does not accept its format."""
    try:
        return measure.taken(match(matcher), inputs or batches(), setting.repeats, setting.budget_s)
    except (EventError, MatcherError) as exc:
        raise SkippedError(str(exc)) from exc


def throughput(what: str, taken: measure.Taken, size: int = BATCH, **more: Any) -> Row:
    """Return a row of events per second, and per CPU second."""
    return row(what, size / taken.wall_s, "events/s", per_cpu_s=size / taken.cpu_s, **more)


def rate(matcher: Matcher, batch: Any) -> float:
    """Return the share of all pairs of event and filter that match."""
    found = matcher.match(batch)
    return len(found) / found.events / len(matcher)
