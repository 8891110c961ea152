"""A rolling upgrade from the previous commit: processes of two versions share the registry, the log and subscribers.

TIDEGATE_PREVIOUS names another commit or tag to upgrade from.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import LENGTH
from tests.docs.test_documents import ROOT
from tests.polling import until
from tidegate.logs import KafkaLog

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

PREVIOUS = os.environ.get("TIDEGATE_PREVIOUS", "HEAD~1")
NEW = ROOT / "src"
SERVICES = """
streams:
  {raw}: {{schema: {{n: int64, kind: string, time: timestamp}}, event_time: time, key: kind}}
services:
  {all}: {{from: {raw}}}
  {counted}:
    from: {raw}
    idle: never
    pipeline: [{{aggregate: {{count: n, by: [kind], window: {{length: 1h}}, emit: updates}}}}]
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the previous commit."""
    folder = tmp_path_factory.mktemp("previous")
    archive = subprocess.run(["git", "archive", PREVIOUS, "src"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"no commit {PREVIOUS}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "src"


class Site:
    """A profile with Kafka and PostgreSQL, and what runs on it."""

    def __init__(self, folder: Path, kafka: str, database: str) -> None:
        self.folder = folder
        self.log = KafkaLog(kafka)
        tag = secrets.token_hex(4)  # the broker is shared with other tests
        self.raw, self.all, self.counted = f"raw_{tag}", f"all_{tag}", f"counted_{tag}"
        (folder / "profile.yaml").write_text(f"log: {{kafka: '{kafka}'}}\nregistry: '{database}'\n")
        (folder / "services.yaml").write_text(SERVICES.format(raw=self.raw, all=self.all, counted=self.counted))

    def _start(self, code: Path, name: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        output = self.folder / f"{name}.txt"
        options = ["--data", str(self.folder / "data"), "--profile", str(self.folder / "profile.yaml")]
        with output.open("wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "tidegate", *arguments, *options],
                stdout=written,
                stderr=written,
                env={**os.environ, "PYTHONPATH": str(code)},
            )
        return process, output

    def apply(self, code: Path) -> None:
        process, output = self._start(code, "apply", "apply", str(self.folder / "services.yaml"))
        assert process.wait(120) == 0, output.read_text()

    @contextmanager
    def running(self, code: Path, name: str, pattern: str, *arguments: str) -> Iterator[re.Match[str]]:
        """Run a process until the block ends, then stop it as a service manager does."""
        process, output = self._start(code, name, *arguments)
        try:
            until(
                lambda: re.search(pattern, output.read_text(), re.M) or process.poll() is not None,
                f"{name} to start",
            )
            started = re.search(pattern, output.read_text(), re.M)
            assert started is not None, output.read_text()
            yield started
            process.send_signal(signal.SIGTERM)
            assert process.wait(90) == 0, output.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    @contextmanager
    def gateway(self, code: Path, name: str) -> Iterator[httpx.Client]:
        with (
            self.running(code, name, r"listening: (http\S+)", "gateway", "--port", "0") as started,
            httpx.Client(base_url=started[1], timeout=60, headers={"accept": "application/json"}) as client,
        ):
            yield client

    def publish(self, gateway: httpx.Client, numbers: range) -> None:
        events = [{"_id": f"e{n}", "n": n, "kind": "odd" if n % 2 else "even", "time": TIME} for n in numbers]
        answer = gateway.post(f"/v1/streams/{self.raw}/events", json=events)
        assert answer.status_code == 200, answer.text

    def page(self, gateway: httpx.Client, path: str, **params: Any) -> tuple[list[int], str]:
        """Return the numbers of a page of events, and its cursor."""
        answer = gateway.get(path, params={"max": 1_000, **params})
        assert answer.status_code == 200, answer.text
        return [event["data"]["n"] for event in answer.json()["events"]], answer.json()["cursor"]

    def write_output(self, numbers: range) -> None:
        """Append what a runner would write to the output of a service without a pipeline."""
        stream = f"{self.raw}/0"
        common = {"kind": "any", "time": TIME, "_time": TIME}
        records = [{"_id": f"e{n}", "_src": f"{stream}:{n}", "n": n, **common} for n in numbers]
        self.log.append(self.all, f"{self.raw}.0", [json.dumps(each).encode() for each in records])


TIME = "2026-01-01T00:00:10.000000Z"


@pytest.fixture
def site(tmp_path: Path, kafka: str, postgres: str) -> Iterator[Site]:
    import psycopg

    name = f"upgrade_{secrets.token_hex(4)}"  # the server is shared with other tests
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    site = Site(tmp_path, kafka, postgres.rpartition("/")[0] + f"/{name}")
    yield site
    site.log.close()


def test_gateways_of_two_versions_serve_the_same_subscriptions(site: Site, old: Path) -> None:
    site.apply(old)
    site.log.create(site.all, [f"{site.raw}.0"])
    with ExitStack() as at_the_end, site.gateway(old, "first-old") as first:
        with site.gateway(old, "second-old") as second:
            path = f"/v1/services/{site.all}"
            of_old = first.post(f"{path}/subscriptions", json={"from": "beginning"}).json()["id"]
            site.publish(first, range(10))
            site.write_output(range(10))
            new = at_the_end.enter_context(site.gateway(NEW, "first-new"))  # migrates the registry
            of_new = new.post(f"{path}/subscriptions", json={"from": "beginning"}).json()["id"]
            site.publish(second, range(10, 20))
            site.publish(new, range(20, 30))
            for gateway in (first, second, new):
                numbers, cursor = site.page(gateway, f"{path}/events", **{"from": "beginning"})
                assert numbers == [*range(10)]
            assert until(lambda: first.get(f"/v1/subscriptions/{of_new}").status_code == 200, "the new subscription")
            for gateway, other, id_ in ((new, first, of_old), (second, new, of_new)):
                numbers, acknowledged = site.page(gateway, f"/v1/subscriptions/{id_}/events", max=5)
                assert numbers == [*range(5)]
                moved = gateway.post(f"/v1/subscriptions/{id_}/ack", json={"cursor": acknowledged})
                assert moved.json()["moved"] is True
                assert site.page(other, f"/v1/subscriptions/{id_}/events")[0] == [*range(5, 10)]
        site.write_output(range(10, 20))
        with site.gateway(old, "restarted-old") as restarted:  # it may start on the migrated registry
            assert site.page(restarted, f"{path}/events", cursor=cursor)[0] == [*range(10, 20)]
            assert site.page(restarted, f"/v1/subscriptions/{of_new}/events")[0] == [*range(5, 20)]
            site.publish(restarted, range(30, 40))
        assert site.page(new, f"/v1/subscriptions/{of_old}/events")[0] == [*range(5, 20)]
    records = site.log.read(site.raw, site.log.begin(site.raw), 1_000).records
    assert [json.loads(record)["n"] for record in records] == [*range(40)]


@pytest.mark.spark
@pytest.mark.skipif(LENGTH != "soak", reason="starts Spark twice: in the soak only")
def test_runner_of_the_new_version_continues_where_the_old_one_was(site: Site, old: Path) -> None:
    def outputs(gateway: httpx.Client) -> tuple[list[int], list[int]]:
        numbers = site.page(gateway, f"/v1/services/{site.all}/events", **{"from": "beginning"})[0]
        counts = site.page(gateway, f"/v1/services/{site.counted}/events", **{"from": "beginning"})[0]
        return numbers, sorted(counts)

    runner = ("up", str(site.folder / "services.yaml"), "--no-gateway")
    with site.gateway(old, "old-gateway") as gateway:
        with site.running(old, "old-runner", "^ready: ", *runner):
            site.publish(gateway, range(20))
            expected = ([*range(20)], sorted([*range(1, 11)] * 2))
            until(lambda: outputs(gateway) == expected, "the old runner to process all events")
        site.publish(gateway, range(20, 30))
        with site.running(NEW, "new-runner", "^ready: ", *runner), site.gateway(NEW, "new-gateway") as upgraded:
            site.publish(upgraded, range(30, 40))
            expected = ([*range(40)], sorted([*range(1, 21)] * 2))
            until(lambda: outputs(upgraded) == expected, "the new runner to process all events, each once")
            assert outputs(gateway) == expected
        with site.running(old, "back", "^ready: ", *runner):  # a rollback
            site.publish(gateway, range(40, 50))
            expected = ([*range(50)], sorted([*range(1, 26)] * 2))
            until(lambda: outputs(gateway) == expected, "the old runner to continue")
