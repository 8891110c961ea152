"""The runner, where there is nothing for Spark to do."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tidegate.logs import SegmentLog
from tidegate.pipelines.engine import Engine
from tidegate.pipelines.runner import Runner
from tidegate.registry import SqliteRegistry


def test_runner_without_services_is_ready_after_the_first_step(tmp_path: Path) -> None:
    registry, log = SqliteRegistry(tmp_path / "registry.sqlite"), SegmentLog(tmp_path / "log")
    runner = Runner(registry, log, cast(Engine, None))  # nobody is asked to start anything
    before = runner.is_ready
    runner.step()
    assert (before, runner.is_ready) == (False, True)
    runner.close()
    log.close()
    registry.close()
