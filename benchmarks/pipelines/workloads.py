"""The named workloads. Each starts its own Tidegate and yields rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from benchmarks.measure import percentile
from benchmarks.pipelines import stateful
from benchmarks.pipelines.harness import (
    STREAM,
    Seen,
    Tidegate,
    by_second,
    data_folder,
    follow,
    loaded,
    running,
    wait_for,
)
from benchmarks.reporting import Row, Setting, measured

MERGED = "merge, constraints, mask"
GPS = f"""
streams: {{a: {STREAM}, b: {STREAM}, c: {STREAM}}}
services:
  gps:
    from: [a, b, c]
    pipeline: [merge]
    constraints: {{longitude: "BETWEEN 115.25 AND 117.30", latitude: "BETWEEN 39.26 AND 41.03", speed: ">= 0"}}
    mask: {{vid: hmac}}
"""
UPDATES = f"""
streams: {{a: {STREAM}}}
services:
  flow:
    from: a
    pipeline: [{{aggregate: {{count: flow, max: {{t: t}}, by: [cid], window: {{length: 60s}}, emit: updates}}}}]
"""
THREE = f"""
streams: {{a: {STREAM}, b: {STREAM}, c: {STREAM}}}
services:
  gps: {{from: [a, b, c], pipeline: [merge], constraints: {{speed: ">= 0"}}, mask: {{vid: hmac}}}}
  fast: {{from: gps, pipeline: [{{filter: speed > 80}}]}}
  flow:
    from: a
    pipeline: [{{aggregate: {{count: flow, by: [cid], window: {{length: 60s}}, emit: updates}}}}]
"""


def gps(setting: Setting) -> Iterator[Row]:
    """Merge of three streams, constraints and mask, at 10,000 and at 40,000 events per second."""
    yield from _latency(
        setting, GPS, "gps", ["a", "b", "c"], 10_000, {"p50": 5.0, "p99": 20.0}, "merge, constraints, mask"
    )
    yield from _sustained(setting, 40_000)


def starts(setting: Setting) -> Iterator[Row]:
    """The time from a cold start, and from SIGKILL, to the first output event."""
    for what, services, stream, limit in (
        ("stateless", GPS, "gps", 15.0),
        ("windowed, updates", UPDATES, "flow", 30.0),
    ):
        with data_folder() as folder, running(folder, services) as up, loaded(folder, ["a"], 1_000, 600.0):
            _first(up, stream, -1)
            yield measured(f"cold start to first event, {what}", time.time() - up.started, "s", limit)
            time.sleep(3.0 if setting.quick else 8.0)
            before = _end(up, stream)
            killed = up.kill()
            with running(folder, services) as again:
                _first(again, stream, before)
                target = 20.0 if what == "stateless" else None
                yield measured(f"kill -9 to first new event, {what}", time.time() - killed, "s", target)


def idle(setting: Setting) -> Iterator[Row]:
    """The cost of three idle services."""
    with data_folder() as folder, running(folder, THREE) as up:
        time.sleep(setting.warm_s)
        before, begun = up.cpu_s(), time.monotonic()
        time.sleep(setting.measured_s)
        share = (up.cpu_s() - before) / (time.monotonic() - begun)
        yield measured("three idle services, share of one core", 100 * share, "%", 20.0)


def _latency(
    setting: Setting,
    services: str,
    stream: str,
    inputs: list[str],
    rate: int,
    targets: dict[str, float],
    what: str,
) -> Iterator[Row]:
    """Latency from append to readable, and the same for the raw stream without a service."""
    with data_folder() as folder, running(folder, services) as up:
        seen = _watched(setting, up, [stream, inputs[0]], inputs, rate)
    out, raw = seen[stream], seen[inputs[0]]
    for share in ("p50", "p99"):
        at = float(share[1:]) / 100
        value, floor = percentile(out.latencies, at), percentile(raw.latencies, at)
        row = measured(f"{what}, {rate:,} events/s: {share}", value, "ms", targets.get(share))
        yield row | {"peer": "the raw stream", "peer_value": floor, "ratio": value / floor, "events": out.count}
    row = measured(f"{what}, {rate:,} events/s: longest", max(out.latencies), "ms")
    yield row | {"by_second": by_second(out)}


def _watched(
    setting: Setting,
    up: Tidegate,
    streams: list[str],
    inputs: list[str],
    rate: int,
) -> dict[str, Seen]:
    """Send events for a while, and observe some streams."""
    log, stop = up.log, Event()
    begins = {stream: log.end(stream) for stream in streams}
    length = setting.warm_s + setting.measured_s
    warm_until = time.time() + setting.warm_s
    with ThreadPoolExecutor() as pool, loaded(up.folder, inputs, rate, length) as load:
        try:
            futures = {stream: pool.submit(follow, log, stream, begins[stream], stop, warm_until) for stream in streams}
            load.wait()
            time.sleep(1.0)
        finally:
            stop.set()
        return {stream: future.result() for stream, future in futures.items()}


def _sustained(setting: Setting, rate: int) -> Iterator[Row]:
    """Compare the median at the end of the load with that at its start, to see whether the rate is sustained."""
    with data_folder() as folder, running(folder, GPS) as up:
        seen = _watched(setting, up, ["gps"], ["a", "b", "c"], rate)["gps"]
    last = round(setting.measured_s) - 1
    early, late = (
        [x for n in found for x in seen.seconds.get(n, [])] for found in (range(3), range(last - 2, last + 1))
    )
    what = f"{MERGED}, {rate:,} events/s"
    sent = seen.count / (setting.warm_s + setting.measured_s)
    yield measured(f"{what}: that came through", sent, "events/s")
    first, final_ = percentile(early, 0.5), percentile(late, 0.5)
    row = measured(f"{what}: median of the last three seconds", final_, "ms")
    yield row | {"peer": "of the first three", "peer_value": first, "ratio": final_ / first}
    yield measured(f"{what}: p99", percentile(seen.latencies, 0.99), "ms") | {"by_second": by_second(seen)}


def _first(up: Tidegate, stream: str, before: int) -> None:
    wait_for(lambda: _end(up, stream) > max(0, before), f"an event of {stream}")


def _end(up: Tidegate, stream: str) -> int:
    log = up.log
    return sum(log.end(stream).offsets.values()) if stream in log.streams() else 0


WORKLOADS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "gps": gps,
    "starts": starts,
    "idle": idle,
    **stateful.WORKLOADS,
}
