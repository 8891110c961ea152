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
from tidegate.pipelines.sources.feed import Feeds, Surroundings
from tidegate.pipelines.streams import Streams
from tidegate.registry import Registry

SOURCES_WAIT_S = 30.0
"""How long sources wait at a start for services that neither run nor fail."""


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
        self._log, self._positions, self._spark = log, positions, spark
        self.runner = Runner(registry, log, Engine(spark, log, streams, checkpoints, key=key, resources=resources))

    def run(self, stop: Event, look: Callable[[], None] = lambda: None) -> None:
        """Run until stopped; `look` is called every quarter of a second.

        Sources begin when all services read or are known to fail, so that nobody counts the time that Spark takes to
        start as latency, or after a while where one does neither. No event depends on it: where a service begins was
        fixed when it was applied.
        """
        patience = time.monotonic() + SOURCES_WAIT_S
        feeds = Feeds(Surroundings(self._log, self._positions, os.environ, resources=self._resources))
        self.runner.source_statuses = feeds.status
        revision = -1
        try:
            while not stop.is_set():
                self.runner.step()
                found = self.runner.revision
                is_due = revision >= 0 or self.runner.is_settled or time.monotonic() > patience
                if is_due and found != revision:
                    feeds.apply(self.runner.definitions)
                    revision = found
                look()
                stop.wait(LOOK_S)
        finally:
            feeds.stop()
            self.runner.close()
            self._spark.stop()
