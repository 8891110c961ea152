"""Discovery: search by attributes over a million services, the papers' tables and figures, whole requests."""

from __future__ import annotations

from pathlib import Path

from benchmarks import reporting
from benchmarks.discovery import papers, registries
from benchmarks.reporting import Setting, Workload

WORKLOADS: dict[str, Workload] = {
    "a million": registries.million,  # first: what it takes of memory is told from what the process had
    "bitmaps": registries.bitmaps,
    "directory": registries.directory,
    "fuzzy": papers.fuzzy_services,
    "formula 2": papers.formula_2,
    "table IV": papers.table_iv,
}


def run(quick: bool, as_json: bool, out: Path) -> None:
    """Measure everything, print it, and write `discovery.json` and the paper's figures to `out/discovery`."""
    reporting.run("discovery", WORKLOADS, quick, as_json, out)
    for name, chart in papers.figures(Setting(quick)).items():
        (out / "discovery" / f"{name}.svg").write_text(chart)
