"""Everything of the pipeline plane in one process: Spark, the runner, and the feeds of raw streams."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import structlog

from tidegate.logs import SegmentLog
from tidegate.pipelines.embedded import EmbeddedLog
from tidegate.pipelines.engine import Engine
from tidegate.pipelines.runner import LOOK_S, Runner
from tidegate.pipelines.session import service_session
from tidegate.pipelines.sources.feed import start_feeds
from tidegate.registry import Registry

_log = structlog.get_logger("tidegate")


class Runtime:
    """Runs what a registry says, over one log, until told to stop."""

    def __init__(
        self, registry: Registry, log: SegmentLog, log_folder: Path, checkpoints: Path, positions: Path, *, key: bytes
    ) -> None:
        self._registry, self._log, self._positions = registry, log, positions
        self._spark = service_session("tidegate")
        streams = EmbeddedLog(self._spark, log_folder)
        self.runner = Runner(registry, log, Engine(self._spark, log, streams, checkpoints, key=key))

    def run(self, stop: Event, look: Callable[[], None] = lambda: None) -> None:
        """Run until stopped; `look` is called every quarter of a second.

        Sources begin when all services read, so that nothing of a first start
        is missed, or after a while where one can't start.
        """
        patience = time.monotonic() + 30.0
        feeds = None
        revision = -1
        try:
            while not stop.is_set():
                self.runner.step()
                found = self._registry.revision()
                if feeds is None and (self.runner.is_ready or time.monotonic() > patience):
                    feeds = start_feeds(self._registry.definitions(), self._log, state=self._positions, env=os.environ)
                    revision = found
                elif feeds is not None and found != revision:
                    feeds.apply(self._registry.definitions())
                    revision = found
                look()
                stop.wait(LOOK_S)
        finally:
            if feeds is not None:
                feeds.stop()
            self.runner.close()
            self._spark.stop()
