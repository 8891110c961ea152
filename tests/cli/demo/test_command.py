"""`tidegate demo`: the city's services on real Spark, as a user starts and ends them."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from tests.pipelines.running import until
from tidegate.cli.data_folder.home import Home
from tidegate.cli.demo import command as demo
from tidegate.cli.demo.command import CITY
from tidegate.errors import TidegateError
from tidegate.logs import SegmentLog
from tidegate.pipelines.status import Status
from tidegate.services import check, load

COMMAND = [sys.executable, "-m", "tidegate", "demo"]
WAYS = {"sse", "websocket", "poll", "webhook"}
SERVICES = ["gps", "speeding", "traffic-flow", "busiest-minute"]


def test_service_file_of_the_city_is_valid() -> None:
    assert list(check(load([str(CITY)]))) == SERVICES


@pytest.mark.spark
@pytest.mark.xdist_group("demo")
def test_every_service_has_output_until_ctrl_c_ends_the_demo(tmp_path: Path) -> None:
    command = [*COMMAND, "--for", "10m", "--json", "--data", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        try:
            assert running.stderr is not None
            for line in running.stderr:  # ends with the process, if it never gets ready
                if line.startswith("ready:"):
                    break
            log = SegmentLog(tmp_path / "log")
            until(lambda: all(has_events(log, name) for name in SERVICES), "events of every service")
            until(lambda: WAYS <= set(re.findall(r'way="(\w+)"} [1-9]', metrics(tmp_path))), "every kind of delivery")
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=120)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, err
    assert "Traceback" not in err
    services = json.loads(out)["services"]
    assert list(services) == SERVICES
    assert all(service["events"] > 0 and service["error"] is None for service in services.values())
    assert {service["mode"] for service in services.values()} == {"real-time"}
    assert services["gps"]["quarantined"] > 0, "the generator sends impossible positions too"
    assert len(services["gps"]["last"]["vid"]) == 64, "plates are hidden"
    assert services["gps"]["events"] >= services["gps"]["written"] > 0
    subscribers = json.loads(out)["subscribers"]
    kinds = {subscriber["kind"] for subscriber in subscribers if subscriber["events"]}
    assert kinds == {"SSE", "WebSocket", "polling", "webhook"}


def has_events(log: SegmentLog, stream: str) -> bool:
    return stream in log.streams() and any(log.end(stream).offsets.values())


def metrics(data: Path) -> str:
    """Metrics of the demo's gateway, whose URL is in the lock file."""
    running = Home(data).running()
    return "" if running is None or running.url is None else httpx.get(f"{running.url}/metrics").text


def test_report_shows_services_subscribers_and_last_events(tmp_path: Path) -> None:
    home, console = Home(tmp_path), Console(record=True, width=200, file=io.StringIO())
    status = Status("gps", 1, "running", "real-time", written=7, latency_p50_ms=2.5)
    subscriber = {"kind": "SSE", "service": "gps", "filter": None, "events": 12, "p50_ms": 4.25, "p99_ms": 9.0}
    demo._report(home, load([str(CITY)]), {"gps": status}, [subscriber], console, as_json=False)
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["gps", "real-time", "0", "0", "2.5", "0", "7", "0"] in lines
    assert ["SSE", "gps", "everything", "12", "4.2", "9.0"] in lines
    assert ["gps", "null"] in lines, "there was no event to show"
    status.error = "no more memory"
    with pytest.raises(TidegateError, match="gps failed: no more memory"):
        demo._report(home, load([str(CITY)]), {"gps": status}, [], console, as_json=False)
