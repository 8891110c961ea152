"""The engines that a `Matcher` can use, by name."""

from __future__ import annotations

from importlib import import_module

from tidegate.errors import MatcherError, did_you_mean
from tidegate.matching.columnar import ColumnarIndex
from tidegate.matching.index import Index
from tidegate.matching.rows import Axes
from tidegate.matching.scan import ScanIndex
from tidegate.model.schema import Schema

RESEARCH_ENGINES = {
    "tree": ("tree", "TreeIndex"),
    "improved-tree": ("improved_tree", "ImprovedTreeIndex"),
    "counting": ("counting", "CountingIndex"),
}
"""Engines in `tidegate.research`: module and class. Loaded by name, because research imports matching."""

ENGINES = ("columnar", "scan", *RESEARCH_ENGINES)
"""The names that `Matcher(engine=...)` accepts; the first is the default."""

PARALLEL_ENGINES = ("improved-tree",)
"""Engines that can match in several worker processes."""


def build_index(engine: str, schema: Schema | None, axes: Axes, workers: int = 1) -> Index:
    """Return an empty index of the named engine.

    Raises `MatcherError` if the engine is unknown, if `workers` is not a positive integer, or if the engine can't use
    more than one worker.
    """
    if engine not in ENGINES:
        hint = did_you_mean(engine, ENGINES) or f"; expected one of {', '.join(ENGINES)}"
        raise MatcherError(f"unknown engine {engine!r}{hint}")
    _check_workers(engine, workers)
    if engine == "columnar":
        return ColumnarIndex(schema, axes)
    if engine == "scan":
        return ScanIndex()
    module, class_name = RESEARCH_ENGINES[engine]
    index_class = getattr(import_module(f"tidegate.research.{module}"), class_name)
    index: Index = index_class() if workers == 1 else index_class(workers)
    return index


def _check_workers(engine: str, workers: int) -> None:
    if not isinstance(workers, int) or workers < 1:
        raise MatcherError(f"workers: expected a whole number from 1, not {workers!r}")
    if workers > 1 and engine not in PARALLEL_ENGINES:
        parallel = " or ".join(map(repr, PARALLEL_ENGINES))
        raise MatcherError(
            f"engine {engine!r} matches in one process: use workers=1, not {workers}, or the engine {parallel}"
        )
