"""Compare this checkout with another commit in one run: `make bench-compare BASE=COMMIT`.

Both serve the same load in turn, round by round, with API keys required. The load generators are always those of this
checkout. A ratio is the median over rounds of (this checkout / base): the machine may be shared, and what both suffer
from cancels out. A ratio whose rounds disagree on the direction is called noise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import measure
from benchmarks.delivery.events import STREAM
from benchmarks.delivery.fanout import CELLS, EVENTS, windows
from benchmarks.delivery.harness import Serving, appending, listening, make_streams, of, sending, serving

HERE = Path(__file__).parents[1]
KEY_VARIABLE = "TIDEGATE_KEY"
SERVICES = f"streams: {{taxi: {STREAM}, free: {STREAM}}}\nservices: {{gps: {{from: taxi}}}}\n"
DELIVERIES_PER_S = 20_000
NOISE = 0.05
"""A difference up to this share, in either direction, is noise."""

Figures = Mapping[str, float]
"""Measured values by name; lower is better for all of them."""
Load = Callable[[Serving, float], Figures]


@dataclass(frozen=True, slots=True)
class Compared:
    """One measured value of both sides over all rounds."""

    name: str
    base: float
    head: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios; above 1, this checkout is slower."""
        return statistics.median(self.ratios)

    @property
    def verdict(self) -> str:
        """Return `slower` or `faster` only if the difference exceeds the noise and three rounds in four agree."""
        if abs(self.ratio - 1) <= NOISE:
            return "noise"
        agreeing = sum((each > 1) == (self.ratio > 1) for each in self.ratios)
        if agreeing < 0.75 * len(self.ratios):
            return "noise"
        return "slower" if self.ratio > 1 else "faster"


def compare(name: str, base: list[Figures], head: list[Figures]) -> list[Compared]:
    """Compare two lists of rounds.

    >>> compare("ingest", [{"us": 10.0}, {"us": 12.0}], [{"us": 11.0}, {"us": 12.0}])[0].verdict
    'noise'
    """
    return [
        Compared(
            f"{name}: {figure}",
            statistics.median(each[figure] for each in base),
            statistics.median(each[figure] for each in head),
            tuple(new[figure] / max(1e-9, old[figure]) for old, new in zip(base, head, strict=True)),
        )
        for figure in base[0]
    ]


def delivery(server: Serving, seconds: float) -> Figures:
    """500 SSE subscribers with keys, 20,000 deliveries per second, appended to the log without Spark."""
    warm_s = 1.0
    with (
        listening(server.port, windows(DELIVERIES_PER_S)) as subscribers,
        appending(server.log, ["gps"], EVENTS, warm_s + seconds + 1, CELLS),
    ):
        time.sleep(warm_s)
        subscribers.ask()
        cpu_s = server.cpu_s()
        time.sleep(seconds)
        came, cpu_s = subscribers.ask(), server.cpu_s() - cpu_s
    return {
        "CPU of a delivery, µs": 1e6 * cpu_s / max(1, came["count"]),
        "p50, ms": of(came, "p50"),
        "p99, ms": of(came, "p99"),
    }


def ingest(size: int) -> Load:
    """Return a load of requests with `size` events each, sent one after the other on one connection."""

    def load(server: Serving, seconds: float) -> Figures:
        with sending(server.port, "free", 0, 0.5, CELLS, size) as warm:
            warm.hear()
        cpu_s = measure.group_cpu_s(server.group)
        with sending(server.port, "free", 0, seconds, CELLS, size) as sender:
            count, spent_s = json.loads(sender.hear())
        cpu_s = measure.group_cpu_s(server.group) - cpu_s
        return {"time of an event, µs": 1e6 * spent_s / count, "CPU of an event, µs": 1e6 * cpu_s / count}

    return load


LOADS: Mapping[str, Load] = {
    "delivery": delivery,
    "ingest, 1 event a request": ingest(1),
    "ingest, 500 events a request": ingest(500),
}


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Yield a folder with the files of a commit; it is removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="tidegate-base-") as name:
        folder = Path(name) / "base"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", str(folder), commit], cwd=HERE, check=True)
        try:
            yield folder
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=HERE, check=True)


@contextmanager
def gateway_with_keys(tree: Path) -> Iterator[Serving]:
    """Serve from the sources of a tree, with keys required; the environment's key variable is set meanwhile."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        folder = Path(name)
        (folder / "services.yaml").write_text(SERVICES)
        (folder / "profile.yaml").write_text("access: {required: true}\n")
        # Sets the source folder, too: `serving` starts its process with this environment.
        os.environ["PYTHONPATH"] = str(tree / "src")
        _tidegate("apply", str(folder / "services.yaml"), "--data", name)
        os.environ[KEY_VARIABLE] = _tidegate("keys", "create", "bench", "--role", "admin", "--data", name).strip()
        make_streams(folder, ["gps", "free"])
        command = [sys.executable, "-m", "tidegate", "gateway", "--data", name, "--port", "0"]
        with serving(folder, [*command, "--profile", str(folder / "profile.yaml")]) as server:
            os.environ["PYTHONPATH"] = str(HERE / "src")
            yield server


def _tidegate(*args: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *args], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main() -> None:
    """Run all loads on both sides, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--out", default="benchmarks/results")
    given = parser.parse_args()
    console = Console()
    figures: dict[str, dict[str, list[Figures]]] = {name: {"base": [], "head": []} for name in LOADS}
    with checkout(given.base) as base:
        for round_ in range(given.rounds):
            sides = [("base", base), ("head", HERE)]
            for side, tree in sides if round_ % 2 == 0 else reversed(sides):
                console.print(f"round {round_ + 1} of {given.rounds}, {side} ...", style="dim")
                for name, load in LOADS.items():
                    with gateway_with_keys(tree) as server:
                        figures[name][side].append(load(server, given.seconds))
    rows = [row for name, sides_ in figures.items() for row in compare(name, sides_["base"], sides_["head"])]
    table = Table(title=f"this checkout against {given.base}, keys required", title_justify="left", box=None)
    for title in ("what", "base", "head", "ratio", "rounds", "verdict"):
        table.add_column(title)
    for row in rows:
        spread = f"{min(row.ratios):.2f} to {max(row.ratios):.2f}"
        table.add_row(row.name, f"{row.base:.2f}", f"{row.head:.2f}", f"{row.ratio:.3f}", spread, row.verdict)
    console.print(table)
    written = {"base": given.base, "environment": measure.environment(), "rounds": figures}
    console.print(f"written to {measure.write(Path(given.out), 'compare', written)}")


if __name__ == "__main__":
    main()
