"""Runs the five services of a bus fleet over a day and compares all that they find with pandas."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from examples.fleet import expected, feed
from tidegate import Client
from tidegate.services import load

SERVICES = Path(__file__).with_name("fleet.yaml")
KEY = b"the example's key"
START_S = 180
QUIET_S = 60
"""How long nothing may happen before what is missing counts as missing."""
PAGE = 5_000
_TIME = re.compile(r"\d{4}-\d\d-\d\dT")
_READY = re.compile(r"ready: ([^\s,]+)")


def main() -> int:
    """Parse the arguments, run the services and print a row for each; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m examples.fleet", description=__doc__)
    parser.add_argument("day", nargs="?", type=Path, help="positions as CapMetrics publishes them; default: invented")
    parser.add_argument("--services", type=Path, default=SERVICES, help="fleet.yaml with other thresholds")
    parser.add_argument("--seed", type=int, default=1, help="of invented positions")
    parser.add_argument("--minutes", type=int, default=120, help="of invented positions")
    options = parser.parse_args()
    positions = feed.real_day(options.day) if options.day else feed.invented(options.seed, minutes=options.minutes)
    with tempfile.TemporaryDirectory() as folder, started(options.services, Path(folder)) as url:
        problems = compare(url, positions, options.services)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


@contextlib.contextmanager
def started(services: Path, folder: Path) -> Iterator[str]:
    """Run `tidegate up` on a service file, and give the address of its API."""
    command = [sys.executable, "-m", "tidegate", "up", str(services), "--data", str(folder / "data"), "--port", "0"]
    log = folder / "up.txt"
    with log.open("w") as written:
        env = {**os.environ, "TIDEGATE_MASK_KEY": KEY.decode()}
        process = subprocess.Popen(command, stdout=written, stderr=written, env=env)
    try:
        deadline = time.monotonic() + START_S
        while (ready := _READY.search(log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"tidegate up did not start:\n{log.read_text()}")
            time.sleep(0.1)
        yield ready[1]
    finally:
        process.terminate()
        process.wait(60)


def compare(url: str, positions: pd.DataFrame, services: Path) -> list[str]:
    """Publish positions, wait for the results, and return how they differ from those of pandas."""
    limits = expected.thresholds(load([services]))
    with Client(url) as client:
        begin = time.monotonic()
        client.publish("positions", (_event(row) for row in positions.to_dict("records")))
        clean = expected.cleaned(positions, limits, KEY)
        found = await_rows(client, "cleaned", len(clean))
        problems = differences("cleaned", clean, found)
        if problems:
            return problems
        wanted = expected.results(clean, limits)
        for name, rows in wanted.items():
            found = await_rows(client, name, len(rows))
            problems += (differ := differences(name, rows, found))
            verdict = "as pandas computes it" if not differ else "DIFFERS"
            print(f"{name:16} {client.status(name)['mode']:12} {len(found):7} results, {verdict}", flush=True)
        print(f"{len(positions)} positions in {time.monotonic() - begin:.0f} s")
    return problems


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    at = row["time"].isoformat()
    return {**row, "time": at, "_id": f"{row['vehicle']}/{at}"}


def await_rows(client: Client, service: str, count: int) -> pd.DataFrame:
    """Read a service until it has so many events, or nothing has come for a while."""
    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    quiet_since = time.monotonic()
    while True:
        page = client.events(
            service, cursor=cursor, since=None if cursor else "beginning", most=PAGE, wait=1.0, format="plain"
        )
        rows += [dict(event.data) for event in page.events]
        cursor = page.cursor
        if page.events:
            quiet_since = time.monotonic()
        elif len(rows) >= count or time.monotonic() - quiet_since > QUIET_S:
            return pd.DataFrame(rows)


def differences(service: str, wanted: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    """What is missing, what is too much: numbers are equal if they are to six digits."""
    measured = [name for name in wanted.columns if pd.api.types.is_float_dtype(wanted[name])]
    exact = [name for name in wanted.columns if name not in measured]
    left, right = _rows(wanted, exact, measured), _rows(found, exact, measured)
    differ = [key for key in {**left, **right} if not _equal(left.get(key, []), right.get(key, []))]
    return [
        f"{service}: {dict(zip(exact, key, strict=True))}: expected {left.get(key)}, found {right.get(key)}"
        for key in differ[:5]
    ]


def _rows(
    frame: pd.DataFrame, exact: list[str], measured: list[str]
) -> dict[tuple[object, ...], list[tuple[float, ...]]]:
    """The measured values of the rows that agree in all others."""
    found: dict[tuple[object, ...], list[tuple[float, ...]]] = {}
    frame = frame.reindex(columns=[*exact, *measured])
    for row in frame.itertuples(index=False, name=None):
        key = tuple(map(_comparable, row[: len(exact)]))
        found.setdefault(key, []).append(row[len(exact) :])
    return {key: sorted(rows) for key, rows in found.items()}


def _equal(left: list[tuple[float, ...]], right: list[tuple[float, ...]]) -> bool:
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
        for one, other in zip(left, right, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def _comparable(value: object) -> object:
    """A time in UTC, whatever its form; other values as they are."""
    if isinstance(value, pd.Timestamp) or (isinstance(value, str) and _TIME.match(value)):
        return pd.Timestamp(value).tz_convert("UTC").floor("us").isoformat()
    return value


if __name__ == "__main__":
    sys.exit(main())
