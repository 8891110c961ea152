"""PostgreSQL and Kafka go away under `tidegate up` and come back: it lives, says so, and nothing restarts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from tests.conftest import LENGTH
from tests.kafka_broker import Broker
from tests.polling import until
from tests.ports import free_port
from tests.postgres_server import Server, postgres_or_skip, serving
from tidegate.cli.processes.runner_lease import runner_lease
from tidegate.registry import PostgresRegistry

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.xdist_group("broker"),
    pytest.mark.skipif(LENGTH != "soak", reason="takes a minute: in the soak only"),
]

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64}, key: vid}
services:
  gps: {from: gps_taxi}
"""


@pytest.fixture
def postgres_server() -> Iterator[Server]:
    with serving(postgres_or_skip()) as server:
        yield server


class Up:
    """A running `tidegate up` with its gateway."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path, url: str) -> None:
        self.process, self.output, self.url = process, output, url

    def readiness(self) -> dict[str, Any]:
        assert self.process.poll() is None, self.output.read_text()[-4_000:]
        try:
            answer: dict[str, Any] = httpx.get(f"{self.url}/readyz", timeout=5).json()
        except httpx.HTTPError:
            return {}
        return answer

    def wait_for(self, status: str) -> dict[str, Any]:
        def found() -> dict[str, Any]:
            readiness = self.readiness()
            return readiness if readiness.get("status") == status else {}

        return until(found, f"/readyz to be {status}", 90)

    def events(self, least: int) -> list[float]:
        """Wait until a reader from the beginning has at least `least` events, and return their speeds."""

        def read() -> list[float]:
            answer = httpx.get(
                f"{self.url}/v1/services/gps/events",
                params={"from": "beginning", "max": 1_000},
                headers={"accept": "application/json"},
                timeout=30,
            )
            return [each["data"]["speed"] for each in answer.json()["events"]] if answer.status_code == 200 else []

        return until(lambda: found if len(found := read()) >= least else [], f"{least} events", 90)

    def publish(self, speed: float) -> httpx.Response:
        body = json.dumps({"_id": f"e{speed}", "vid": "a", "speed": speed})
        return httpx.post(
            f"{self.url}/v1/streams/gps_taxi/events",
            content=body,
            headers={"content-type": "application/json"},
            timeout=60,
        )


@contextmanager
def up(folder: Path, broker: Broker, server: Server) -> Iterator[Up]:
    (folder / "big.yaml").write_text(f"log: {{kafka: '{broker.address}'}}\nregistry: '{server.url}'\n")
    (folder / "city.yaml").write_text(CITY)
    output, port = folder / "up.txt", free_port()
    command = [sys.executable, "-m", "tidegate", "up", str(folder / "city.yaml"), "--data", str(folder / "data")]
    command += ["--profile", str(folder / "big.yaml"), "--port", str(port)]
    with output.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written)
    try:
        until(lambda: re.search("^ready: ", output.read_text(), re.M) or process.poll() is not None, "it to be ready")
        assert process.poll() is None, output.read_text()
        yield Up(process, output, f"http://127.0.0.1:{port}")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, output.read_text()[-4_000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_up_lives_through_outages_of_registry_and_log(tmp_path: Path, broker: Broker, postgres_server: Server) -> None:
    with up(tmp_path, broker, postgres_server) as city:
        assert city.publish(1.0).status_code == 200
        assert city.events(1) == [1.0]
        postgres_server.stop()
        degraded = city.wait_for("degraded")
        assert "can't use the registry 'postgres' of PostgreSQL" in degraded["problems"]["registry"]
        refused = httpx.get(f"{city.url}/v1/keys", timeout=30)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert refused.json()["type"] == "urn:tidegate:problem:registry-unreachable"
        assert city.publish(2.0).status_code == 200  # events do not need the registry
        assert city.events(2) == [1.0, 2.0]
        postgres_server.start()
        city.wait_for("ok")
        _outage_of_the_log(city, broker.kill, broker.start)
        assert city.publish(3.0).status_code == 200
        assert city.events(3) == [1.0, 2.0, 3.0]
        written = city.output.read_text()
    assert "the gateway has ended" not in written
    assert "service failed" not in written
    assert written.count("Connection refused") < 60, "client libraries log each attempt"


def _outage_of_the_log(city: Up, begin: Callable[[], None], end: Callable[[], None]) -> None:
    begin()
    try:
        degraded = city.wait_for("degraded")
        assert "no answer from Kafka" in degraded["problems"]["log"]
        refused = city.publish(9.0)
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
    finally:
        end()
    city.wait_for("ok")


def test_process_waits_for_its_lease_while_the_registry_is_away(postgres_server: Server) -> None:
    registry = PostgresRegistry(postgres_server.url)
    postgres_server.stop()
    is_waiting, stop = Event(), Event()
    outcome: list[bool] = []

    def acquire() -> None:
        with runner_lease(registry, stop, is_waiting.set) as is_held:
            outcome.append(is_held)

    thread = Thread(target=acquire)
    thread.start()
    try:
        assert is_waiting.wait(60)
        postgres_server.start()
        thread.join(60)
        assert outcome == [True]
    finally:
        stop.set()
        thread.join()
        registry.close()
