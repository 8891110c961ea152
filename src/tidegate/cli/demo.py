"""`tidegate demo`: the filter language on a moving fleet, by all three evaluators."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidegate.cli import durations
from tidegate.errors import MissingDependency, TidegateError
from tidegate.filters import Filter

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 10_000
_CHECKED = 2_000

FILTERS = {
    "fast and from Beijing": "speed > 80 AND vid LIKE 'BJ%'",
    "buses near Tiananmen": "kind = 'BUS' AND (longitude, latitude) INSIDE CIRCLE(116.3975, 39.9087, 3000)",
    "plates nearly BJ0O017": "vid STRLIKE 'BJ0O017'",
    "rather slow, good fix": "FUZZY(speed IS slow WEIGHT 2, satellites IS TRIANGLE(4, 13, 14)) >= 0.6",
    "no speed reported": "speed IS NULL",
}
"""What five subscribers ask for: exact, by area, by edit distance, fuzzy, by absence."""


@dataclass(slots=True)
class Tally:
    """What one filter has done so far."""

    name: str
    filter: str
    events: int = 0
    matches: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Events a second that its mask took."""
        return self.events / self.seconds if self.seconds else 0.0


def demo(
    for_: Annotated[str, typer.Option("--for", help="How long to run: 10s, 2m.")] = "10s",
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Filter the positions of a simulated fleet, then check the result on Spark.

    Ctrl-C ends it early, with what it has counted.
    """
    for package in ("pyarrow", "pyspark"):
        if find_spec(package) is None:
            raise MissingDependency(package, "spark")
    limit = durations.seconds(for_)
    console = Console(stderr=as_json)
    tallies, sample = _stream(limit, console)
    agreed = _compare(sample, console)
    if as_json:
        typer.echo(json.dumps({"filters": [{**asdict(t), "rate": t.rate} for t in tallies], **agreed}, indent=2))
    if not all(agreed["equal"].values()):
        raise TidegateError(f"the evaluators disagree: {agreed}")


def _stream(limit: float, console: Console) -> tuple[list[Tally], pa.RecordBatch]:
    from tidegate.cli import fleet

    filters = {name: Filter(text, fleet.SCHEMA) for name, text in FILTERS.items()}
    tallies = {name: Tally(name, text) for name, text in FILTERS.items()}
    batches = fleet.batches(_BATCH)
    sample = next(batches)
    try:
        console.print(f"[bold]Tidegate demo[/]: 2,000 vehicles around Beijing, {len(FILTERS)} filters, {limit:g} s")
        for name, text in FILTERS.items():
            console.print(f"  {name:<22} {text}", highlight=False, soft_wrap=True)
        end = time.monotonic() + limit
        with Live(_table(tallies), console=console, refresh_per_second=4, transient=not console.is_terminal) as live:
            for batch in batches:
                for name, filter_ in filters.items():
                    _count(tallies[name], filter_, batch)
                live.update(_table(tallies))
                if time.monotonic() >= end:
                    break
    except KeyboardInterrupt:
        console.print("stopped")
    if not console.is_terminal:
        console.print(_table(tallies))
    return list(tallies.values()), sample.slice(0, _CHECKED)


def _count(tally: Tally, filter_: Filter, batch: pa.RecordBatch) -> None:
    begin = time.perf_counter()
    mask = filter_.mask(batch)
    tally.seconds += time.perf_counter() - begin
    tally.events += batch.num_rows
    tally.matches += int(mask.sum())


def _table(tallies: dict[str, Tally]) -> Table:
    table = Table(box=None, padding=(0, 2))
    table.add_column("subscriber", no_wrap=True)
    for title in ("events", "matches", "share", "events/s"):
        table.add_column(title, justify="right")
    for each in tallies.values():
        share = f"{each.matches / each.events:.2%}" if each.events else ""
        table.add_row(each.name, f"{each.events:,}", f"{each.matches:,}", share, f"{each.rate / 1e6:,.1f} M")
    return table


def _compare(sample: pa.RecordBatch, console: Console) -> dict[str, Any]:
    """Evaluate the same events one by one, over Arrow and on Spark; they must agree."""
    from tidegate.cli import fleet
    from tidegate.model import arrow
    from tidegate.pipelines import filters as on_spark
    from tidegate.pipelines import session, types

    console.print(f"checking {sample.num_rows:,} events one by one, over Arrow and on Spark ...")
    events = arrow.to_events(sample)
    spark = session.local_session("tidegate-demo")
    try:
        frame = spark.createDataFrame(
            [tuple(row.get(field.name) for field in fleet.SCHEMA.root) for row in sample.to_pylist()],
            types.to_spark(fleet.SCHEMA),
        ).cache()
        counts: dict[str, dict[str, int]] = {}
        for name, text in FILTERS.items():
            filter_ = Filter(text, fleet.SCHEMA)
            ways: dict[str, Callable[[], int]] = {
                "one by one": lambda f=filter_: sum(map(f.matches, events)),  # type: ignore[misc]
                "arrow": lambda f=filter_: int(f.mask(sample).sum()),  # type: ignore[misc]
                "spark": lambda f=filter_: on_spark.where(frame, f).count(),  # type: ignore[misc]
            }
            counts[name] = {way: run() for way, run in ways.items()}
            console.print(f"  {name:<22} " + "  ".join(f"{way} {n:,}" for way, n in counts[name].items()))
    finally:
        spark.stop()
    equal = {name: len(set(found.values())) == 1 for name, found in counts.items()}
    console.print("[green]all three agree[/]" if all(equal.values()) else "[red]they disagree[/]")
    return {"counts": counts, "equal": equal}
