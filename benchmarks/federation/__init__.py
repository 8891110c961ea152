"""Routing by covering: table size, control messages and traffic of each strategy, and the cost of a change."""

from functools import partial

from benchmarks.federation.workloads import WORKLOADS
from benchmarks.reporting import run as _run

run = partial(_run, "federation", WORKLOADS)

__all__ = ["run"]
