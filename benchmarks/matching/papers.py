"""The times of the papers, compared with measured ones.

The fuzzy paper gives 0.21 ms for an event by fuzzy matching and 0.46 ms by the
matching tree, in C++; it does not say for how many subscriptions. Here: 1,000 of
three attributes. SDaaS bounds the time of an event in a part of the improved tree
(formula 2); it assumes equalities over equally likely values, so they are drawn so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import measure
from benchmarks.matching import workloads
from benchmarks.matching.harness import Row, Setting, SkippedError, compared, events, filled, row, skipped, speed
from tidegate import Filter, Schema
from tidegate.matching import Matcher
from tidegate.matching import events as forms

FUZZY_MS, TREE_MS = 0.21, 0.46


def fuzzy(setting: Setting) -> Iterator[Row]:
    """Time per event of 1,000 groups, and of 1,000 conjunctions of windows in the tree."""
    some = workloads.batch(events(2_000, 41))
    singles = [some.slice(n, 1) for n in range(200)]
    try:
        tree = filled(workloads.FUZZY.crisp(), "tree", limit_s=5.0 if setting.quick else 120.0)
    except SkippedError as exc:
        yield skipped("1,000 conjunctions, tree", str(exc))
        return
    ours = filled(workloads.FUZZY.filters())
    for form, size, inputs in (("batches of 2,000", some.num_rows, [some]), ("one event at a time", 1, singles)):
        slow = _ms(speed(setting, tree, inputs), size)
        fast = _ms(speed(setting, ours, inputs), size)
        yield row(f"1,000 conjunctions, tree, {form}", slow, "ms an event", paper=TREE_MS)
        beside = compared(fast, "the tree", slow) | {"paper": FUZZY_MS, "paper_ratio": FUZZY_MS / TREE_MS}
        yield row(f"1,000 fuzzy groups, columnar, {form}", fast, "ms an event", **beside)


def _ms(taken: measure.Taken, size: int) -> float:
    return taken.wall_s / size * 1e3


VALUES, ATTRIBUTES, ASKED = 10, 6, 3
EQUALITIES = 1_000


def formula_2(setting: Setting) -> Iterator[Row]:
    """Time per event in one part of the improved tree, for 1,000 conjunctions and a growing number of parts."""
    bound = _cost_bound()
    names = "abcdef"[:ATTRIBUTES]
    rng = np.random.default_rng(6)
    schema = Schema(dict.fromkeys(names, "int32"))
    filters = []
    for _ in range(EQUALITIES):
        chosen = rng.choice(ATTRIBUTES, ASKED, replace=False)
        filters.append(Filter(" AND ".join(f"{names[n]} = {rng.integers(VALUES)}" for n in chosen), schema))
    some = pa.RecordBatch.from_pydict({n: rng.integers(0, VALUES, 1_000).astype("int32") for n in names})
    step_s = 0.0
    for parts in (1, 2, 4, 8):
        size = EQUALITIES // parts
        matcher = filled(filters[:size], "improved-tree", schema=schema)
        took_s = speed(setting, matcher, [some]).wall_s / some.num_rows
        work = _work(matcher, some)
        # Assumes that a visit and a verification cost the same: the average cost of a step in the whole tree.
        step_s = step_s or took_s / (work.visits + work.verifications) * some.num_rows
        yield row(
            f"{size:,} conditions, one of {parts} parts",
            took_s * 1e3,
            "ms an event",
            bound_ms=bound(size, VALUES, ATTRIBUTES, step_s, step_s) * 1e3,
            visits=work.visits / some.num_rows,
            verifications=work.verifications / some.num_rows,
        )


def _cost_bound() -> Callable[[int, int, int, float, float], float]:
    try:
        found: Callable[[int, int, int, float, float], float] = import_module(
            "tidegate.research.improved_tree"
        ).cost_bound
    except (ImportError, AttributeError):
        raise SkippedError("there is no improved tree with a bound of its cost") from None
    return found


def _work(matcher: Matcher, batch: Any) -> Any:
    """Return the numbers of visited and verified predicates, from the internals of the index."""
    counted = getattr(matcher._index, "work", None)
    if counted is None:
        raise SkippedError("the improved tree does not count its work")
    return counted(forms.read_batch(batch))
