"""One million filters in one process: throughput on two threads, and peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import measure, peers
from benchmarks.matching import workloads
from benchmarks.matching.harness import BATCH, Row, Setting, batches, filled, match, rate, row, skipped

NAME = workloads.MILLION.name
THREADS = 2
LASTING_S, LIMIT_S = 10.0, 2_400.0
"""Seconds of matching, and the time limit of the whole measurement."""


def million(setting: Setting) -> Iterator[Row]:
    """Run this module as a process, and read its output."""
    if setting.quick:
        yield skipped(NAME, "--quick")
        return
    root = Path(peers.__file__).parents[2]
    # The child process gets the same import path.
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root), *filter(None, sys.path)])}
    program = f"from {__name__} import say; say({workloads.MILLION.count}, {LASTING_S})"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, env=env, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        yield skipped(NAME, f"not done within {LIMIT_S:g} s")
        return
    if done.returncode:
        said = done.stderr.strip().splitlines()
        yield skipped(NAME, f"failed: {said[-1] if said else done.returncode}")
        return
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    more = {name: found[name] for name in ("per_cpu_s", "rate", "build_s")}
    yield row(f"{NAME}, two threads", found["events_per_s"], "events/s", at_least=10_000, **more)
    yield row(f"{NAME}, peak memory", found["peak_gb"], "GB", below=1.5, at_start_gb=found["at_start_gb"])


def say(count: int, lasting_s: float) -> None:
    """Measure in this process, and print it as JSON."""
    print(json.dumps(measured(count, lasting_s)))


def measured(count: int, lasting_s: float) -> dict[str, float]:
    """Fill a matcher from text, then let two threads match batches."""
    workload = replace(workloads.MILLION, count=count)
    inputs = batches()
    at_start = measure.peak_memory_bytes()
    begin = time.perf_counter()
    matcher = filled(workload.texts())
    matcher.match(inputs[0].slice(0, 1))
    build_s = time.perf_counter() - begin
    found = rate(matcher, inputs[0].slice(0, 1_000))

    def one_after_another(thread: int) -> int:
        done = 0
        while done == 0 or time.perf_counter() < end:
            match(matcher)(inputs[(thread + done) % len(inputs)])
            done += 1
        return done

    begin, busy = time.perf_counter(), time.process_time()
    end = begin + lasting_s
    with ThreadPoolExecutor(THREADS) as pool:
        done = sum(pool.map(one_after_another, range(THREADS)))
    wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - busy
    return {
        "filters": count,
        "events_per_s": done * BATCH / wall_s,
        "per_cpu_s": done * BATCH / cpu_s,
        "rate": found,
        "build_s": build_s,
        "peak_gb": measure.peak_memory_bytes() / 1e9,
        "at_start_gb": at_start / 1e9,
    }
