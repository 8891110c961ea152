"""The maximum deliveries per second of one gateway, in rising steps, compared with a plain server."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.delivery.events import STREAM
from benchmarks.delivery.harness import Serving, appending, gateway_alone, listening, make_streams, of, serving
from benchmarks.delivery.listeners import Wanted
from benchmarks.reporting import Row, Setting, measured, plot

SERVICES = f"""
streams: {{taxi: {STREAM}}}
services: {{gps: {{from: taxi}}}}
"""
EVENTS = 2_000
"""Events per second."""
CELLS = 1_000
SUBSCRIBERS = 500
STEPS = (5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 75_000, 100_000)
"""Deliveries per second."""
QUICK_STEPS = (5_000, 20_000, 50_000)
TARGET = 50_000
MOST_MS = 100.0
KEEPS_UP = 0.98


@dataclass(frozen=True, slots=True)
class Step:
    """The results of a server at a number of deliveries per second."""

    due: int
    delivered: float
    p50_ms: float
    p99_ms: float
    cpu: float
    """CPU of the server, as a share of a core."""
    listeners_cpu: float
    """CPU of the subscribers, as a share of a core; near 1, they are the bottleneck."""

    @property
    def goes(self) -> bool:
        """True if the server kept up with the rate and the latency target."""
        return self.p99_ms <= MOST_MS and self.delivered >= KEEPS_UP * self.due

    @property
    def micros(self) -> float:
        """The server's CPU time per delivery."""
        return 1e6 * self.cpu / max(1.0, self.delivered)


SHOWN: tuple[tuple[str, str, Callable[[Step], float]], ...] = (
    ("p50", "ms", lambda each: each.p50_ms),
    ("p99", "ms", lambda each: each.p99_ms),
    ("delivered", "1/s", lambda each: each.delivered),
    ("CPU of the server", "% of a core", lambda each: 100 * each.cpu),
    ("CPU of a delivery", "µs", lambda each: each.micros),
    ("CPU of the subscribers", "% of a core", lambda each: 100 * each.listeners_cpu),
)


def windows(deliveries: int, subscribers: int = SUBSCRIBERS, events: int = EVENTS, cells: int = CELLS) -> list[Wanted]:
    """Return subscriptions that together get a number of deliveries per second; each selects a window of cells.

    All cells are equally frequent, so it does not matter where the windows are.
    """
    width = round(deliveries / events / subscribers * cells)
    if not 1 <= width <= cells:
        raise ValueError(f"expected 1 to {cells} cells for each subscriber, not {width}")
    lows = [n * (cells - width) // max(1, subscribers - 1) for n in range(subscribers)]
    return [Wanted("gps", f"cell BETWEEN {low} AND {low + width - 1}") for low in lows]


def climb(steps: tuple[int, ...], measure: Callable[[int], Step]) -> list[Step]:
    """Measure the steps, up to the first one that fails."""
    found: list[Step] = []
    for due in steps:
        found.append(measure(due))
        if not found[-1].goes:
            break
    return found


def fanout(setting: Setting) -> Iterator[Row]:
    """500 SSE subscribers, each to a growing share of 2,000 events per second, appended to the log without Spark."""
    servers: Mapping[str, Callable[[], AbstractContextManager[Serving]]] = {
        "gateway": lambda: gateway_alone(SERVICES),
        "queues": _queues,
    }
    steps = QUICK_STEPS if setting.quick else STEPS
    warm_s, measured_s = (1.0, 3.0) if setting.quick else (5.0, 15.0)
    climbed = {}
    for name, server in servers.items():
        with server() as up:
            climbed[name] = climb(steps, lambda due, up=up: _step(up, due, warm_s, measured_s))  # type: ignore[misc]
    yield from rows(climbed)


def rows(climbed: Mapping[str, list[Step]]) -> Iterator[Row]:
    """Yield rows with the results of the gateway and of the plain server."""
    peers = {each.due: each for each in climbed["queues"]}
    what = f"{SUBSCRIBERS} SSE subscribers, {EVENTS:,} events/s"
    for each in climbed["gateway"]:
        step, peer = f"{what}, {each.due:,} deliveries/s", peers.get(each.due)
        for name, unit, value in SHOWN:
            yield measured(f"{step}: {name}", value(each), unit) | _beside(
                value(each), None if peer is None else value(peer)
            )
    ends = {name: max((each.delivered for each in steps if each.goes), default=0.0) for name, steps in climbed.items()}
    charts = {}
    for name, unit, value in SHOWN:
        series = {
            server: [(each.due, min(1e6, max(1e-2, value(each)))) for each in steps]
            for server, steps in climbed.items()
        }
        charts[f"fanout-{name.replace(' ', '-').lower()}"] = plot(f"{what}: {name}", "deliveries/s", unit, series)
    most = measured(f"{what}: most deliveries in time", ends["gateway"], "1/s", least=KEEPS_UP * TARGET)
    yield most | _beside(ends["gateway"], ends["queues"]) | {"charts": charts}


def _beside(value: float, peer: float | None) -> Row:
    return {} if not peer else {"peer": "queues", "peer_value": peer, "ratio": value / peer}


def _step(up: Serving, due: int, warm_s: float, measured_s: float) -> Step:
    with (
        listening(up.port, windows(due)) as subscribers,
        appending(up.log, ["gps"], EVENTS, warm_s + measured_s + 1, CELLS),
    ):
        time.sleep(warm_s)
        before, began, cpu_s = subscribers.ask(), time.monotonic(), up.cpu_s()
        time.sleep(measured_s)
        cpu_s, found, spent = up.cpu_s() - cpu_s, subscribers.ask(), time.monotonic() - began
    theirs = (found["cpu_s"] - before["cpu_s"]) / spent
    return Step(due, found["count"] / spent, of(found, "p50"), of(found, "p99"), cpu_s / spent, theirs)


@contextmanager
def _queues() -> Iterator[Serving]:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        folder = Path(name)
        make_streams(folder, ["gps"])
        with serving(folder, [sys.executable, "-m", "benchmarks.peers.queues", str(folder / "log"), "gps"]) as found:
            yield found
