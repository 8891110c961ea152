"""The budget, progress and report of `make soak`: a pytest plugin that starts no test after its time is spent.

`TIDEGATE_SOAK` is the budget, such as `1h`. A test that runs when the budget ends is not interrupted. Tests that were
not started count as skipped, and the report names them.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tidegate.cli.input import durations

BUDGET, UNTIL = "TIDEGATE_SOAK", "TIDEGATE_SOAK_UNTIL"
DEFAULT_BUDGET = "1h"
REPORT = Path(".cache") / "soak-report.txt"
PROGRESS_INTERVAL_S = 10.0
MAX_EXAMPLES, MIN_EXAMPLES = 10_000, 120
SLOWEST = 20
"""Tests that the report lists with their seconds."""


def budget_s() -> float:
    """Return the seconds of the budget."""
    return durations.seconds(os.environ.get(BUDGET) or DEFAULT_BUDGET)


def scaled(most: int, least: int) -> int:
    """Return how much of something a soak does: `most` in an hour, in proportion less in a shorter one."""
    return round(min(most, max(least, most * budget_s() / 3600)))


def examples() -> int:
    """Return the examples of each property."""
    return scaled(MAX_EXAMPLES, MIN_EXAMPLES)


def pytest_configure(config: pytest.Config) -> None:
    """Fix the end of the budget once, in the process that starts the workers; they inherit the environment."""
    if not hasattr(config, "workerinput"):
        os.environ[UNTIL] = str(time.time() + budget_s())
        config.pluginmanager.register(Progress(config), "soak-progress")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that would start after the budget."""
    del item
    if time.time() > float(os.environ[UNTIL]):
        pytest.skip("the budget of the soak is spent")


class Progress:
    """Counts finished tests, prints a line now and then, and writes the report. Lives in the controlling process."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._started_at, self._printed_at = config, time.time(), time.time()
        self._total = 0
        self._outcomes: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._not_run: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note how many tests there are, when this process runs them itself."""
        self._total = max(self._total, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Note how many tests there are, when workers run them."""
        self._total = max(self._total, len(ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of one test."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.when == "call" or report.outcome != "passed":
            self._outcomes[report.outcome] += 1
            if report.skipped and "budget of the soak" in str(report.longrepr):
                self._not_run.append(report.nodeid)
        if report.when == "teardown" and time.time() - self._printed_at >= PROGRESS_INTERVAL_S:
            self._printed_at = time.time()
            self._print(f"\n{self.line()}")

    def line(self) -> str:
        """Return the progress so far."""
        done, spent_s = sum(self._outcomes.values()) - len(self._not_run), time.time() - self._started_at
        return (
            f"soak: {done:,} of {self._total:,} tests, {spent_s:,.0f} s of {budget_s():,.0f} s, "
            f"{self._outcomes['failed']} failed, {len(self._not_run):,} not run"
        )

    def pytest_terminal_summary(self) -> None:
        """Print the last line, and append the report to its file."""
        lines = [self.line(), f"examples of each property: {examples():,}"]
        slowest = sorted(self._seconds.items(), key=lambda each: each[1], reverse=True)[:SLOWEST]
        lines += [f"{seconds:8.1f} s  {name}" for name, seconds in slowest]
        lines += [f"not run: {name}" for name in self._not_run]
        path = self._config.rootpath / REPORT
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n\n")
        self._print(f"{self.line()}; the report is in {REPORT}")

    def _print(self, text: str) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(text)
