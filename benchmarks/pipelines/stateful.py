"""Services with state, in real-time mode and in micro-batches: from the moment that decides a result to the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event

from benchmarks.measure import percentile
from benchmarks.pipelines.harness import (
    STREAM,
    Seen,
    Tidegate,
    appended_at,
    by_second,
    data_folder,
    follow,
    loaded,
    running,
    wait_for,
)
from benchmarks.reporting import Row, Setting, measured

OUTPUT = "out"
MICRO_BATCH = "{filter: \"cid MATCH '(C[0-9]+)+'\"}, "
"""An operator that lets every event through and that only Python evaluates: it forces micro-batches."""


@dataclass(frozen=True)
class Case:
    """A service with one operator with state, or two, and its load."""

    what: str
    operators: tuple[str, ...]
    rate: int
    keys: int
    """How many values `cid` has."""
    p50_ms: float
    p99_ms: float
    moment: Callable[[bytes], float]
    """When the result was decided: by the end of a window, or by the last event that it needs."""
    inputs: tuple[str, ...] = ("a",)
    main: str = "a"


def time_of(name: str) -> Callable[[bytes], float]:
    """Return a function that reads a timestamp of a record."""
    start = f'"{name}":"'.encode()

    def read(record: bytes) -> float:
        at = record.index(start) + len(start)
        return datetime.fromisoformat(record[at : record.index(b'"', at)].decode()).timestamp()

    return read


def later_of_two(record: bytes) -> float:
    """Return when the later event of a pair was appended."""
    found = []
    for name in (b'"t":', b'"b_t":'):
        at = record.index(name) + len(name)
        found.append(float(record[at : record.index(b",", at)]))
    return max(found)


_ENDS = time_of("window_end")
_COUNTS = "aggregate: {count: n, max: {t: t}, by: [cid], window: {length: %s}}"
_SESSION = "aggregate: {count: n, by: [vid], window: {session: 1s}}"
_MEANS = "aggregate: {avg: {speed: mean}, by: [cid], window: {length: 1s}}"
_TOP = "sort: {by: [-mean], limit: 5, window: {length: 1s}}"
_STEPS = "pattern: {by: [cid], steps: [{slow: speed < 20}, {fast: speed > 100}], within: 5s}"
_UPDATES = "aggregate: {count: n, max: {t: t}, by: [cid], window: {length: 60s}, emit: updates}"
_JOIN, _LOOKUP = "join: {on: satellites, within: 5ms}", "lookup: {from: b, on: cid}"
_BOTH = ("a", "b")

CASES = {
    "final": Case("final window of 2 s", (_COUNTS % "2s",), 5_000, 1_000, 20.0, 100.0, _ENDS),
    "updates": Case("updates of a window of 60 s", (_UPDATES,), 5_000, 1_000, 5.0, 40.0, appended_at),
    "joined": Case("join within 5 ms", (_JOIN,), 2_000, 1_000, 10.0, 100.0, later_of_two, _BOTH, "[a, b]"),
    "lookup": Case("lookup of the latest value", (_LOOKUP,), 5_000, 1_000, 5.0, 50.0, appended_at, _BOTH),
    "counted": Case("window of 10 events", (_COUNTS % "10 events",), 2_000, 200, 20.0, 150.0, appended_at),
    "sessions": Case("session with gaps of 1 s", (_SESSION,), 1_000, 50, 20.0, 150.0, _ENDS),
    "top": Case("top 5 of averages, two stages", (_MEANS, _TOP), 2_000, 100, 20.0, 150.0, _ENDS),
    "pattern": Case("pattern of two steps", (_STEPS,), 2_000, 50, 20.0, 150.0, time_of("match_end")),
}


def services(case: Case, *, micro_batch: bool = False) -> str:
    """Return the service file of a case."""
    operators = ", ".join(f"{{{each}}}" for each in case.operators)
    before = MICRO_BATCH if micro_batch and case.main == "a" else ""
    streams = "".join(f"  {name}: {STREAM}\n" for name in case.inputs)
    return f"streams:\n{streams}services:\n  {OUTPUT}: {{from: {case.main}, pipeline: [{before}{operators}]}}\n"


def workload(name: str) -> Callable[[Setting], Iterator[Row]]:
    """Return the workload of a case: its latency, and for one input that of the same service in micro-batches."""
    case = CASES[name]

    def run(setting: Setting) -> Iterator[Row]:
        seen = _seen(setting, case, services(case))
        peer = (
            _seen(setting, case, services(case, micro_batch=True)) if case.main == "a" and not setting.quick else None
        )
        for share, target in (("p50", case.p50_ms), ("p99", case.p99_ms)):
            value = percentile(seen.latencies, float(share[1:]) / 100)
            row = measured(f"{case.what}, {case.rate:,} events/s: {share}", value, "ms", target)
            row |= {"events": seen.count}
            if peer is not None:
                beside = percentile(peer.latencies, float(share[1:]) / 100)
                row |= {"peer": "micro-batches", "peer_value": beside, "ratio": value / beside}
            yield row
        longest = measured(f"{case.what}, {case.rate:,} events/s: longest", max(seen.latencies), "ms", 1_000.0)
        yield longest | {"by_second": by_second(seen)}

    run.__doc__ = f"{case.what}: latency of results."
    return run


def _seen(setting: Setting, case: Case, text: str) -> Seen:
    """Run a service under load, and record the latencies of its results."""
    length = setting.warm_s + setting.measured_s
    with data_folder() as folder, running(folder, text) as up, ThreadPoolExecutor() as pool:
        stop, log = Event(), up.log
        warm_until = time.time() + setting.warm_s
        future = pool.submit(follow, log, OUTPUT, log.end(OUTPUT), stop, warm_until, case.moment)
        with loaded(folder, list(case.inputs), case.rate, length, case.keys) as load:
            load.wait()
        # What is decided after the last event belongs to the silence.
        stop.set()
        return future.result()


def silent(setting: Setting) -> Iterator[Row]:
    """Windows that end after their stream has fallen silent."""
    case = CASES["final"]
    latencies: list[float] = []
    text = services(case).replace("length: 2s", "length: 1s")
    with data_folder() as folder, running(folder, text) as up:
        _send(folder, case, setting.warm_s)
        for _ in range(5 if setting.quick else 20):
            latencies += _windows_after_silence(up, folder, case)
    for share, target in (("p50", 50.0), ("p99", 150.0)):
        value = percentile(latencies, float(share[1:]) / 100)
        yield measured(f"final window, after silence: {share}", value, "ms", target) | {"events": len(latencies)}


def _windows_after_silence(up: Tidegate, folder: Path, case: Case) -> list[float]:
    """Send for half a second, be silent for two, and return the latencies of the windows that ended in silence."""
    with ThreadPoolExecutor() as pool:
        stop, log = Event(), up.log
        future = pool.submit(_ended, log, log.end(OUTPUT), stop)
        _send(folder, case, 0.5)
        last = time.time()
        time.sleep(2.0)
        stop.set()
        return [1_000 * (now - end) for end, now in future.result() if end > last]


def _ended(log: object, cursor: object, stop: Event) -> list[tuple[float, float]]:
    """Read the output until `stop` is set: the end of each window, and when it was readable."""
    from tidegate.logs import Cursor, SegmentLog

    assert isinstance(log, SegmentLog)
    assert isinstance(cursor, Cursor)
    found: list[tuple[float, float]] = []
    while not stop.is_set():
        if log.wait(OUTPUT, cursor, 0.1):
            read = log.read(OUTPUT, cursor, 10_000)
            now, cursor = time.time(), read.cursor
            found += [(_ENDS(record), now) for record in read.records]
    return found


def _send(folder: Path, case: Case, seconds: float) -> None:
    with loaded(folder, list(case.inputs), case.rate, seconds, case.keys) as load:
        load.wait()


def throughput(setting: Setting) -> Iterator[Row]:
    """A keyed aggregate of 100,000 keys at 40,000 events per second: does the lag grow?"""
    case = Case("", CASES["updates"].operators, 40_000, 100_000, 0.0, 0.0, appended_at)
    with data_folder() as folder, running(folder, services(case)) as up, ThreadPoolExecutor() as pool:
        stop, log = Event(), up.log
        warm_until = time.time() + setting.warm_s
        future = pool.submit(follow, log, OUTPUT, log.end(OUTPUT), stop, warm_until, case.moment)
        _send(folder, case, setting.warm_s + setting.measured_s)
        stop.set()
        seen = future.result()
    last = max(seen.seconds)
    early = [each for n in range(3) for each in seen.seconds.get(n, [])]
    late = [each for n in range(last - 2, last + 1) for each in seen.seconds.get(n, [])]
    sent = seen.count / (setting.warm_s + setting.measured_s)
    what = "keyed aggregate, 100,000 keys, 40,000 events/s"
    yield measured(f"{what}: results", sent, "events/s", least=0.99 * case.rate)
    first, final = percentile(early, 0.5), percentile(late, 0.5)
    row = measured(f"{what}: median of the last three seconds", final, "ms", 1_000.0)
    yield row | {"peer": "of the first three", "peer_value": first, "ratio": final / first}


def size(setting: Setting) -> Iterator[Row]:
    """The checkpoint of totals of many keys: bytes on disk for each of them."""
    keys = 100_000 if setting.quick else 1_000_000
    totals = "incremental: {count: n, avg: {speed: mean}, by: [cid]}"
    case = Case("", (totals,), 40_000, keys, 0.0, 0.0, appended_at)
    with data_folder() as folder, running(folder, services(case)):
        _send(folder, case, 1.02 * keys / case.rate)
        (commits,) = folder.glob(f"**/{OUTPUT}/v1/main/commits")
        # The checkpoint after the next one surely has all.
        wanted = _newest(commits) + 2
        wait_for(lambda: _newest(commits) >= wanted, "a checkpoint")
        files = [file.stat().st_size for file in (commits.parent / "state").rglob("*") if file.is_file()]
    yield measured(f"state of {keys:,} keys with a count and a mean: disk per key", sum(files) / keys, "bytes")


def _newest(commits: Path) -> int:
    return max((int(file.name) for file in commits.glob("[0-9]*")), default=-1)


def idle_with_state(setting: Setting) -> Iterator[Row]:
    """The cost of ten idle services with state, which still get ticks."""
    one = CASES["final"]
    names = [f"s{n}" for n in range(10)]
    text = f"streams: {{a: {STREAM}}}\nservices:\n" + "".join(
        f"  {name}: {{from: a, pipeline: [{{{one.operators[0]}}}]}}\n" for name in names
    )
    with data_folder() as folder, running(folder, text) as up:
        time.sleep(setting.warm_s)
        before, begun = up.cpu_s(), time.monotonic()
        time.sleep(setting.measured_s)
        share = (up.cpu_s() - before) / (time.monotonic() - begun)
        yield measured("ten idle services with state, share of one core", 100 * share, "%", 25.0)


WORKLOADS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    **{f"stateful-{name}": workload(name) for name in CASES},
    "stateful-silent": silent,
    "stateful-throughput": throughput,
    "stateful-size": size,
    "stateful-idle": idle_with_state,
}
