"""Services on Spark: from append to readable, under load, after a kill, and idle."""

from functools import partial

from benchmarks.pipelines.workloads import WORKLOADS
from benchmarks.reporting import run as _run

run = partial(_run, "pipelines", WORKLOADS)

__all__ = ["run"]
