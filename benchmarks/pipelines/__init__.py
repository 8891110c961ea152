"""Services on Spark: from append to readable, under load, after a kill, and idle."""

from benchmarks.pipelines.report import run

__all__ = ["run"]
