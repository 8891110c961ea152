"""Delivery: from HTTP ingest, through a service on Spark, to the sockets of subscribers."""

from __future__ import annotations

from pathlib import Path


def run(quick: bool, as_json: bool, out: Path) -> None:
    """Run the delivery benchmarks."""
    # Imported here, as the load processes are modules of this package and need none of it.
    from benchmarks.delivery.workloads import WORKLOADS
    from benchmarks.reporting import run as measure

    measure("delivery", WORKLOADS, quick, as_json, out)


__all__ = ["run"]
