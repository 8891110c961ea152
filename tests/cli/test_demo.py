"""`tidegate demo`: the city's services on real Spark, as a user starts and ends them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.cli.demo import CITY
from tidegate.services import check, load

COMMAND = [sys.executable, "-m", "tidegate", "demo"]
SERVICES = ["gps", "speeding", "traffic-flow", "busiest-minute"]


def test_the_city_holds_together() -> None:
    assert list(check(load([str(CITY)]))) == SERVICES


@pytest.mark.spark
@pytest.mark.xdist_group("demo")
def test_every_service_of_the_demo_puts_something_out(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, "--for", "25s", "--json", "--data", str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)["services"]
    assert list(told) == SERVICES
    assert all(each["events"] > 0 and each["error"] is None for each in told.values())
    assert told["gps"]["mode"] == told["speeding"]["mode"] == told["traffic-flow"]["mode"] == "real-time"
    assert told["busiest-minute"]["mode"] == "micro-batch"
    assert told["gps"]["quarantined"] > 0, "the generator sends impossible positions too"
    assert len(told["gps"]["last"]["vid"]) == 64, "plates are hidden"
    assert told["gps"]["events"] >= told["gps"]["written"] > 0
    heard = json.loads(ran.stdout)["subscribers"]
    assert {each["kind"] for each in heard} == {"SSE", "WebSocket", "polling", "webhook"}
    assert all(each["events"] > 0 for each in heard if each["filter"] != "speed < 1")


@pytest.mark.spark
@pytest.mark.xdist_group("demo")
def test_ctrl_c_ends_the_demo_with_what_it_has_seen() -> None:
    running = subprocess.Popen(
        [*COMMAND, "--for", "10m"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert running.stderr is not None
    for line in running.stderr:  # ends with the process, if it never gets ready
        if line.startswith("ready:"):
            break
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert "one event of each" in out
    assert "Traceback" not in err
