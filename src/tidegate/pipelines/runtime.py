"""Everything of the pipeline plane in one process: Spark, the runner, and the feeds of raw streams."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from tidegate.logs import EventLog
from tidegate.pipelines.engine import Engine
from tidegate.pipelines.resources import RunnerResources
from tidegate.pipelines.runner import LOOK_S, Runner
from tidegate.pipelines.sources.feed import start_feeds
from tidegate.pipelines.streams import Streams
from tidegate.registry import Registry


class Runtime:
    """Runs what a registry says, over one log, until told to stop."""

    def __init__(
        self,
        registry: Registry,
        log: EventLog,
        spark: SparkSession,
        streams: Streams,
        *,
        checkpoints: Path,
        positions: Path,
        key: bytes,
        resources: RunnerResources | None = None,
    ) -> None:
        """`positions` is where sources note how far they came; `key` is the secret of masks.

        `resources` are what the profile lists for services and sources.
        """
        self._resources = resources or RunnerResources()
        self._registry, self._log, self._positions, self._spark = registry, log, positions, spark
        self.runner = Runner(registry, log, Engine(spark, log, streams, checkpoints, key=key, resources=resources))

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
                    feeds = start_feeds(
                        self._registry.definitions(),
                        self._log,
                        state=self._positions,
                        env=os.environ,
                        resources=self._resources,
                    )
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
