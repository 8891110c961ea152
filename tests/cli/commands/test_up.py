"""`tidegate up` and the commands around it, as a user runs them: real processes, real Spark."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.running import until
from tidegate.logs import SegmentLog

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("up")]

STREAM = "streams: {raw: {schema: {n: int64, kind: string}, key: kind, partitions: 2}}\n"
FIRST = STREAM + "services: {even: {from: raw, pipeline: [{filter: n % 2 = 0}]}}\n".replace(
    "n % 2 = 0", "kind = 'even'"
)
STRICT = "services: {strict: {from: raw, constraints: {n: '< 100'}, on_violation: fail}}\n"


def tidegate(*args: object, data: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate", *map(str, args), "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=200, check=False)


@contextmanager
def up(file: Path, data: Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    errors = data / "err.txt"
    data.mkdir(exist_ok=True)
    with errors.open("w") as written:
        command = [sys.executable, "-m", "tidegate", "up", str(file), "--data", str(data), "--port", "0"]
        process = subprocess.Popen(command, stdout=written, stderr=written, text=True, env=env)
    try:
        until(lambda: "ready:" in errors.read_text() or process.poll() is not None, "it to be ready")
        assert process.poll() is None, errors.read_text()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def events(data: Path, stream: str) -> list[dict[str, Any]]:
    log = SegmentLog(data / "log")
    if stream not in log.streams():
        return []
    return [json.loads(record) for record in log.read(stream, log.begin(stream), 10_000).records]


def numbers(data: Path, stream: str) -> list[int]:
    return sorted(event["n"] for event in events(data, stream))


def send(data: Path, *values: int) -> None:
    lines = [json.dumps({"n": n, "kind": "odd" if n % 2 else "even"}) for n in values]
    sent = tidegate("publish", "raw", data=data, stdin="\n".join(lines))
    assert sent.stdout == f"{len(values)} events in raw\n", sent.stderr


def last(data: Path, service: str) -> dict[str, Any]:
    """Return the newest status of a service; empty if it has none."""
    return next((status for status in reversed(events(data, "_status")) if status["service"] == service), {})


def statuses(data: Path) -> dict[str, dict[str, Any]]:
    result = tidegate("services", "--json", data=data)
    return {row["service"]: row["status"] for row in json.loads(result.stdout)}


def test_services_are_applied_changed_refused_backfilled_and_stopped(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "services.yaml"
    file.write_text(FIRST)
    with up(file, data) as process:
        send(data, 1, 2, 3, 4)
        until(lambda: numbers(data, "even") == [2, 4], "the first events")

        # The JVM has batch scheduling, so that it does not pre-empt the gateway.
        if hasattr(os, "SCHED_BATCH"):
            policies = {name: os.sched_getscheduler(child) for name, child in children(process.pid).items()}
            assert policies == {"java": os.SCHED_BATCH, "tidegate gateway": os.SCHED_OTHER}

        # A change takes effect without a restart, and continues where the old version stopped.
        file.write_text(FIRST.replace("kind = 'even'", "kind = 'odd'"))
        assert "changed    even  version 2" in tidegate("apply", file, data=data).stdout
        until(lambda: _version(data, "even") == 2, "the new version to run")
        send(data, 5, 6)
        until(lambda: numbers(data, "even") == [2, 4, 5], "an event of the new version")

        # A change that breaks subscribers is refused, and changes nothing.
        file.write_text(FIRST.replace("{filter: kind = 'even'}", "{project: {n: n}}"))
        refused = tidegate("apply", file, data=data)
        assert refused.returncode == 2
        assert "kind" in refused.stderr
        assert statuses(data)["even"]["version"] == 2

        # With --backfill a new service runs over the retained history first.
        more = tmp_path / "more.yaml"
        more.write_text("services: {all: {from: raw}}\n")
        assert tidegate("apply", more, "--backfill", data=data).returncode == 0
        until(lambda: numbers(data, "all") == [1, 2, 3, 4, 5, 6], "the past")

        # A service that fails reports the reason, restarts, and does not affect the others.
        more.write_text(STRICT)
        assert tidegate("apply", more, data=data).returncode == 0
        until(lambda: last(data, "strict").get("state") == "running", "the strict service")
        send(data, 101)
        until(lambda: "n: 101 violates n < 100" in (last(data, "strict").get("error") or ""), "the reason")
        until(lambda: 101 in numbers(data, "all"), "the others to continue")
        assert statuses(data)["all"]["restarts"] == 0

        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (data / "err.txt").read_text()
    assert {status["state"] for status in statuses(data).values()} == {"stopped"}
    assert "Traceback" not in (data / "err.txt").read_text()

    result = tidegate("backtest", "all", "n > 3 AND kind = 'even'", "--json", "--sample", 1, data=data)
    backtest = json.loads(result.stdout)
    assert (backtest["events"], backtest["matched"], backtest["sample"][0]["kind"]) == (7, 2, "even"), result.stderr


def children(pid: int) -> dict[str, int]:
    """Return the child processes of a process: pids by kind."""
    lists = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    commands = {int(child): Path(f"/proc/{child}/cmdline").read_text() for some in lists for child in some}
    return {"java" if "java" in line.partition("\0")[0] else "tidegate gateway": n for n, line in commands.items()}


def _version(data: Path, service: str) -> int | None:
    status = last(data, service)
    return status.get("version") if status.get("state") == "running" else None


def test_plan_has_mode_and_reason_of_each_service(tmp_path: Path) -> None:
    file = tmp_path / "services.yaml"
    file.write_text(
        STREAM
        + """
services:
  live: {from: raw, pipeline: [{filter: n > 3}]}
  sorted: {from: raw, pipeline: [{sort: {by: [n], window: {length: 10 events}}}]}
  repeats: {from: raw, pipeline: [{filter: "kind MATCH '(a+b)+'"}]}
"""
    )
    command = [sys.executable, "-m", "tidegate", "plan", str(file), "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    live, ordered, repeats = json.loads(result.stdout)
    assert (live["mode"], live["reason"], live["operators"]) == (
        "real-time",
        "native operators without a state",
        ["filter"],
    )
    assert "Filter" in live["spark"]
    assert (ordered["mode"], ordered["reason"]) == ("real-time", "native operators, and the state engine for sort")
    assert repeats["mode"] == "micro-batch"
    assert repeats["reason"].endswith("has no exact native form, so Python evaluates it")


WHY = "the connector is not compiled and there is no javac: "


@pytest.fixture
def no_javac(tmp_path: Path) -> dict[str, str]:
    """An environment with a JRE only, where the connector was not compiled yet."""
    java = shutil.which(f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else "java")
    assert java is not None
    runtime = tmp_path / "jre" / "bin"
    runtime.mkdir(parents=True)
    (runtime / "java").symlink_to(Path(java).resolve())
    return {**os.environ, "JAVA_HOME": str(runtime.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")}


WITH_STATE = """
streams: {a: {schema: {k: string, n: int64, t: timestamp}, event_time: t, key: k}}
services:
  even: {from: a, pipeline: [{filter: n > 1}]}
  before: {from: a, pipeline: [{previous: {by: [k], of: {last: n}}}]}
  seen: {from: a, pipeline: [{pattern: {by: [k], steps: [{one: n = 1}, {more: n > 1}]}}]}
  again: {from: [a, a], pipeline: [{join: {on: k, how: full, within: 9s}}]}
  visits: {from: a, pipeline: [{lookup: {from: even, on: k}}, {aggregate: {max: n, by: [k], window: {session: 9s}}}]}
"""


def test_plan_without_javac_has_all_operators_with_state_in_micro_batches(
    tmp_path: Path, no_javac: dict[str, str]
) -> None:
    file = tmp_path / "services.yaml"
    file.write_text(WITH_STATE)
    command = [sys.executable, "-m", "tidegate", "plan", str(file), "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=no_javac)
    assert result.returncode == 0, result.stderr
    plans = {plan["service"]: plan for plan in json.loads(result.stdout)}
    assert plans.keys() == {"even", "before", "seen", "again", "visits"}
    for name, plan in plans.items():
        assert (plan["mode"], plan["reason"].startswith(WHY)) == ("micro-batch", True)
        assert plan["stateful"] == (name != "even")


def test_services_run_in_micro_batches_without_javac(tmp_path: Path, no_javac: dict[str, str]) -> None:
    data, file = tmp_path / "data", tmp_path / "services.yaml"
    before = "before: {from: raw, pipeline: [{previous: {by: [kind], of: {last: n}}}]}"
    file.write_text(FIRST.replace("{even:", f"{{{before}, even:"))
    with up(file, data, no_javac) as process:
        send(data, 1, 2)
        until(lambda: numbers(data, "even") == [2], "an event")
        until(lambda: last(data, "even").get("written") == 1, "the status")
        send(data, 4)
        until(lambda: 4 in numbers(data, "before"), "an event of a service with state")
        assert [event.get("last") for event in events(data, "before") if event["n"] == 4] == [2]
        # Spark's own Python processes may write one when their pipes are closed.
        assert "Traceback" not in (data / "err.txt").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    output = (data / "err.txt").read_text()
    assert "services run in micro-batches only" in output
    assert WHY in output
    assert ", in micro-batches only\n" in output
    status = statuses(data)["even"]
    assert (status["mode"], status["reason"].startswith(WHY)) == ("micro-batch", True)
    assert (status["written"], status["read"]) == (2, 3)


def test_log_in_kafka_is_refused_without_javac(tmp_path: Path, no_javac: dict[str, str]) -> None:
    file, profile = tmp_path / "services.yaml", tmp_path / "big.yaml"
    file.write_text(FIRST)
    profile.write_text("log: {kafka: 'localhost:1'}\n")
    command = [sys.executable, "-m", "tidegate", "up", str(file), "--profile", str(profile), "--data", str(tmp_path)]
    command += ["--port", "0"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=no_javac)
    assert result.returncode != 0
    assert "there is no javac to do it: install a JDK 17 or newer" in result.stderr
