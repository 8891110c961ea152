"""Runs Spark, the runner and the feeds of raw streams in one process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from tidegate.ingress.feeds import FeedContext, Feeds
from tidegate.logs import EventLog, RetentionLimits
from tidegate.pipelines.checkpoint_files import CheckpointFiles
from tidegate.pipelines.engine import Engine
from tidegate.pipelines.expiry import DEFAULT_RETENTION
from tidegate.pipelines.resources import RunnerResources
from tidegate.pipelines.runner import POLL_INTERVAL_S, Runner
from tidegate.pipelines.streams import Streams
from tidegate.registry import Registry

MAX_FEED_DELAY_S = 30.0
"""How long feeds wait at the start for services that neither run nor fail yet."""


class PipelineRuntime:
    """Runs the services and feeds that a registry defines, on one log, until it is stopped."""

    def __init__(
        self,
        registry: Registry,
        log: EventLog,
        spark: SparkSession,
        streams: Streams,
        *,
        checkpoints: Path | CheckpointFiles,
        positions: Path,
        key: bytes,
        resources: RunnerResources | None = None,
    ) -> None:
        """`positions` is the folder for positions of feeds; `key` is the secret of masks.

        `resources` are the functions, connections and folders that the profile lists.
        """
        self._resources = resources or RunnerResources()
        self._log, self._positions, self._spark = log, positions, spark
        retention_s = self._resources.default_retention_s
        self.runner = Runner(
            registry,
            log,
            Engine(spark, log, streams, checkpoints, key=key, resources=resources),
            DEFAULT_RETENTION if retention_s is None else RetentionLimits(age_s=retention_s),
        )

    def run(self, stop: Event, on_poll: Callable[[], None] = lambda: None) -> None:
        """Run until `stop` is set. Calls `on_poll` every `POLL_INTERVAL_S` on this thread.

        Feeds start when all services run or are known to fail, or after `MAX_FEED_DELAY_S`, so that the start of Spark
        does not count as latency. No event is lost by it: the start of a service is fixed when it is applied.
        """
        feed_deadline = time.monotonic() + MAX_FEED_DELAY_S
        feeds = Feeds(FeedContext(self._log, self._positions, os.environ, resources=self._resources.for_feeds()))
        self.runner.source_statuses = feeds.status
        revision = -1
        try:
            while not stop.is_set():
                self.runner.step()
                current = self.runner.revision
                is_due = revision >= 0 or self.runner.is_settled or time.monotonic() > feed_deadline
                if is_due and current != revision:
                    feeds.apply(self.runner.definitions)
                    revision = current
                on_poll()
                stop.wait(POLL_INTERVAL_S)
        finally:
            feeds.stop()
            self.runner.close()
            self._spark.stop()
