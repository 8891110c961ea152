"""The five services of a bus fleet: what they find is what pandas computes."""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd
import pytest

from examples.fleet import expected, feed
from examples.fleet.__main__ import SERVICES, compare, differences, started
from tidegate import Client
from tidegate.services import load, loads


@pytest.mark.spark
@pytest.mark.xdist_group("fleet")
def test_every_service_finds_what_pandas_finds(tmp_path: Path) -> None:
    positions = feed.invented(random.SystemRandom().randrange(1 << 32), minutes=60)
    with started(SERVICES, tmp_path) as url:
        assert compare(url, positions, SERVICES) == []
        with Client(url) as client:
            modes = {name: client.status(name)["mode"] for name in load([SERVICES]).services}
    assert set(modes.values()) == {"real-time"}, modes


def test_a_service_has_at_most_fifteen_lines() -> None:
    lines = SERVICES.read_text().split("services:\n")[1].splitlines()
    begins = [n for n, line in enumerate(lines) if line.startswith("  ") and line[2].isalpha()]
    sizes = [
        sum(bool(line.strip()) and "#" not in line for line in lines[a:b])
        for a, b in zip(begins, [*begins[1:], len(lines)], strict=True)
    ]
    assert len(sizes) == 5
    assert max(sizes) <= 15


def test_thresholds_are_those_of_the_file() -> None:
    text = SERVICES.read_text().replace("gap < 300", "gap < 120.5").replace("for: 5m", "for: 90s")
    changed = expected.thresholds(loads(text.replace("30 events", "12 events").replace("limit: 5", "limit: 2")))
    assert (changed.near_m, changed.standing_s, changed.reports, changed.routes) == (120.5, 90, 12, 2)


def test_invented_positions_show_all_that_the_services_look_for() -> None:
    positions = feed.invented(1)
    limits = expected.thresholds(load([SERVICES]))
    clean = expected.cleaned(positions, limits, b"key")
    assert len(clean) < len(positions)
    assert all(len(rows) > 20 for rows in expected.results(clean, limits).values())
    pd.testing.assert_frame_equal(positions, feed.invented(1))


def test_differences_are_named() -> None:
    wanted = pd.DataFrame({"route": ["1", "2"], "mean": [1.0, 2.0]})
    found = pd.DataFrame({"route": ["1", "2", "2"], "mean": [1.0 + 1e-12, 2.5, 2.5]})
    assert differences("slow", wanted, wanted) == []
    assert differences("slow", wanted, found) == [
        "slow: {'route': '2'}: expected [(2.0,)], found [(2.5,), (2.5,)]",
    ]
