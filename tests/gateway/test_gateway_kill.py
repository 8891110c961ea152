"""Kill -9 the gateway under load: returning subscribers get all events in order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import httpx

from tests.conftest import KILLS
from tests.gateway.receiver import Receiver
from tests.gateway.running import World
from tests.pipelines.running import until
from tests.ports import free_port
from tidegate.client import Client, Notice, Reconnect
from tidegate.errors import ClientError

FILTER = "speed >= 30"
HASTY = Reconnect(most_s=0.2)


def wanted(sent: int) -> list[str]:
    return [f"gps_taxi:0:{n}" for n in range(sent) if n % 100 >= 30]


def wanted_count(sent: int) -> int:
    """How many they are, at once: it is asked often while a machine is busy."""
    return sent // 100 * 70 + max(0, sent % 100 - 30)


class Crowd:
    """Threads that run until `end` is called."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def gateway(folder: Path, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tidegate", "gateway", "--data", str(folder), "--port", str(port), *options]
    with (folder / "err.txt").open("ab") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors)
    try:
        until(lambda: answers(port) or process.poll() is not None, "the gateway to listen")
        assert process.poll() is None, (folder / "err.txt").read_text()
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
    except httpx.HTTPError:
        return False


class Poller:
    """Consumes a durable subscription by pages, and acknowledges each."""

    def __init__(self, url: str, id_: str, crowd: Crowd) -> None:
        self._url, self._crowd = f"{url}/v1/subscriptions/{id_}", crowd
        self.got: list[str] = []
        self.acknowledged = 0
        """How many of `got` were acknowledged for sure."""

    def run(self) -> None:
        while not self._crowd.stop.is_set():
            try:
                with httpx.Client(timeout=10) as http:
                    self._consume(http)
            except httpx.HTTPError:  # it was killed: what was not acknowledged comes again
                self.got = self.got[: self.acknowledged]
                self._crowd.stop.wait(0.05)  # a gateway that starts needs the machine more than who asks for it

    def _consume(self, http: httpx.Client) -> None:
        while not self._crowd.stop.is_set():
            page = http.get(f"{self._url}/events", params={"wait": "1s", "max": 1_000}).raise_for_status().json()
            self.got += [each["id"] for each in page["events"]]
            http.post(f"{self._url}/ack", json={"cursor": page["cursor"]}).raise_for_status()
            self.acknowledged = len(self.got)


def test_killed_gateway_loses_and_repeats_nothing_acknowledged(tmp_path: Path) -> None:
    world = World(tmp_path)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    chance = Random(20261116)
    streamed: list[str] = []
    with Crowd() as crowd:
        with gateway(tmp_path, port):
            made = httpx.post(f"{url}/v1/services/gps/subscriptions", json={"filter": FILTER, "from": "beginning"})
            poller = Poller(url, made.raise_for_status().json()["id"], crowd)
        loading = threading.Event()
        crowd.add(lambda: _load(world, crowd.stop, loading))
        crowd.add(poller.run)
        crowd.add(lambda: _stream(url, crowd.stop, streamed))
        for _ in range(KILLS):
            with gateway(tmp_path, port):
                before = len(poller.got), len(streamed)
                until(lambda b=before: len(poller.got) > b[0] and len(streamed) > b[1], "both to get more")  # type: ignore[misc]
                time.sleep(chance.uniform(0.0, 1.0))  # the moment of the kill, not a wait for anything
        with gateway(tmp_path, port):
            loading.set()
            until(lambda: len(poller.got) >= wanted_count(world.sent), "the poller to have all")
            until(lambda: len(streamed) >= wanted_count(world.sent), "the stream to have all")
            crowd.stop.set()
            world.append(31)  # wakes whoever still waits for an event
            crowd.end()
    truth = wanted(world.sent)
    assert len(truth) == wanted_count(world.sent)
    assert poller.got == truth[: len(poller.got)]
    assert streamed == truth[: len(streamed)]
    world.log.close()
    world.registry.close()


def test_webhook_message_keeps_its_id_after_a_takeover(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.create("gps", ["gps_bus.0"])
    port = free_port()
    hooks = {"allow_private": True}
    profile = tmp_path / "hooks.yaml"
    profile.write_text(json.dumps({"webhooks": hooks}))
    with Receiver().running() as receiver:
        with gateway(tmp_path, port, "--profile", str(profile)):
            hook = {"url": receiver.url, "handshake": False}
            body = {"deliver": {"webhook": hook}}
            httpx.post(f"http://127.0.0.1:{port}/v1/services/gps/subscriptions", json=body).raise_for_status()
            receiver.free.clear()
            world.append(3)
            until(lambda: receiver.begun == 1, "a message that is not answered yet")
        receiver.free.set()
        until(lambda: len(receiver.got) == 1, "the message to be taken, unknown to any gateway")
        # The next gateway reads these first.
        world.log.append("gps", "gps_bus.0", [b'{"_id":"gps_bus:0:7","vid":"V7","speed":7.0}'])
        with gateway(tmp_path, port, "--profile", str(profile)):
            until(lambda: len(receiver.got) >= 5, "all events")
    ids = [(tuple(each.numbers), each.headers["webhook-id"]) for each in receiver.got]
    assert ids[0] in ids[1:], "the message that was sent again has another id"
    assert len({id_ for _, id_ in ids}) == 4
    world.log.close()
    world.registry.close()


def _load(world: World, stop: threading.Event, ended: threading.Event) -> None:
    while not (stop.wait(0.01) or ended.is_set()):
        world.append(10)


def _stream(url: str, stop: threading.Event, got: list[str]) -> None:
    """Consumes by server-sent events, with a client that comes back by itself."""

    def noticed(notice: Notice) -> None:
        assert notice.kind != "gap", notice
        if stop.is_set():  # a test that failed waits for no gateway
            raise ClientError("it is over")

    while not stop.is_set():
        try:
            with (
                Client(url, reconnect=HASTY) as client,
                client.subscribe("gps", FILTER, since="beginning", on_notice=noticed) as events,
            ):
                for event in events:
                    got.append(event.id)
                    if stop.is_set():
                        return
        except ClientError:  # not there yet, at the very first
            assert stop.is_set() or not got
            stop.wait(0.05)
