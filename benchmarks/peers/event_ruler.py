"""event-ruler, a JVM library that matches JSON events: fetched by Maven, run by our harness."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOME = Path(__file__).parent / "event-ruler"
JARS = Path(__file__).parents[1] / ".cache" / "event-ruler"


class UnavailableError(Exception):
    """The peer can't run here; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Timed:
    """The output of the harness."""

    events_per_s: float
    events_per_cpu_s: float
    matches: int
    """Matches of one pass over all events."""
    build_s: float
    java: str
    """The Java version."""


def version() -> str:
    """Return the version that Maven fetches."""
    return str(re.findall(r"<version>(.*?)</version>", (HOME / "pom.xml").read_text())[-1])


def time(
    rules: Iterable[dict[str, Any]],
    events: Iterable[dict[str, Any]],
    *,
    warm_up_s: float,
    measure_s: float,
    timeout_s: float,
) -> Timed:
    """Match all events against all rules repeatedly, after a warm-up."""
    jars = _jars()
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, lines in (("rules", rules), ("events", events)):
            path = Path(folder) / f"{name}.ndjson"
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            paths.append(str(path))
        java = ["java", "-XX:+UseSerialGC", "-Xmx4g", "-cp", f"{jars}/*", str(HOME / "EventRuler.java")]
        printed = _run([*java, *paths, str(warm_up_s), str(measure_s)], timeout_s)
    return Timed(**json.loads(printed.strip().splitlines()[-1]))


def _jars() -> Path:
    """Return the folder of the jars; fetches them at the first call."""
    wanted = JARS / version()
    if not any(wanted.glob("event-ruler-*.jar")):
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={wanted}"]
        _run(["mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), *goal], 180)
    return wanted


def _run(command: list[str], timeout_s: float) -> str:
    if shutil.which(command[0]) is None:
        raise UnavailableError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{command[0]} did not end within {timeout_s:g} s") from None
    except subprocess.CalledProcessError as exc:
        said = (exc.stderr or exc.stdout).strip().splitlines()
        raise UnavailableError(f"{command[0]} failed: {said[0] if said else exc.returncode}") from None
    return done.stdout
