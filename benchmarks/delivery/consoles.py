"""Five consoles in a real browser: their effect on the latency of subscribers, and on the gateway's CPU."""

from __future__ import annotations

import json
import statistics
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.delivery.events import STREAM
from benchmarks.delivery.harness import Helper, Serving, appending, gateway_alone, helper, listening, of
from benchmarks.delivery.listeners import Wanted
from benchmarks.reporting import Row, Setting, measured, plot
from benchmarks.significance import by_signs
from tidegate.logs import SegmentLog
from tidegate.pipelines import status

OTHERS = 20
"""Further services, which the overview lists."""
SERVICES = "\n".join(
    (
        f"streams: {{taxi: {STREAM}}}",
        "services:",
        "  gps: {from: taxi}",
        *(f"  fast{n}: {{from: gps, pipeline: [{{filter: speed > {n}}}]}}" for n in range(OTHERS)),
    )
)
PATHS = ("", "services/gps", "subscriptions", "discover", "services/gps/workbench?filter=speed %3E%3D 60")
"""The five open pages; the last has a live tail of half of all events, 500 per second."""
EVENTS = 1_000
LISTENERS = 500
DURABLE = 20
ENDLESS_S = 3_600.0
"""Events are sent until the last phase ends: on a busy machine pages open slowly."""
CHANCE = 0.05
"""The significance level: a larger probability shows no difference."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase, with or without consoles."""

    p50_ms: float
    p99_ms: float
    longest_ms: float
    cpu: float
    """CPU of the gateway, as a share of a core."""


def consoles(setting: Setting) -> Iterator[Row]:
    """Alternate phases without and with five consoles, in pairs whose order changes.

    Without, they are open on another gateway that does the same: a browser takes more of two cores than
    anything it asks for, and is as busy in both.
    """
    pairs, settle_s, window_s = (5, 3.0, 8.0) if setting.quick else (8, 5.0, 20.0)
    without: list[Phase] = []
    with_: list[Phase] = []
    calls: Counter[str] = Counter()
    with (
        gateway_alone(SERVICES) as up,
        gateway_alone(SERVICES) as other,
        telling(up.log),
        telling(other.log),
        listening(up.port, [Wanted("gps", f"cell = {n}") for n in range(LISTENERS)]) as all_,
        looking(PATHS) as browser,
        appending(up.log, ["gps"], EVENTS, ENDLESS_S, LISTENERS),
        appending(other.log, ["gps"], EVENTS, ENDLESS_S, LISTENERS),
    ):
        for each in (up, other):
            keep(each, DURABLE)
            browser.ask(f"look {each.port}")  # warm up the browser and the gateway
        for n in range(2 * pairs):
            is_open = n % 4 in (1, 2)  # without, with, with, without: a drift affects both
            browser.ask(f"look {(up if is_open else other).port}")
            time.sleep(settle_s)
            browser.ask()
            (with_ if is_open else without).append(phase(up, all_, window_s))
            if is_open:
                calls.update(browser.ask()["calls"])
    yield from rows(without, with_, calls, window_s)


def phase(up: Serving, all_: Helper, window_s: float) -> Phase:
    """Measure one phase."""
    all_.ask()
    begun, cpu_s = time.monotonic(), up.cpu_s()
    time.sleep(window_s)
    found, cpu = all_.ask(), (up.cpu_s() - cpu_s) / (time.monotonic() - begun)
    if not found["count"]:
        raise RuntimeError(f"nothing was delivered in {window_s:g} s: there is nothing to compare")
    return Phase(of(found, "p50"), of(found, "p99"), of(found, "longest"), cpu)


def rows(without: Sequence[Phase], with_: Sequence[Phase], calls: Mapping[str, int], window_s: float) -> Iterator[Row]:
    """Yield rows with both sides, pair by pair, and whether they differ by more than chance."""
    what = f"{LISTENERS} SSE subscribers, {EVENTS:,} events/s"
    for name, title in (("p50_ms", "p50"), ("p99_ms", "p99"), ("longest_ms", "longest")):
        before, after = ([getattr(each, name) for each in some] for some in (without, with_))
        apart = [b - a for a, b in zip(before, after, strict=True)]
        yield measured(f"{what}: {title}, no console", statistics.median(before), "ms") | {"runs": before}
        yield measured(f"{what}: {title}, five consoles", statistics.median(after), "ms") | {"runs": after}
        yield measured(f"{what}: {title}, what five consoles add", statistics.median(apart), "ms") | {"runs": apart}
        if name != "longest_ms":  # a single event of thousands is too noisy
            likely = by_signs(apart)
            points = {"no console": list(enumerate(before, 1)), "five consoles": list(enumerate(after, 1))}
            chart = plot(f"{what}: {title}", "pair", "milliseconds", points, log=False)
            unlike = measured(f"{what}: {title}, chance that pairs differ so by themselves", likely, "", least=CHANCE)
            yield unlike | {"charts": {f"consoles-{title}": chart}}
    added = [100 * (b.cpu - a.cpu) for a, b in zip(without, with_, strict=True)]
    before_cpu = 100 * statistics.fmean(each.cpu for each in without)
    yield measured(f"{what}: CPU of the gateway, no console", before_cpu, "% of a core")
    yield measured("CPU of the gateway that five consoles add", statistics.fmean(added), "% of a core") | {
        "runs": added
    }
    per_s = {path: count / len(with_) / window_s for path, count in calls.items()}
    yield measured("calls of five consoles", sum(per_s.values()), "1/s", least=1) | {"by_path": per_s}


@contextmanager
def looking(paths: Sequence[str]) -> Iterator[Helper]:
    """Run a browser with a page per path, not shown yet."""
    with helper("benchmarks.delivery.lookers") as found:
        found.tell(json.dumps({"paths": paths}))
        heard = found.hear()
        assert heard == "ready", heard
        yield found


@contextmanager
def telling(folder: Path) -> Iterator[None]:
    """Write the status of the services every second, as a runner would."""
    log, stop = SegmentLog(folder), threading.Event()
    log.create(status.STREAM)
    names = ["gps", *(f"fast{n}" for n in range(OTHERS))]
    said = [status.Status(name, 1, "running", "real-time", "as it should", 900.0, 800.0, 1.5, 4.0) for name in names]

    def tell() -> None:
        while not stop.wait(1.0):
            log.append(status.STREAM, "0", [each.record(time.time_ns() // 1_000) for each in said])

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        log.close()


def keep(up: Serving, count: int) -> None:
    """Create durable subscriptions, for the page that lists them."""
    for n in range(count):
        body = json.dumps({"filter": f"cell = {n}", "description": f"cell {n}"}).encode()
        url = f"http://127.0.0.1:{up.port}/v1/services/gps/subscriptions"
        asked = urllib.request.Request(url, body, {"content-type": "application/json"})
        urllib.request.urlopen(asked, timeout=30).close()
