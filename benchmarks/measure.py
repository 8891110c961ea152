"""Timing of calls, memory and CPU of processes, and the format of results."""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any


def seconds(call: Callable[[], object], repeats: int, budget_s: float = 0.02) -> float:
    """Return the time of one call: the median over repeats of many calls each, with the garbage collector off.

    The machine is shared: a median of short runs says what the code costs when
    nobody is in the way, without the luck of a minimum.
    """
    call()
    begin = time.perf_counter()
    call()
    once = max(time.perf_counter() - begin, 1e-9)
    loops = max(1, int(budget_s / once))
    gc.disable()
    try:
        taken = []
        for _ in range(repeats):
            begin = time.perf_counter()
            for _ in range(loops):
                call()
            taken.append((time.perf_counter() - begin) / loops)
    finally:
        gc.enable()
    return statistics.median(taken)


@dataclass(frozen=True, slots=True)
class Taken:
    """The median time of one call: wall time, and CPU time of all cores."""

    wall_s: float
    cpu_s: float


def taken(call: Callable[[Any], object], inputs: Sequence[Any], repeats: int, budget_s: float) -> Taken:
    """Time a call that is long enough to be timed alone, with each input in turn.

    It ends after `repeats` or, with three calls done, after `budget_s`. On a shared
    machine the wall's time says what a user gets, the CPU's what the code costs.
    """
    call(inputs[0])
    wall, cpu = [], []
    end = time.perf_counter() + budget_s
    gc.collect()
    gc.disable()
    try:
        for n in range(repeats):
            if n >= 3 and time.perf_counter() > end:
                break
            begin, busy = time.perf_counter(), time.process_time()
            call(inputs[n % len(inputs)])
            wall.append(time.perf_counter() - begin)
            cpu.append(time.process_time() - busy)
    finally:
        gc.enable()
    return Taken(statistics.median(wall), statistics.median(cpu))


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile of values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def peak_memory_bytes() -> int:
    """Return the peak memory of this process."""
    try:
        # Not getrusage: across an exec it keeps the peak of the process that started this one.
        line = next(n for n in Path("/proc/self/status").read_text().splitlines() if n.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def group_cpu_s(group: int) -> float:
    """Return the CPU time of the processes of a group."""
    ticks = sum(int(fields[11]) + int(fields[12]) for _, fields in _group(group))
    return ticks / os.sysconf("SC_CLK_TCK")


def group_memory_bytes(group: int) -> int:
    """Return the memory of the processes of a group; shared memory is counted once."""
    found = 0
    for pid, _ in _group(group):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        found += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return found


def _group(group: int) -> Iterator[tuple[int, list[str]]]:
    """Return the processes of a group, each with the fields of its `stat` after the name."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            yield int(stat.parent.name), fields


def environment() -> dict[str, Any]:
    """Return the environment of a result: commit, CPU and versions."""
    names = ("pyarrow", "numpy", "numba", "rapidfuzz", "google-re2", "lark")
    return {
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain") else ""),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }


def _git(*args: str) -> str:
    try:
        return subprocess.run(["git", *args], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def write(out: Path, name: str, results: dict[str, Any]) -> Path:
    """Write one benchmark's results as JSON."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    path.write_text(json.dumps(results, indent=2) + "\n")
    return path
