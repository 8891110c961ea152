"""Runs all measurements of the matcher, prints them and writes them to one folder."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import measure
from benchmarks.charts import shown
from benchmarks.matching import batches, large, million, papers
from benchmarks.matching.figures import FIGURES, Figure
from benchmarks.matching.harness import Row, Setting, SkippedError, skipped
from benchmarks.peers import event_ruler

STEPS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "1,000 filters": batches.thousand,
    "10,000 filters": batches.ten_thousand,
    "fuzzy groups": batches.fuzzy,
    "the fuzzy paper, beside it 0.21 ms and 0.46 ms": papers.fuzzy,
    "SDaaS, formula 2": papers.formula_2,
    "100,000 filters": large.hundred_thousand,
    "1,000,000 filters": million.million,
}
"""Each yields rows. The large ones come last: with `--quick` they get the remaining time."""
QUICK_S = 112.0
"""The time limit of `--quick`, below two minutes."""


def run(quick: bool, as_json: bool, out: Path) -> None:
    """Measure everything, print it, and write `matching.json` and the figures to `out/matching`."""
    console = Console(stderr=as_json)
    folder = out / "matching"
    results = _measured(quick, console, folder)
    path = measure.write(folder, "matching", results)
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        _print(console, results)
        console.print(f"written to {path.parent}: {', '.join(sorted(p.name for p in path.parent.iterdir()))}")


def _measured(quick: bool, console: Console, folder: Path) -> dict[str, Any]:
    begin = time.perf_counter()
    results: dict[str, Any] = {
        "benchmark": "matching",
        "quick": quick,
        "environment": measure.environment() | {"event-ruler": event_ruler.version()},
    }
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress, _one_thread():
        task = progress.add_task("matching", total=len(STEPS) + len(FIGURES))
        until = begin + QUICK_S if quick else math.inf
        setting = Setting(quick, lambda text: progress.update(task, description=text), until)
        spent: dict[str, float] = {}
        results["tables"], results["figures"] = tables, figures = {}, {}
        for name, draw in FIGURES.items():
            setting.say(name)
            figure = draw(setting)
            figures[figure.name] = figure.to_dict()
            _write(folder, figure)
            spent[name] = round(time.perf_counter() - begin - sum(spent.values()), 1)
            progress.advance(task)
        for name, step in STEPS.items():
            setting.say(name)
            tables[name] = _rows(name, step, setting)
            spent[name] = round(time.perf_counter() - begin - sum(spent.values()), 1)
            progress.advance(task)
    return results | {"took_s": spent}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit Arrow's thread pool to one thread: the targets are for one core."""
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(before)


def _rows(name: str, step: Callable[[Setting], Iterator[Row]], setting: Setting) -> list[Row]:
    rows: list[Row] = []
    try:
        rows.extend(step(setting))
    except SkippedError as exc:
        rows.append(skipped(name, str(exc)))
    return rows


def _write(folder: Path, figure: Figure) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{figure.name}.svg").write_text(figure.to_svg())


_SHOWN = {"what", "value", "unit", "target", "met", "per_cpu_s", "peer", "peer_value", "ratio", "skipped"}


def _print(console: Console, results: dict[str, Any]) -> None:
    console.print("{cpu}, {cores} cores, Python {python}, commit {commit}".format(**results["environment"]))
    for name, rows in results["tables"].items():
        table = Table(title=name, title_justify="left", box=None, padding=(0, 2))
        for title in ("what", "measured", "per CPU second", "target", "met", "beside"):
            table.add_column(title)
        for row in rows:
            table.add_row(*_cells(row))
        console.print(table)
    for figure in results["figures"].values():
        console.print(_figure_table(figure) if any(figure["series"].values()) else f"{figure['title']}: not measured")
        for note in figure["notes"]:
            console.print(f"  {note}", style="dim", markup=False)
    console.print(f"took {sum(results['took_s'].values()):.0f} s")


def _cells(row: Row) -> list[str]:
    if "skipped" in row:
        return [row["what"], "skipped", "", "", "", row["skipped"]]
    beside = [f"{row['peer']}: {shown(row['peer_value'])}, ratio {shown(row['ratio'])}"] if "peer" in row else []
    beside += [
        f"{name} {shown(value) if isinstance(value, float) else value}"
        for name, value in row.items()
        if name not in _SHOWN
    ]
    met = {True: "[green]yes[/green]", False: "[red]no[/red]", None: ""}[row.get("met")]
    per_cpu = shown(row["per_cpu_s"]) if "per_cpu_s" in row else ""
    return [row["what"], f"{shown(row['value'])} {row['unit']}", per_cpu, row.get("target", ""), met, ", ".join(beside)]


def _figure_table(figure: dict[str, Any]) -> Table:
    table = Table(title=f"{figure['title']} ({figure['y']})", title_justify="left", box=None, padding=(0, 2))
    xs = sorted({x for points in figure["series"].values() for x, _ in points})
    for title in (figure["x"], *(f"{x:,g}" for x in xs)):
        table.add_column(title)
    for name, points in figure["series"].items():
        found = dict(points)
        table.add_row(name, *(shown(found[x]) if x in found else "" for x in xs))
    return table
