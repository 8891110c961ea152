"""Commands and two gateways, in real processes, with one registry in PostgreSQL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.gateway.receiver import Receiver
from tests.gateway.running import CITY, record
from tests.pipelines.running import until
from tests.postgres_server import PASSWORD, PASSWORD_IN_URL
from tests.registry import stores
from tidegate.logs import KafkaLog, SegmentLog

pytestmark = pytest.mark.postgres


@dataclass
class Cluster:
    """A data folder, and a profile with a registry of its own in PostgreSQL."""

    folder: Path

    @property
    def options(self) -> list[str]:
        return ["--data", str(self.folder), "--profile", str(self.folder / "big.yaml")]

    @property
    def log(self) -> SegmentLog:
        return SegmentLog(self.folder / "log")

    def run(self, *args: str) -> str:
        command = [sys.executable, "-m", "tidegate", *args, *self.options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert result.returncode == 0, result.stderr
        assert PASSWORD not in result.stdout + result.stderr
        return result.stdout

    @contextmanager
    def gateway(self, name: str) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
        output = self.folder / f"{name}.txt"
        command = [sys.executable, "-m", "tidegate", "gateway", "--port", "0", *self.options]
        with output.open("wb") as written:
            process = subprocess.Popen(command, stdout=written, stderr=written)
        try:
            until(lambda: "listening: " in output.read_text() or process.poll() is not None, "a gateway")
            assert process.poll() is None, output.read_text()
            with httpx.Client(base_url=output.read_text().split("listening: ")[1].split()[0], timeout=30) as client:
                yield process, client
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0, output.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        for secret in (PASSWORD, PASSWORD_IN_URL):
            assert secret not in output.read_text()

    @contextmanager
    def up(self, name: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
        """Run services with the same registry and another folder; yields the process and a reader of its output."""
        output = self.folder / f"{name}.txt"
        command = [sys.executable, "-m", "tidegate", "up", "--no-gateway", "--data", str(folder), *self.options[2:]]
        with output.open("wb") as written:
            process = subprocess.Popen(command, stdout=written, stderr=written)
        try:
            yield process, output.read_text
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
        assert "Traceback" not in output.read_text()


@pytest.fixture
def cluster(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    url = stores.new_schema(postgres).replace(f":{PASSWORD_IN_URL}@", "@")
    monkeypatch.setenv("REGISTRY_PASSWORD", PASSWORD)
    (tmp_path / "big.yaml").write_text(
        f"registry: {{url: '{url}', password: {{env: REGISTRY_PASSWORD}}}}\nwebhooks: {{allow_private: true}}\n"
    )
    created = Cluster(tmp_path)
    (tmp_path / "city.yaml").write_text(CITY)
    assert created.run("apply", str(tmp_path / "city.yaml")).startswith("added      gps_taxi  version 1\n")
    for service in ("gps", "fast"):
        created.log.create(service, ["gps_taxi.0"])
    created.log.create("_status")
    moment = "2026-01-01T00:00:00.000000Z"
    running = [{"service": name, "state": "running", "version": 1, "time": moment} for name in ("gps", "fast")]
    created.log.append("_status", "0", [json.dumps(status).encode() for status in running])
    return created


def test_commands_share_the_registry_and_create_no_sqlite_file(cluster: Cluster) -> None:
    secret = cluster.run("keys", "create", "van 7").strip()
    (listed,) = json.loads(cluster.run("keys", "list", "--json"))
    assert secret.startswith(f"tg_{listed['prefix']}_")
    assert "is revoked" in cluster.run("keys", "revoke", listed["id"])
    assert [row["service"] for row in json.loads(cluster.run("services", "--json"))] == ["fast", "gps"]
    assert not (cluster.folder / "registry.sqlite").exists()


def test_two_gateways_share_subscriptions_services_and_leases(cluster: Cluster) -> None:
    receiver = Receiver()
    with ExitStack() as open_:
        open_.enter_context(receiver.running())
        (first, one), (second, two) = (open_.enter_context(cluster.gateway(name)) for name in ("one", "two"))
        assert_no_password_in_commands(first, second)

        added = two.post("/v1/services/gps/subscriptions", json={"deliver": {"webhook": {"url": receiver.url}}})
        assert added.status_code == 201, added.text
        until(lambda: one.get(f"/v1/subscriptions/{added.json()['id']}").status_code == 200, "it at the other one")
        cluster.log.append("gps", "gps_taxi.0", [record(n) for n in range(20)])
        until(lambda: len(receiver.numbers) >= 20, "the webhook's events")

        put = one.put("/v1/services/slow", json={"from": "gps", "pipeline": [{"filter": "speed < 5"}]})
        assert put.status_code == 200, put.text
        until(lambda: two.get("/v1/services/slow").status_code == 200, "the other gateway to follow")
        assert one.delete("/v1/services/slow").status_code == 204

        event = {"_id": "a", "vid": "B1", "speed": 7.0, "time": "2026-01-01T00:00:00Z"}
        until(lambda: one.get("/v1/services/slow").status_code == 404, "its removal")
        accepted = one.post("/v1/streams/gps_taxi/events", json=event)
        assert accepted.status_code == 200, accepted.text
        refused = two.post("/v1/streams/gps_taxi/events", json=event)
        assert refused.status_code == 409
        assert f"which is the gateway at {str(one.base_url).rstrip('/')}: send to it" in refused.json()["detail"]

        # One gateway dies: the other takes over its leases, and becomes the writer.
        first.kill()
        first.wait()
        cluster.log.append("gps", "gps_taxi.0", [record(n) for n in range(20, 40)])
        until(lambda: set(receiver.numbers) == set(range(40)), "the rest of the events")
        until(lambda: two.post("/v1/streams/gps_taxi/events", json=event).status_code == 200, "another writer")
        again = two.post("/v1/streams/gps_taxi/events", json=event).json()
        assert (again["accepted"], again["duplicates"]) == (0, 1)
    assert sorted(receiver.numbers) == list(range(40)), "each event was sent by one gateway"


def assert_no_password_in_commands(*processes: subprocess.Popen[bytes]) -> None:
    """Check the command lines of processes and of their children."""
    pids = {str(process.pid) for process in processes}
    for entry in Path("/proc").iterdir():
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            command = (entry / "cmdline").read_text()
        except (OSError, IndexError):
            continue
        if entry.name in pids or parent in pids:
            assert PASSWORD not in command
            assert PASSWORD_IN_URL not in command
    assert os.environ["REGISTRY_PASSWORD"] == PASSWORD


def test_wrong_password_is_reported_without_showing_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "hush hush")
    command = [sys.executable, "-m", "tidegate", "gateway", "--port", "0", *cluster.options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 2
    assert 'password authentication failed for user "tidegate"' in result.stderr
    assert "hush" not in result.stderr
    assert "Traceback" not in result.stderr


def knows_statuses(gateway: httpx.Client) -> bool:
    """Return True if a gateway has read a status of every service."""
    return "never ran" not in gateway.get("/readyz").json()["services"].values()


@pytest.mark.kafka
def test_every_gateway_accepts_events_with_a_log_in_kafka(cluster: Cluster, kafka: str) -> None:
    profile = cluster.folder / "big.yaml"
    profile.write_text(f"{profile.read_text()}log: {{kafka: '{kafka}'}}\n")
    log = KafkaLog(kafka)
    log.create("_status")
    moment = "2026-01-01T00:00:00.000000Z"
    running = [{"service": name, "state": "running", "version": 1, "time": moment} for name in ("gps", "fast")]
    log.append("_status", "0", [json.dumps(status).encode() for status in running])
    with ExitStack() as open_:
        gateways = [open_.enter_context(cluster.gateway(name))[1] for name in ("one", "two")]
        for n, gateway in enumerate(gateways):
            until(lambda gateway=gateway: knows_statuses(gateway), "the services to have run")  # type: ignore[misc]
            event = {"_id": f"e{n}", "vid": "B1", "speed": 7.0, "time": "2026-01-01T00:00:00Z"}
            accepted = gateway.post("/v1/streams/gps_taxi/events", json=event)
            assert accepted.status_code == 200, accepted.text
        records = log.read("gps_taxi", log.begin("gps_taxi")).records
    assert sorted(json.loads(line)["_id"] for line in records) == ["e0", "e1"]
    log.close()


@pytest.mark.spark
def test_only_one_of_two_processes_runs_the_services(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.up("one", cluster.folder) as (first, first_output):
        until(lambda: "ready: 2 services" in first_output() or first.poll() is not None, "the services")
        assert first.poll() is None, first_output()
        with cluster.up("two", tmp_path / "elsewhere") as (second, second_output):
            until(lambda: "standing by: the services run elsewhere" in second_output(), "the other to wait")
            assert f"runs_at={os.uname().nodename}:{first.pid}" in second_output()
            second.terminate()
            assert second.wait(90) == 0, second_output()
        first.terminate()
        assert first.wait(60) == 0, first_output()
