"""Whoever computes stands back; whoever delivers does not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tidegate.courtesy import standing_back
from tidegate.gateway.ingest import IngestWorker
from tidegate.logs import SegmentLog

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system does not tell such processes apart")

_POLICY = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"]


def _policy_of_a_child() -> int:
    return int(subprocess.run(_POLICY, capture_output=True, check=True).stdout)


def test_what_is_started_within_stands_back_and_what_is_started_behind_does_not() -> None:
    before = os.sched_getscheduler(0)
    with standing_back():
        assert _policy_of_a_child() == os.SCHED_BATCH
    assert _policy_of_a_child() == before == os.sched_getscheduler(0)


def test_the_process_that_appends_stands_back(tmp_path: Path) -> None:
    async def work() -> int:
        async with IngestWorker(partial(SegmentLog, tmp_path)) as worker:
            while not worker.is_ready:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.005)
            assert worker.pid is not None
            return os.sched_getscheduler(worker.pid)

    assert asyncio.run(asyncio.wait_for(work(), 60)) == os.SCHED_BATCH
