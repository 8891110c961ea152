"""From ingest over HTTP, through a service on Spark, to subscribers' sockets."""

from __future__ import annotations

from pathlib import Path


def run(quick: bool, as_json: bool, out: Path) -> None:
    """Measure."""
    # Here, as the processes that load is made in are modules of this package, and need nothing of it.
    from benchmarks.delivery.workloads import WORKLOADS
    from benchmarks.reporting import run as measure

    measure("delivery", WORKLOADS, quick, as_json, out)


__all__ = ["run"]
