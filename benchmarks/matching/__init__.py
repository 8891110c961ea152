"""The matching engine: its targets, the papers' figures, event-ruler beside it."""

from benchmarks.matching.report import run

__all__ = ["run"]
