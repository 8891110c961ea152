"""`tidegate demo`, real Spark included."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.cli import demo, fleet
from tidegate.filters import Filter
from tidegate.model import arrow, events

pytestmark = pytest.mark.xdist_group("spark")
COMMAND = [str(Path(sys.executable).with_name("tidegate")), "demo"]


def test_the_fleet_is_seeded_and_fits_its_schema() -> None:
    first, again = next(fleet.batches(500)), next(fleet.batches(500))
    assert first.equals(again)
    for event in arrow.to_events(first):
        events.validate(event, fleet.SCHEMA)


def test_every_filter_of_the_demo_finds_something_and_not_everything() -> None:
    batch = next(fleet.batches(20_000))
    for text in demo.FILTERS.values():
        share = Filter(text, fleet.SCHEMA).mask(batch).mean()
        assert 0 < share < 0.5, text


@pytest.mark.spark
def test_the_three_evaluators_agree_in_the_demo() -> None:
    done = subprocess.run([*COMMAND, "--for", "1s", "--json"], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert all(told["equal"].values())
    assert {each["name"] for each in told["filters"]} == set(demo.FILTERS)
    assert all(each["events"] > 0 for each in told["filters"])


def test_a_missing_java_is_said_before_spark_starts(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [*COMMAND, "--for", "0s"], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert done.returncode == 2
    assert "error: Spark needs a JDK 17 or newer" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spark
def test_ctrl_c_ends_it_early_with_what_it_counted() -> None:
    running = subprocess.Popen([*COMMAND, "--for", "10m"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert running.stdout is not None
    assert "Tidegate demo" in running.stdout.readline()
    for _ in demo.FILTERS:  # the list of filters is printed right before the stream starts
        running.stdout.readline()
    running.send_signal(signal.SIGINT)
    rest, _ = running.communicate(timeout=300)
    assert running.returncode == 0, rest
    assert "stopped" in rest
    assert "all three agree" in rest
