"""Three brokers in a line, each a process; the middle one is killed under load: all get what one broker would give."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.conftest import KILLS
from tests.gateway.running import CITY, World
from tests.gateway.test_gateway_kill import answers
from tests.pipelines.running import PATIENCE_S, until
from tests.ports import free_port

SECRET = "a secret that both ends of a link know"
EMPTY = "streams: {raw: {schema: {n: int64}}}\nservices: {}"
FILTERS = ("speed >= 30", "speed < 50", "vid = 'B7' OR speed BETWEEN 10 AND 12", "speed > 98")


@dataclass(frozen=True)
class Process:
    """A gateway, as `tidegate gateway` starts it."""

    name: str
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        command = [sys.executable, "-m", "tidegate", "gateway", "--data", str(self.folder)]
        command += ["--port", str(self.port), "--broker", self.name]
        with (self.folder / "err.txt").open("ab") as errors:
            process = subprocess.Popen(command, stdout=errors, stderr=errors)
        try:
            until(lambda: answers(self.port) or process.poll() is not None, f"{self.name} to listen")
            assert process.poll() is None, (self.folder / "err.txt").read_text()
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def ask(self, method: str, path: str, **more: Any) -> Any:
        return httpx.request(method, f"{self.url}/v1/{path}", timeout=PATIENCE_S, **more).raise_for_status().json()

    def knows(self, service: str) -> bool:
        return any(each["name"] == service for each in self.ask("GET", "services")["services"])

    def asked(self, by: str, service: str) -> int:
        return int(self.ask("GET", f"links/{by}")["entries"].get(service, 0))


def made(folder: Path, name: str, text: str) -> tuple[Process, World]:
    world = World(folder / name, text)
    return Process(name, folder / name, free_port()), world


def link(dials: Process, answers: Process) -> None:
    answers.ask("POST", "links", json={"name": dials.name, "secret": SECRET, "transit": ["*"]})
    said = {"name": answers.name, "url": answers.url, "secret": SECRET, "transit": ["*"]}
    dials.ask("POST", "links", json=said)


def test_deliveries_are_those_of_one_broker_though_the_middle_one_is_killed(tmp_path: Path) -> None:
    (end, _), (middle, _) = made(tmp_path, "a", EMPTY), made(tmp_path, "b", EMPTY)
    origin, city = made(tmp_path, "c", CITY)
    chance = Random(20261116)
    with ExitStack() as stack:
        stack.enter_context(end.running())
        stack.enter_context(origin.running())
        life = stack.enter_context(ExitStack())
        life.enter_context(middle.running())
        link(end, middle)
        link(origin, middle)
        until(lambda: end.knows("gps@c"), "the service to be known two links away")
        subscribed = [
            (at, at.ask("POST", f"services/{service}/subscriptions", json={"filter": each})["id"])
            for at, service in ((end, "gps@c"), (middle, "gps@c"), (origin, "gps"))
            for each in FILTERS
        ]
        until(lambda: origin.asked("b", "gps@c") == 3 == middle.asked("a", "gps@c"), "all to be asked for")
        for _ in range(KILLS + 1):
            for _ in range(10):
                city.append(chance.randrange(1, 300))
                time.sleep(0.02)  # a load, not a wait
            life.close()
            city.append(200)
            life.enter_context(middle.running())
        city.append(100)
        wanted = [_wanted(n, city.sent) for n in range(len(FILTERS))] * 3
        assert [consumed(at, id_, len(one)) for (at, id_), one in zip(subscribed, wanted, strict=True)] == wanted


def consumed(at: Process, id_: str, count: int) -> list[str]:
    """Consume a durable subscription until it has `count` events, and return all that have arrived."""
    found: list[str] = []
    cursor = ""

    def is_all() -> bool:
        nonlocal cursor
        page = at.ask("GET", f"subscriptions/{id_}/events", params={"after": cursor, "wait": "1s"})
        found.extend(each["id"] for each in page["events"])
        cursor = page["cursor"]
        return len(found) >= count

    until(is_all, f"{count} events at {at.name}")
    return found


def _wanted(filter_: int, sent: int) -> list[str]:
    tests = (
        lambda n: n % 100 >= 30,
        lambda n: n % 100 < 50,
        lambda n: n % 10 == 7 or 10 <= n % 100 <= 12,
        lambda n: n % 100 > 98,
    )
    return [f"gps_taxi:0:{n}" for n in range(sent) if tests[filter_](n)]
