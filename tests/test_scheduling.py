"""Compute processes run under SCHED_BATCH; the gateway does not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.polling import until_async
from tidegate.ingress.http import IngestWorker
from tidegate.logs import SegmentLog
from tidegate.scheduling import batch_scheduling

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system has no SCHED_BATCH")

_POLICY = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"]


def _child_policy() -> int:
    return int(subprocess.run(_POLICY, capture_output=True, check=True).stdout)


def test_children_started_inside_the_block_use_batch_scheduling_and_later_ones_do_not() -> None:
    before = os.sched_getscheduler(0)
    with batch_scheduling():
        assert _child_policy() == os.SCHED_BATCH
    assert _child_policy() == before == os.sched_getscheduler(0)


def test_ingest_worker_uses_batch_scheduling(tmp_path: Path) -> None:
    async def work() -> int:
        async with IngestWorker(partial(SegmentLog, tmp_path)) as worker:
            await until_async(lambda: worker.is_ready, "the worker to start")
            assert worker.pid is not None
            return os.sched_getscheduler(worker.pid)

    assert asyncio.run(asyncio.wait_for(work(), 60)) == os.SCHED_BATCH
