"""Runs the workloads, prints and writes their results."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import measure
from benchmarks.charts import Points, line_chart, shown

ONLY = "TIDEGATE_BENCH_ONLY"
"""Names of the workloads to run, separated by commas."""


Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """How long to measure."""

    quick: bool

    @property
    def warm_s(self) -> float:
        """The warm-up, which is not measured: the JVM compiles, and the backlog is processed."""
        return 20.0

    @property
    def measured_s(self) -> float:
        """The measured time."""
        return 10.0 if self.quick else 30.0


Workload = Callable[[Setting], Iterator[Row]]


def measured(what: str, value: float, unit: str, most: float | None = None, least: float | None = None) -> Row:
    """Return the row of a measured value. `most` and `least` are the bounds of its target."""
    found: Row = {"what": what, "value": value, "unit": unit}
    if most is not None and least is not None:
        return found | {"target": f"{least:g} to {most:g} {unit}", "met": least <= value <= most}
    if most is not None:
        found |= {"target": f"at most {most:g} {unit}", "met": value <= most}
    if least is not None:
        found |= {"target": f"at least {least:g} {unit}", "met": value >= least}
    return found


def plot(title: str, x: str, y: str, series: Mapping[str, Points], *, log: bool = True) -> dict[str, Any]:
    """Return a chart for the `charts` of a row, which are keyed by file name. `log`: logarithmic y axis."""
    return {"title": title, "x": x, "y": y, "series": series, "log": log}


def run(area: str, workloads: Mapping[str, Workload], quick: bool, as_json: bool, out: Path) -> None:
    """Measure everything, print it, and write JSON and plots to a folder of the area's name."""
    console = Console(stderr=as_json)
    results: dict[str, Any] = {"benchmark": area, "quick": quick, "environment": measure.environment()}
    wanted = [name for name in os.environ.get(ONLY, "").split(",") if name] or list(workloads)
    tables: dict[str, list[Row]] = {}
    spent: dict[str, float] = {}
    for name in wanted:
        console.print(f"{name} ...", style="dim")
        begun = time.monotonic()
        with _ending_in_order():
            tables[name] = list(workloads[name](Setting(quick)))
        spent[name] = round(time.monotonic() - begun, 1)
        if not as_json:
            _print(console, name, tables[name])
    results |= {"tables": tables, "took_s": spent, "load_average": os.getloadavg()}
    path = measure.write(out / area, area, results)
    for name, rows in tables.items():
        for n, row in enumerate(each for each in rows if "by_second" in each):
            title = row["what"].rpartition(":")[0]
            chart = line_chart(title, "seconds", "milliseconds", row["by_second"], log_x=False)
            (path.parent / f"{name}{n or ''}.svg").write_text(chart)
        for file, chart in ((file, each) for row in rows for file, each in row.get("charts", {}).items()):
            logs = {"log_x": chart.get("log_x", False), "log_y": chart["log"]}
            drawn = line_chart(chart["title"], chart["x"], chart["y"], chart["series"], **logs)
            (path.parent / f"{file}.svg").write_text(drawn)
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        console.print(f"took {sum(spent.values()):.0f} s, load average {os.getloadavg()[0]:.1f}; written to {path}")


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """End the started processes on SIGTERM, as on Ctrl-C."""

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print(console: Console, name: str, rows: list[Row]) -> None:
    table = Table(title=name, title_justify="left", box=None, padding=(0, 2))
    for title in ("what", "measured", "target", "met", "beside"):
        table.add_column(title)
    for row in rows:
        met = {True: "[green]yes[/green]", False: "[red]no[/red]", None: ""}[row.get("met")]
        beside = f"{row['peer']}: {shown(row['peer_value'])}, ratio {shown(row['ratio'])}" if "peer" in row else ""
        table.add_row(row["what"], f"{shown(row['value'])} {row['unit']}", row.get("target", ""), met, beside)
    console.print(table)
