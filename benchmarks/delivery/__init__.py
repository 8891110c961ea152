"""From ingest over HTTP, through a service on Spark, to subscribers' sockets."""

from functools import partial

from benchmarks.delivery.workloads import WORKLOADS
from benchmarks.reporting import run as _run

run = partial(_run, "delivery", WORKLOADS)

__all__ = ["run"]
