"""A bad definition is an error of its stream or service only, also after a restart."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pipelines.running import until
from tests.ports import free_port
from tests.security import processes
from tests.security.processes import Running

SCHEMA = "{schema: {n: int64, time: timestamp}, event_time: time"
GOOD = f"""
streams:
  numbers: {SCHEMA}}}
services:
  large: {{from: numbers, pipeline: [{{filter: n >= 10}}]}}
"""
BROKEN_NAMES = "no_environment", "no_broker", "no_table", "hollow"


def broken(folder: Path) -> str:
    """Definitions that hold together, and can't run: two sources, and two services over a stream that others read."""
    return f"""
streams:
  no_environment: {SCHEMA}, source: {{mqtt: {{topic: x, username: me, password_env: NO_SUCH}}}}}}
  no_broker: {SCHEMA}, source: {{mqtt: {{topic: x, broker: "127.0.0.1:{free_port()}"}}}}}}
services:
  no_table:
    from: numbers
    pipeline: [{{enrich: {{table: "{folder / "table.csv"}", on: n, schema: {{n: int64, colour: string}}}}}}]
  hollow:
    from: numbers
    pipeline: [{{custom: {{function: "hollow:double", schema: {{n: int64, time: timestamp}}}}}}]
"""


BROKEN = "raise SystemExit(7)\n"
"""A module that worked when the service was applied, and ends whoever imports it now."""
WORKING = """
import pyarrow as pa
import pyarrow.compute as pc

def double(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": pc.multiply(batch.column("n"), 2), "time": batch.column("time")})
"""


def events(first: int, count: int) -> bytes:
    """Events as NDJSON, numbered from `first`."""
    return b"".join(b'{"n": %d, "time": "2026-01-01T00:00:00Z"}\n' % n for n in range(first, first + count))


def send(http: httpx.Client, first: int, count: int) -> None:
    body = {"content": events(first, count), "headers": {"content-type": "application/x-ndjson"}}
    answer = http.post("/v1/streams/numbers/events", **body)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json().get("accepted")) == (200, count), answer.text


def received(http: httpx.Client, service: str) -> list[int]:
    """All numbers that a service has put out."""
    answer = http.get(f"/v1/services/{service}/events", params={"from": "beginning", "format": "plain", "max": 5000})
    assert answer.status_code == 200, answer.text
    return sorted(each["n"] for each in answer.json()["events"])


def errors(http: httpx.Client) -> dict[str, str | None]:
    """The newest error of each service and source that `_status` tells of."""
    page = http.get("/v1/services/_status/events", params={"from": "10s", "format": "plain", "max": 5000}).json()
    return {each["service"]: each["error"] for each in page["events"]}


def version_of(http: httpx.Client, service: str) -> Any:
    return http.get(f"/v1/services/{service}/status").json()


LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""


def processes_below(pid: int) -> dict[int, str]:
    """A process and all that it has started, directly or not: the name of each by its id."""
    parents: dict[int, tuple[int, str]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            name, _, rest = each.read_text().partition("(")[2].rpartition(")")
            parents[int(each.parent.name)] = int(rest.split()[1]), name
    found = {pid: parents[pid][1]}
    while more := {each: name for each, (parent, name) in parents.items() if parent in found and each not in found}:
        found |= more
    return found


def _table(pid: int, name: str) -> list[str]:
    return Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]


def listening(pid: int) -> set[tuple[str, int]]:
    """The addresses and ports where a process takes TCP connections; none if it has ended."""
    sockets, lines = set(), []
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed since
                sockets.add(os.readlink(descriptor))
        lines = [line for table in ("tcp", "tcp6") for line in _table(pid, table)]
    found = set()
    for line in lines:
        columns = line.split()
        local, state, inode = columns[1], columns[3], columns[9]
        if state == LISTEN and f"socket:[{inode}]" in sockets:
            host, port = local.split(":")
            words = [bytes.fromhex(host[n : n + 8])[::-1] for n in range(0, len(host), 8)]
            address = ip_address(b"".join(words))
            mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
            found.add((str(mapped or address), int(port, 16)))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("robust")
    (made / "table.csv").write_text("n,colour\n1,red\n")
    (made / "modules").mkdir()
    (made / "modules" / "hollow.py").write_text(WORKING)
    return made


def replace_module(folder: Path, source: str) -> None:
    (folder / "modules" / "hollow.py").write_text(source)
    shutil.rmtree(folder / "modules" / "__pycache__", ignore_errors=True)


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(folder / "modules")}


@pytest.fixture(scope="module")
def running(folder: Path, environment: dict[str, str]) -> Iterator[Running]:
    """A `tidegate up` whose registry held all the broken definitions before it started: so after a restart."""
    data = folder / "data"
    good, bad = folder / "good.yaml", folder / "bad.yaml"
    good.write_text(GOOD)
    bad.write_text(broken(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment["PYTHONPATH"])
        applied = processes.tidegate("apply", good, bad, data=data)
    assert applied.returncode == 0, applied.stderr
    replace_module(folder, BROKEN)
    (folder / "table.csv").unlink()
    with processes.up(data, env=environment) as found:
        yield found


@pytest.mark.spark
@pytest.mark.xdist_group("robustness")
class TestUp:
    """Attacks on one `tidegate up`, in order."""

    def test_ready_line_names_what_fails(self, running: Running) -> None:
        (line,) = [each for each in running.output.read_text().splitlines() if each.startswith("ready:")]
        failing, _, rest = line.partition("failing: ")[2].partition(" (")
        assert "hollow" in failing.split(", ")
        assert "large" not in failing
        assert rest == "why is in the stream _status, and above)"

    def test_each_failure_has_its_own_error_in_status(self, running: Running) -> None:
        with running.client() as http:
            until(lambda: all(errors(http).get(name) for name in BROKEN_NAMES), "an error of each")
            found = errors(http)
            assert "NO_SUCH" in str(found["no_environment"])
            assert "SystemExit" in str(found["hollow"])
            assert "table.csv" in str(found["no_table"])
            assert found["large"] is None
            assert running.process.poll() is None

    def test_failing_service_does_not_stop_ingest_and_others_go_on(self, running: Running) -> None:
        with running.client() as http:
            send(http, 0, 100)
            until(lambda: received(http, "large") == list(range(10, 100)), "the good service to get all")

    def test_fixed_service_gets_everything_since_it_was_applied(self, running: Running, folder: Path) -> None:
        replace_module(folder, WORKING)
        with running.client() as http:
            send(http, 100, 20)
            until(lambda: received(http, "hollow") == list(range(0, 240, 2)), "the mended service to get all, once")

    def test_events_right_after_an_apply_reach_the_new_service_once(self, running: Running) -> None:
        with running.client() as http:
            answer = http.put("/v1/services/late", json={"from": "numbers", "pipeline": [{"filter": "n >= 0"}]})
            assert answer.status_code == 200, answer.text
            send(http, 1000, 50)
            until(lambda: len(received(http, "late")) >= 50, "the new service to get all")
            assert received(http, "late") == list(range(1000, 1050)), "nothing of before, nothing twice"

    def test_stateful_real_time_service_listens_on_loopback_only(self, running: Running) -> None:
        counting = {"aggregate": {"count": "n", "by": ["time"], "window": {"length": "60s"}, "emit": "updates"}}
        with running.client() as http:
            answer = http.put("/v1/services/counted", json={"from": "numbers", "pipeline": [counting]})
            assert answer.status_code == 200, answer.text
            send(http, 5000, 3)
            until(lambda: received(http, "counted") == [1, 2, 3], "the shuffle to bring the events")
            assert version_of(http, "counted")["mode"] == "real-time"
            below = processes_below(running.process.pid)
            assert any("java" in name for name in below.values())
            found = {address for pid in below for address in listening(pid)}
            assert len(found) >= 4, "the gateway, Py4J, Spark's block manager and its shuffle"
            assert {host for host, _ in found} <= {"127.0.0.1", "::1"}, found

    def test_bad_definition_at_runtime_affects_no_other_service(self, running: Running, folder: Path) -> None:
        more = folder / "more.yaml"
        more.write_text(
            f"streams:\n  later: {SCHEMA}, source: {{mqtt: {{topic: x, username: me, password_env: NONE}}}}}}\n"
        )
        assert processes.tidegate("apply", more, data=running.data).returncode == 0
        with running.client() as http:
            until(lambda: "NONE" in str(errors(http).get("later")), "its error")
            send(http, 2000, 10)
            until(lambda: 2008 in received(http, "large"), "the others to go on")

    def test_definition_of_another_version_affects_no_other_service(self, running: Running) -> None:
        with sqlite3.connect(running.data / "registry.sqlite", timeout=20) as database:
            database.execute(
                "UPDATE definitions SET document = '{\"from\": 7}', version = version + 1 WHERE name = 'late'"
            )
            database.execute("UPDATE revisions SET revision = revision + 1")
        with running.client() as http:
            until(lambda: "can't be read" in str(errors(http).get("late")), "its error")
            until(lambda: http.get("/v1/services/late").status_code == 404, "the gateway to leave it out")
            send(http, 3000, 10)
            until(lambda: 3008 in received(http, "large"), "the others to go on")
            put = http.put("/v1/services/late", json={"from": "numbers", "pipeline": [{"filter": "n >= 0"}]})
            assert put.status_code == 200, "a good definition takes its place"
            until(lambda: version_of(http, "late").get("state") == "running", "it to run again")


def test_gateway_starts_over_a_definition_that_it_cannot_read(tmp_path: Path) -> None:
    file, data = tmp_path / "good.yaml", tmp_path / "data"
    file.write_text(GOOD)
    assert processes.tidegate("apply", file, data=data).returncode == 0
    with sqlite3.connect(data / "registry.sqlite") as database:
        columns = "name, kind, version, document, changed_at, forced, backfill"
        rows = [("worse", "service", "[" * 5_000), ("bad", "service", '{"from": 7}'), ("odd", "stream", "null")]
        for name, kind, document in rows:
            database.execute(
                f"INSERT INTO definitions ({columns}) VALUES (?, ?, 1, ?, 0, 0, 0)", (name, kind, document)
            )
        database.execute("UPDATE revisions SET revision = revision + 1")
    with processes.gateway(data) as running, running.client() as http:
        assert [each["name"] for each in http.get("/v1/services").json()["services"]] == ["large"]
        send(http, 0, 3)
        other = http.put("/v1/services/small", json={"from": "numbers", "pipeline": [{"filter": "n < 10"}]})
        assert other.status_code == 200, other.text


def test_nothing_is_applied_where_the_log_cannot_say_where_services_begin(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    file, data = tmp_path / "good.yaml", tmp_path / "data"
    file.write_text(GOOD)
    profile = processes.write_profile(tmp_path, access={}, log={"kafka": f"127.0.0.1:{free_port()}"})
    refused = processes.tidegate("apply", file, "--profile", profile, data=data)
    assert refused.returncode != 0
    assert "nothing was applied: new services start at the end of numbers" in refused.stderr
    assert "apply it again when the log can be reached" in refused.stderr
    with processes.gateway(data, "--profile", profile) as running, running.client() as http:
        answer = http.post("/v1/apply", content=GOOD, headers={"content-type": "application/yaml"})
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:tidegate:problem:log-unreachable")
        assert http.get("/v1/services").json()["services"] == []


def test_command_line_fixes_the_start_of_a_service(tmp_path: Path) -> None:
    file, data = tmp_path / "good.yaml", tmp_path / "data"
    file.write_text(GOOD)
    assert processes.tidegate("apply", file, data=data).returncode == 0
    with processes.gateway(data) as running, running.client() as http:
        send(http, 0, 5)
    file.write_text(GOOD + "  small: {from: numbers, pipeline: [{filter: n < 10}]}\n")
    assert processes.tidegate("apply", file, data=data).returncode == 0
    with sqlite3.connect(data / "registry.sqlite") as database:
        found = dict(database.execute("SELECT service, cursor FROM beginnings WHERE stream = 'numbers'"))
    assert found["large"] == "", "its input was not there: it begins at its beginning"
    generation, offsets = json.loads(base64.urlsafe_b64decode(found["small"] + "=="))
    assert generation
    assert offsets["0"] > 0
