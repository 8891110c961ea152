"""The matching engine: its targets, the papers' figures, and a comparison with event-ruler."""

from benchmarks.matching.report import run

__all__ = ["run"]
