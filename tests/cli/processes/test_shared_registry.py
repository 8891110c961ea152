"""One registry in PostgreSQL for all: `apply`, `keys`, and two gateways, as processes a user starts."""

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
        ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert ran.returncode == 0, ran.stderr
        assert PASSWORD not in ran.stdout + ran.stderr
        return ran.stdout

    @contextmanager
    def gateway(self, name: str) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
        said = self.folder / f"{name}.txt"
        command = [sys.executable, "-m", "tidegate", "gateway", "--port", "0", *self.options]
        with said.open("wb") as written:
            process = subprocess.Popen(command, stdout=written, stderr=written)
        try:
            until(lambda: "listening: " in said.read_text() or process.poll() is not None, "a gateway")
            assert process.poll() is None, said.read_text()
            with httpx.Client(base_url=said.read_text().split("listening: ")[1].split()[0], timeout=30) as client:
                yield process, client
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0, said.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        for secret in (PASSWORD, PASSWORD_IN_URL):
            assert secret not in said.read_text()

    @contextmanager
    def up(self, name: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
        """A runner with the same registry and a folder of its own; gives what it says."""
        said = self.folder / f"{name}.txt"
        command = [sys.executable, "-m", "tidegate", "up", "--no-gateway", "--data", str(folder), *self.options[2:]]
        with said.open("wb") as written:
            process = subprocess.Popen(command, stdout=written, stderr=written)
        try:
            yield process, said.read_text
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
        assert "Traceback" not in said.read_text()


@pytest.fixture
def cluster(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    url = stores.new_schema(postgres).replace(f":{PASSWORD_IN_URL}@", "@")
    monkeypatch.setenv("REGISTRY_PASSWORD", PASSWORD)
    (tmp_path / "big.yaml").write_text(
        f"registry: {{url: '{url}', password: {{env: REGISTRY_PASSWORD}}}}\nwebhooks: {{allow_private: true}}\n"
    )
    made = Cluster(tmp_path)
    (tmp_path / "city.yaml").write_text(CITY)
    assert made.run("apply", str(tmp_path / "city.yaml")).startswith("added      gps_taxi  version 1\n")
    for service in ("gps", "fast"):
        made.log.create(service, ["gps_taxi.0"])
    made.log.create("_status")
    moment = "2026-01-01T00:00:00.000000Z"
    running = [{"service": name, "state": "running", "version": 1, "time": moment} for name in ("gps", "fast")]
    made.log.append("_status", "0", [json.dumps(each).encode() for each in running])
    return made


def test_all_commands_share_it_and_no_file_is_made(cluster: Cluster) -> None:
    secret = cluster.run("keys", "create", "van 7").strip()
    (listed,) = json.loads(cluster.run("keys", "list", "--json"))
    assert secret.startswith(f"tg_{listed['prefix']}_")
    assert "is revoked" in cluster.run("keys", "revoke", listed["id"])
    assert [each["service"] for each in json.loads(cluster.run("services", "--json"))] == ["fast", "gps"]
    assert not (cluster.folder / "registry.sqlite").exists()


def test_two_gateways_one_registry(cluster: Cluster) -> None:
    receiver = Receiver()
    with ExitStack() as open_:
        open_.enter_context(receiver.running())
        (first, one), (second, two) = (open_.enter_context(cluster.gateway(name)) for name in ("one", "two"))
        assert_no_password_in_commands(first, second)

        made = two.post("/v1/services/gps/subscriptions", json={"deliver": {"webhook": {"url": receiver.url}}})
        assert made.status_code == 201, made.text
        until(lambda: one.get(f"/v1/subscriptions/{made.json()['id']}").status_code == 200, "the other to know")
        cluster.log.append("gps", "gps_taxi.0", [record(n) for n in range(20)])
        until(lambda: len(receiver.numbers) >= 20, "the webhook's events")

        put = one.put("/v1/services/slow", json={"from": "gps", "pipeline": [{"filter": "speed < 5"}]})
        assert put.status_code == 200, put.text
        until(lambda: two.get("/v1/services/slow").status_code == 200, "the other to follow")
        assert one.delete("/v1/services/slow").status_code == 204

        event = {"_id": "a", "vid": "B1", "speed": 7.0, "time": "2026-01-01T00:00:00Z"}
        until(lambda: one.get("/v1/services/slow").status_code == 404, "it to be gone")
        taken = one.post("/v1/streams/gps_taxi/events", json=event)
        assert taken.status_code == 200, taken.text
        refused = two.post("/v1/streams/gps_taxi/events", json=event)
        assert refused.status_code == 409
        assert f"which is the gateway at {str(one.base_url).rstrip('/')}: send to it" in refused.json()["detail"]

        # One dies: the other takes its leases, and its place as the writer.
        first.kill()
        first.wait()
        cluster.log.append("gps", "gps_taxi.0", [record(n) for n in range(20, 40)])
        until(lambda: set(receiver.numbers) == set(range(40)), "the rest of the events")
        until(lambda: two.post("/v1/streams/gps_taxi/events", json=event).status_code == 200, "another writer")
        again = two.post("/v1/streams/gps_taxi/events", json=event).json()
        assert (again["accepted"], again["duplicates"]) == (0, 1)
    assert sorted(receiver.numbers) == list(range(40)), "each event was sent by one gateway"


def assert_no_password_in_commands(*processes: subprocess.Popen[bytes]) -> None:
    """The processes, and those that they started."""
    ours = {str(each.pid) for each in processes}
    for entry in Path("/proc").iterdir():
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            command = (entry / "cmdline").read_text()
        except (OSError, IndexError):
            continue
        if entry.name in ours or parent in ours:
            assert PASSWORD not in command
            assert PASSWORD_IN_URL not in command
    assert os.environ["REGISTRY_PASSWORD"] == PASSWORD


def test_a_wrong_password_is_said_without_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "hush hush")
    command = [sys.executable, "-m", "tidegate", "gateway", "--port", "0", *cluster.options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 2
    assert 'password authentication failed for user "tidegate"' in ran.stderr
    assert "hush" not in ran.stderr
    assert "Traceback" not in ran.stderr


def has_heard(gateway: httpx.Client) -> bool:
    """Whether a gateway knows that every service has run at some time."""
    return "never ran" not in gateway.get("/readyz").json()["services"].values()


@pytest.mark.kafka
def test_with_kafka_events_come_in_at_any_gateway(cluster: Cluster, kafka: str) -> None:
    profile = cluster.folder / "big.yaml"
    profile.write_text(f"{profile.read_text()}log: {{kafka: '{kafka}'}}\n")
    log = KafkaLog(kafka)
    log.create("_status")
    moment = "2026-01-01T00:00:00.000000Z"
    running = [{"service": name, "state": "running", "version": 1, "time": moment} for name in ("gps", "fast")]
    log.append("_status", "0", [json.dumps(each).encode() for each in running])
    with ExitStack() as open_:
        gateways = [open_.enter_context(cluster.gateway(name))[1] for name in ("one", "two")]
        for n, gateway in enumerate(gateways):
            until(lambda gateway=gateway: has_heard(gateway), "the services to have run")  # type: ignore[misc]
            event = {"_id": f"e{n}", "vid": "B1", "speed": 7.0, "time": "2026-01-01T00:00:00Z"}
            taken = gateway.post("/v1/streams/gps_taxi/events", json=event)
            assert taken.status_code == 200, taken.text
        records = log.read("gps_taxi", log.begin("gps_taxi")).records
    assert sorted(json.loads(each)["_id"] for each in records) == ["e0", "e1"]
    log.close()


@pytest.mark.spark
def test_of_two_that_could_run_the_services_one_does(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.up("one", cluster.folder) as (first, said):
        until(lambda: "ready: 2 services" in said() or first.poll() is not None, "the services")
        assert first.poll() is None, said()
        with cluster.up("two", tmp_path / "elsewhere") as (second, told):
            until(lambda: "standing by: the services run elsewhere" in told(), "the other to wait")
            assert f"runs_at={os.uname().nodename}:{first.pid}" in told()
            second.terminate()
            assert second.wait(30) == 0, told()
        first.terminate()
        assert first.wait(60) == 0, said()
