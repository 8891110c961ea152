"""`tidegate top` against a real gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.gateway.running import World
from tests.pipelines.running import until
from tidegate import Client
from tidegate.cli.data_folder.home import Home
from tidegate.cli.main import app
from tidegate.cli.output.samples import GatewaySampler, quantile_ms
from tidegate.client import Unreachable
from tidegate.errors import EnvironmentProblem

runner = CliRunner()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path).running() as running_world:
        running_world.tell_running("gps")
        yield running_world


def test_once_prints_a_sample_as_json_and_as_a_table(world: World) -> None:
    sampler = GatewaySampler(world.url, None)
    with closing(sampler), Client(world.url) as client, client.subscribe("gps") as events:
        until(lambda: world.counts()["gps"]["live"] == 1, "the subscriber")
        world.append(3)
        assert next(iter(events)).data["vid"] == "B0"
        until(lambda: sampler.sample().rows[1].dispatch_p50_ms is not None, "a pass")
        until(lambda: sampler.sample().rows[1].state == "running", "the state")
        result = runner.invoke(app, ["top", "--url", world.url, "--once", "--json"])
        fast, gps = json.loads(result.stdout)["services"]
        shown = runner.invoke(app, ["top", "--url", world.url, "--once"], env={"COLUMNS": "200"}).stdout
    assert (fast["service"], fast["state"], fast["subscribers"]) == ("fast", "never ran", {})
    assert (gps["service"], gps["state"], gps["subscribers"], gps["behind"]) == ("gps", "running", {"sse": 1}, 0)
    assert 0 < gps["dispatch_p50_ms"] <= gps["dispatch_p99_ms"]
    assert f"{world.url}  1 of 2 services run" in shown
    assert "1 sse" in shown


def test_counts_that_are_not_known_are_unknown(world: World) -> None:
    world.tell_running("gps", quarantined=2, late=1_500, held=None)
    with closing(GatewaySampler(world.url, None)) as sampler:
        until(lambda: sampler.sample().rows[1].late == 1_500, "the counts")
        assert sampler.sample().rows[1].held is None
    shown = runner.invoke(app, ["top", "--url", world.url, "--once"], env={"COLUMNS": "250"}).stdout
    (row,) = (line.split() for line in shown.splitlines() if line.split()[:1] == ["gps"])
    assert row[-4:] == ["2", "1,500", "unknown", "unknown"]


def test_second_sample_covers_only_the_time_since_the_first(world: World) -> None:
    sampler = GatewaySampler(world.url, None)
    with closing(sampler), Client(world.url) as client, client.subscribe("gps") as events:
        until(lambda: world.counts()["gps"]["live"] == 1, "the subscriber")
        world.append(1)
        next(iter(events))
        until(lambda: sampler.sample().rows[1].dispatch_p50_ms is not None, "a pass")
        first = sampler.sample()
        assert sampler.sample(first).rows[1].dispatch_p50_ms is None


def test_gateway_of_a_folder_is_found(world: World, tmp_path: Path) -> None:
    with Home(tmp_path).locked() as lock:
        lock.announce(world.url)
        result = runner.invoke(app, ["top", "--data", str(tmp_path), "--once", "--json"])
    assert json.loads(result.stdout)["url"] == world.url


def test_missing_gateway_is_reported(tmp_path: Path) -> None:
    result = runner.invoke(app, ["top", "--data", str(tmp_path), "--once"])
    assert isinstance(result.exception, EnvironmentProblem)
    assert str(result.exception).startswith(f"no gateway runs in '{tmp_path}': start one with `tidegate up`, or name")
    result = runner.invoke(app, ["top", "--url", "http://127.0.0.1:1", "--once"])
    assert isinstance(result.exception, Unreachable)


@given(st.lists(st.floats(0.0001, 0.99), min_size=1, max_size=50), st.sampled_from([0.5, 0.99]))
def test_quantile_lies_in_the_bucket_of_the_exact_value(values: list[float], q: float) -> None:
    bounds = [0.001, 0.01, 0.1, 1.0, float("inf")]
    estimate = quantile_ms({bound: sum(value <= bound for value in values) for bound in bounds}, q)
    assert estimate is not None
    rank = max(1, -int(-q * len(values) // 1))
    true = sorted(values)[rank - 1]
    above = next(bound for bound in bounds if true <= bound)
    below = max([bound for bound in bounds if bound < true], default=0.0)
    assert below * 1e3 - 1e-6 <= estimate <= above * 1e3 + 1e-6
