"""Ends Spark's JVM when this process is paused for so long that another one may have taken over its services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidegate.pipelines.connector import attach
from tidegate.timing import periodic_in_thread

KEEP_ALIVE_INTERVAL_S = 1.0


@contextmanager
def watched_jvm(spark: SparkSession, timeout_s: float) -> Iterator[None]:
    """Let the JVM end itself if this process does not run for `timeout_s` while the block does."""
    keep_alive, stop_watch = attach.java(spark, "Watchdog.keepAlive"), attach.java(spark, "Watchdog.stop")
    ended = Event()

    def renew() -> None:
        with suppress(Py4JError, OSError):  # the JVM has ended
            keep_alive(round(timeout_s * 1_000))

    renew()
    thread = Thread(target=periodic_in_thread, args=(renew, KEEP_ALIVE_INTERVAL_S, ended), name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(Py4JError, OSError):
            stop_watch()
