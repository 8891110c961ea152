"""Brokers that route by covering: what each strategy keeps, says and carries, and what a change costs."""

from functools import partial

from benchmarks.federation.workloads import WORKLOADS
from benchmarks.reporting import run as _run

run = partial(_run, "federation", WORKLOADS)

__all__ = ["run"]
