"""The same service file on a real standalone Spark cluster, and with a log in real Kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.pipelines.running import until
from tests.ports import free_port
from tidegate.cli.data_folder.home import Home
from tidegate.logs import EventLog, KafkaLog, SegmentLog

pytestmark = pytest.mark.spark

SERVICES = """
streams: {raw: {schema: {n: int64, kind: string, time: timestamp}, event_time: time, key: kind, partitions: 2}}
services:
  odd: {from: raw, pipeline: [{filter: kind = 'odd'}], constraints: {n: < 1000}}
  counted: {from: raw, pipeline: [{aggregate: {count: n, by: [kind], window: {length: 60s}, emit: updates}}]}
"""


@contextmanager
def daemon(name: str, *args: str, folder: Path) -> Iterator[Path]:
    """Run a daemon of Spark; yields the file with its output."""
    import pyspark

    home = Path(pyspark.__file__).parent
    out = folder / f"{name.rpartition('.')[2]}.txt"
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with out.open("w") as written:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), name, *args], stdout=written, stderr=written, env=env
        )
    try:
        yield out
    finally:
        process.terminate()
        process.wait(30)


SECRET = "a secret that the master, the worker and the driver share"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone master and one worker with more slots than this machine has cores. Both know the secret."""
    port = free_port()
    settings = tmp_path / "daemons.conf"
    settings.write_text(
        f"spark.authenticate true\nspark.authenticate.secret {SECRET}\n"
        "spark.network.crypto.enabled true\nspark.network.crypto.saslFallback false\n"
    )
    common = ("--webui-port", "0", "--properties-file", str(settings))
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as started:
        master = started.enter_context(
            daemon(
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", str(port), *common),
                folder=tmp_path,
            )
        )
        until(lambda: "New state: ALIVE" in master.read_text(), "the master")
        started.enter_context(
            daemon(
                "org.apache.spark.deploy.worker.Worker",
                *("--host", "127.0.0.1", "--cores", "12", "--memory", "1g", *common),
                *("--work-dir", str(tmp_path / "work"), address),
                folder=tmp_path,
            )
        )
        until(lambda: "Registering worker" in master.read_text(), "the worker")
        yield address


@contextmanager
def up(folder: Path, profile: str) -> Iterator[list[str]]:
    """Run `tidegate up` with a profile; yields the options for other commands."""
    (folder / "services.yaml").write_text(SERVICES)
    (folder / "profile.yaml").write_text(profile)
    options = ["--data", str(folder / "data"), "--profile", str(folder / "profile.yaml")]
    errors = folder / "err.txt"
    with errors.open("w") as written:
        command = [sys.executable, "-m", "tidegate", "up", str(folder / "services.yaml"), "--port", "0", *options]
        process = subprocess.Popen(command, stdout=written, stderr=written)
    try:
        until(lambda: "ready:" in errors.read_text() or process.poll() is not None, "it to be ready")
        assert process.poll() is None, errors.read_text()
        yield options
        process.terminate()
        assert process.wait(60) == 0, errors.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def publish(options: list[str], count: int) -> None:
    events = [{"n": n, "kind": "odd" if n % 2 else "even", "time": "2026-01-01T00:00:10Z"} for n in range(count)]
    sent = subprocess.run(
        [sys.executable, "-m", "tidegate", "publish", "raw", *options],
        input="\n".join(map(json.dumps, events)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert sent.stdout == f"{count} events in raw\n", sent.stderr


def command_lines() -> list[str]:
    """Return the command lines of all processes of this machine."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    assert any("CoarseGrainedExecutorBackend" in line for line in lines)
    return lines


def numbers(log: EventLog, stream: str) -> list[int]:
    return [json.loads(record)["n"] for record in log.read(stream, log.begin(stream), 10_000).records]


def check_output(log: EventLog, count: int) -> None:
    until(lambda: numbers(log, "odd") == list(range(1, count, 2)), "all of one kind, in order")
    until(lambda: sorted(numbers(log, "counted")) == sorted([*range(1, count // 2 + 1)] * 2), "every count")


@pytest.mark.xdist_group("cluster")
def test_services_run_on_a_standalone_cluster_with_a_shared_folder(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER_SECRET", SECRET)
    profile = f"""
master: {cluster}
shared: true
spark:
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
  spark.executor.memory: 512m
  spark.authenticate.secret: env:CLUSTER_SECRET
"""
    with up(tmp_path, profile) as options:
        assert (
            "Spark's streaming shuffle has neither authentication nor encryption" in (tmp_path / "err.txt").read_text()
        )
        assert [line for line in command_lines() if SECRET in line] == [], "every user of a machine sees these"
        publish(options, 40)
        check_output(SegmentLog(tmp_path / "data" / "log"), 40)


@pytest.mark.kafka
def test_services_run_with_a_log_in_kafka(kafka: str, tmp_path: Path) -> None:
    with up(tmp_path, f"log: {{kafka: '{kafka}'}}") as options:
        publish(options, 40)
        log = KafkaLog(kafka)
        check_output(log, 40)
        check_history(options, tmp_path / "data", log)
        log.close()


def check_history(options: list[str], folder: Path, log: KafkaLog) -> None:
    """Read past events, send a rejected one again, and count those that a filter matches, with a log in Kafka."""
    running = Home(folder).running()
    assert running is not None
    assert running.url is not None
    past: dict[str, str | int] = {"from": "10m", "max": 100}
    with httpx.Client(base_url=running.url, timeout=60) as http:
        page = http.get("/v1/services/odd/events", params={**past, "filter": "n > 10"}).json()
        assert [each["data"]["n"] for each in page["events"]] == list(range(11, 40, 2))
        recent = http.get("/v1/services/odd/events", params={"from": "2026-01-01T00:00:00Z", "max": 3}).json()
        assert [each["data"]["n"] for each in recent["events"]] == [1, 3, 5]
        wrong = {"n": 2_001, "kind": "odd", "time": "2026-01-01T00:00:10Z"}
        assert http.post("/v1/streams/raw/events", json=wrong).json()["accepted"] == 1
        rejected = "/v1/services/odd/quarantine"
        until(lambda: len(http.get(rejected).json()["quarantined"]) == 1, "the rejected event")
        (found,) = http.get(rejected).json()["quarantined"]
        assert (found["event"]["n"], found["rules"]) == (2_001, ["n"])
        again = {"events": [{"id": found["id"], "patch": {"n": 41}}]}
        assert http.post(f"{rejected}/replay", json=again).json()["replayed"] == 1
        assert http.post(f"{rejected}/replay", json=again).json()["already"] == 1
        until(lambda: numbers(log, "odd")[-1] == 41, "the corrected event")
        assert http.get(rejected, params={"replayed": "true"}).json()["quarantined"][0]["id"] == found["id"]
        counted = http.get("/v1/services/odd/backtest", params={"filter": "n > 20", "from": "10m"}).json()
        assert (counted["events"], counted["matched"]) == (21, 11)
    command = [sys.executable, "-m", "tidegate", "backtest", "odd", "n > 20", "--json", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    backtest = json.loads(result.stdout)
    assert (backtest["events"], backtest["matched"]) == (21, 11)
