"""Runs the workloads, prints and writes what they measured."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import measure
from benchmarks.matching.charts import line_chart, shown
from benchmarks.pipelines.workloads import WORKLOADS, Row, Setting

ONLY = "TIDEGATE_BENCH_ONLY"
"""Names of workloads, by commas: just these."""


def run(quick: bool, as_json: bool, out: Path) -> None:
    """Measure everything, print it, and write `pipelines.json` and plots to `out/pipelines`."""
    console = Console(stderr=as_json)
    results: dict[str, Any] = {"benchmark": "pipelines", "quick": quick, "environment": measure.environment()}
    wanted = [name for name in os.environ.get(ONLY, "").split(",") if name] or list(WORKLOADS)
    tables: dict[str, list[Row]] = {}
    spent: dict[str, float] = {}
    for name in wanted:
        console.print(f"{name} ...", style="dim")
        begun = time.monotonic()
        tables[name] = list(WORKLOADS[name](Setting(quick)))
        spent[name] = round(time.monotonic() - begun, 1)
        if not as_json:
            _print(console, name, tables[name])
    results |= {"tables": tables, "took_s": spent, "load_average": os.getloadavg()}
    path = measure.write(out / "pipelines", "pipelines", results)
    for name, rows in tables.items():
        for n, row in enumerate(each for each in rows if "by_second" in each):
            title = row["what"].rpartition(":")[0]
            chart = line_chart(title, "seconds", "milliseconds", row["by_second"], log_x=False)
            (path.parent / f"{name}{n or ''}.svg").write_text(chart)
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        console.print(f"took {sum(spent.values()):.0f} s, load average {os.getloadavg()[0]:.1f}; written to {path}")


def _print(console: Console, name: str, rows: list[Row]) -> None:
    table = Table(title=name, title_justify="left", box=None, padding=(0, 2))
    for title in ("what", "measured", "target", "met", "beside"):
        table.add_column(title)
    for row in rows:
        met = {True: "[green]yes[/green]", False: "[red]no[/red]", None: ""}[row.get("met")]
        beside = f"{row['peer']}: {shown(row['peer_value'])}, ratio {shown(row['ratio'])}" if "peer" in row else ""
        table.add_row(row["what"], f"{shown(row['value'])} {row['unit']}", row.get("target", ""), met, beside)
    console.print(table)
