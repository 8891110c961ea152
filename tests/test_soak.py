"""`make soak` ends after its budget, and reports which tests it did not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import soak

ROOT = Path(__file__).parents[1]

TESTS = """
import os, time

def test_first():
    while time.time() <= float(os.environ["TIDEGATE_SOAK_UNTIL"]):
        pass

def test_second():
    pass
"""


def run(folder: Path, budget: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.soak", "-q", "test_some.py"]
    environment = {**os.environ, soak.BUDGET: budget, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_test_that_would_start_after_the_budget_is_reported_as_not_run(tmp_path: Path) -> None:
    done = run(tmp_path, "1s")
    assert done.returncode == 0, done.stdout
    assert "soak: 1 of 2 tests, " in done.stdout
    assert "0 failed, 1 not run; the report is in .cache/soak-report.txt" in done.stdout
    report = (tmp_path / soak.REPORT).read_text()
    assert "not run: test_some.py::test_second" in report
    assert "s  test_some.py::test_first" in report


@pytest.mark.parametrize(("budget", "examples"), [("10s", 120), ("6m", 1_000), ("1h", 10_000), ("3h", 10_000)])
def test_examples_of_a_property_follow_from_the_budget(
    budget: str, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(soak.BUDGET, budget)
    assert soak.examples() == examples


@pytest.mark.parametrize(("budget", "kills"), [("1m", 3), ("15m", 5), ("1h", 20), ("2h", 20)])
def test_amounts_are_in_proportion_to_a_short_budget(budget: str, kills: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(soak.BUDGET, budget)
    assert soak.scaled(20, 3) == kills
