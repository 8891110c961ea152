"""The papers' figures: events per second that every engine matches.

SDaaS, section 5.4: 9(a) against the predicates of a filter (100 filters), 9(b)
against the number of filters (six predicates), 9(c) against the degree of
parallelism of the improved tree (1,000 filters). And throughput against the number
of filters, as far as it goes, event-ruler beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from benchmarks import charts, measure
from benchmarks.matching import workloads
from benchmarks.matching.harness import BATCH, Setting, SkippedError, batches, events, fill, filled, made, ruler
from benchmarks.matching.workloads import Workload
from benchmarks.peers import event_ruler
from tidegate import Filter
from tidegate.errors import EventError, MatcherError
from tidegate.matching import Matcher

ENGINES = ("scan", "tree", "counting", "improved-tree", "columnar")
SPLITS = ("predicates", "count")
"""The partitionings of the improved tree: definition 9, and equal numbers of subtrees."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Measured lines, and the reasons of skipped ones."""

    name: str
    title: str
    x_label: str
    log_x: bool
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    y_label = "events/s"

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as JSON."""
        return {
            "title": self.title,
            "x": self.x_label,
            "y": self.y_label,
            "series": {name: [[x, round(y, 1)] for x, y in points] for name, points in self.series.items()},
            "notes": self.notes,
        }

    def to_svg(self) -> str:
        """Return the figure as a chart."""
        return charts.line_chart(self.title, self.x_label, self.y_label, self.series, log_x=self.log_x)


def by_predicates(setting: Setting) -> Figure:
    """Figure 9(a)."""
    title = "9(a): predicates per filter, 100 filters, rate 1 %"
    figure = Figure("figure-9a", title, "predicates per filter", log_x=False)
    sizes = (1, 3, 6, 10) if setting.quick else range(1, 11)
    _by_engine(setting, figure, [(k, Workload(f"100 filters, k = {k}", 100, k).filters()) for k in sizes])
    return figure


def by_filters(setting: Setting) -> Figure:
    """Figure 9(b)."""
    title = "9(b): number of filters, six predicates, rate 1 %"
    figure = Figure("figure-9b", title, "filters", log_x=True)
    filters = made(workloads.TEN_THOUSAND, 1_000 if setting.quick else 10_000)
    sizes = (10, 100, 1_000) if setting.quick else (10, 30, 100, 300, 1_000, 3_000, 10_000)
    _by_engine(setting, figure, [(n, filters[:n]) for n in sizes])
    return figure


def _by_engine(setting: Setting, figure: Figure, sets: Sequence[tuple[int, list[Filter]]]) -> None:
    """Return one line per engine; it ends at the first set of filters that takes too long."""
    for engine in ENGINES:
        setting.say(f"{figure.name}, {engine}")
        figure.series[engine] = points = []
        try:
            for x, filters in sets:
                matcher = filled(filters, engine, limit_s=2 if setting.quick else 60)
                points.append(_point(setting, figure, engine, x, matcher))
                matcher.close()
        except SkippedError as exc:
            figure.notes.append(f"{engine}: {exc}")


def _point(setting: Setting, figure: Figure, line: str, x: int, matcher: Matcher) -> tuple[float, float]:
    """Return the throughput of batches of 10,000, or of the largest batch that takes about a second."""
    batch = batches()[0]
    limit_s, budget_s = (0.8, 0.2) if setting.quick else (10.0, 4.0)
    size = 10
    _took_s(matcher, batch.slice(0, size))
    took_s = _took_s(matcher, batch.slice(0, size))
    before_s = 0.9 * took_s
    while size < BATCH:
        # A batch has a fixed cost: extrapolate only the growth.
        if took_s + 10 * max(0.0, took_s - before_s) > limit_s:
            figure.notes.append(f"{line}, {x:,}: batches of {size:,} events")
            break
        size *= 10
        before_s, took_s = took_s, _took_s(matcher, batch.slice(0, size))
    if took_s < budget_s / 2:
        took_s = measure.taken(matcher.match, [batch.slice(0, size)], setting.repeats, budget_s).wall_s
    return x, size / took_s


def _took_s(matcher: Matcher, batch: Any) -> float:
    begin = time.perf_counter()
    matcher.match(batch)
    return time.perf_counter() - begin


def by_parallelism(setting: Setting) -> Figure:
    """Figure 9(c)."""
    title = "9(c): degree of parallelism, improved tree, 1,000 filters"
    figure = Figure("figure-9c", title, "workers", log_x=False)
    filters = made(workloads.TEN_THOUSAND, 1_000)
    for split in SPLITS:
        setting.say(f"{figure.name}, split by {split}")
        figure.series[f"split by {split}"] = points = []
        try:
            for workers in (1, 2) if setting.quick else (1, 2, 3, 4, 6, 8):
                matcher = filled([], "improved-tree", workers=workers)
                if split != SPLITS[0]:
                    _cut(matcher, workers, split)
                fill(matcher, filters, limit_s=5 if setting.quick else 60)
                # All batches have one size: sending them to the workers is part of the cost.
                batch = batches()[0].slice(0, 2_000 if setting.quick else BATCH)
                taken = measure.taken(matcher.match, [batch], 3 if setting.quick else 9, 60.0)
                points.append((workers, batch.num_rows / taken.wall_s))
                matcher.close()
        except SkippedError as exc:
            figure.notes.append(f"split by {split}: {exc}")
    return figure


def _cut(matcher: Matcher, workers: int, split: str) -> None:
    """Replace the partitioning of a matcher; only this figure needs it."""
    try:
        matcher._index = import_module("tidegate.research.improved_tree").ImprovedTreeIndex(workers, split)
    except (ImportError, AttributeError, TypeError) as exc:
        raise SkippedError(str(exc)) from exc


def by_throughput(setting: Setting) -> Figure:
    """Throughput by the number of filters: the default engine, from Arrow and NDJSON, and event-ruler."""
    title = "Throughput: number of filters, six predicates"
    figure = Figure("throughput", title, "filters", log_x=True)
    sizes = (100, 1_000, 10_000) if setting.quick else (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
    lines = workloads.ndjson(events(BATCH))
    for name, workload in (
        ("columnar, 1 %", workloads.TEN_THOUSAND),
        ("columnar, 0.1 %", workloads.HUNDRED_THOUSAND),
    ):
        setting.say(f"{figure.name}, {name}")
        filters = made(workload, sizes[-1])
        arrow, json = (figure.series.setdefault(f"{name}, {form}", []) for form in ("Arrow", "NDJSON"))
        try:
            for size in sizes:
                matcher = filled(filters[:size], limit_s=5 if setting.quick else 300)
                arrow.append(_point(setting, figure, name, size, matcher))
                if len(json) == len(arrow) - 1:
                    json += _from_json(setting, figure, matcher, lines, size)
        except SkippedError as exc:
            figure.notes.append(f"{name}: {exc}")
    setting.say(f"{figure.name}, event-ruler")
    figure.series["event-ruler, 1 %, JSON"] = list(_ruler(setting, figure))
    return figure


def _from_json(
    setting: Setting, figure: Figure, matcher: Matcher, lines: bytes, size: int
) -> list[tuple[float, float]]:
    budget_s = 0.15 if setting.quick else 2.0
    try:
        return [(size, BATCH / measure.taken(matcher.match, [lines], setting.repeats, budget_s).wall_s)]
    except (EventError, MatcherError) as exc:
        note = f"NDJSON: {exc}"
        if note not in figure.notes:
            figure.notes.append(note)
        return []


def _ruler(setting: Setting, figure: Figure) -> Iterator[tuple[float, float]]:
    """The maximum number of rules: 10,000 are not built within minutes."""
    for size in (100, 1_000) if setting.quick else (100, 300, 1_000, 3_000):
        try:
            peer = ruler(size, setting.quick)
        except event_ruler.UnavailableError as exc:
            figure.notes.append(f"event-ruler, {size} rules: {exc}")
            return
        yield size, peer.events_per_s


FIGURES: dict[str, Callable[[Setting], Figure]] = {
    "figure 9(a)": by_predicates,
    "figure 9(b)": by_filters,
    "figure 9(c)": by_parallelism,
    "throughput": by_throughput,
}
