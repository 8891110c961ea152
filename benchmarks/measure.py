"""How a thing is timed and how a result is written."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any


def seconds(call: Callable[[], object], repeats: int, budget_s: float = 0.02) -> float:
    """The time of one call: the median over repeats of many calls each, garbage collector off.

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


def environment() -> dict[str, Any]:
    """What a result depends on: commit, CPU and versions."""
    names = ("pyarrow", "numpy", "rapidfuzz", "google-re2", "lark")
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
