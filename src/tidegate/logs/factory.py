"""Chooses and opens the log backend that a profile names. The only place that knows all of them.

To add a backend, add a settings class to `LogSettings`, a case to each function here, and a reader of its part of the
profile in `cli`. mypy reports a `match` that misses a backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tidegate.logs.kafka import KafkaLog
from tidegate.logs.kafka_security import KafkaSecurity
from tidegate.logs.log import EventLog
from tidegate.logs.segments import SegmentLog


@dataclass(frozen=True, slots=True)
class FileLogSettings:
    """Segment files in a folder of the data folder."""


@dataclass(frozen=True, slots=True)
class KafkaLogSettings:
    """Topics of a Kafka cluster."""

    brokers: str
    """`host:9092`, or several with commas."""
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    prefix: str = ""
    """Precedes the name of every topic, for a cluster that others use too."""
    replication: int | None = None
    """Replicas of each partition of new topics; None: the cluster's default."""
    min_in_sync: int | None = None
    """Replicas that must have a record before it is acknowledged; None: the cluster's default."""
    partitions: int | None = None
    """Partitions of new output topics; None: one for each partition of the inputs."""
    retention_s: float | None = None
    """Retention of topics that no definition names; None: 24 hours."""

    def topic_settings(self) -> dict[str, str]:
        """Return the settings of new topics."""
        settings = {}
        if self.min_in_sync is not None:
            settings["min.insync.replicas"] = str(self.min_in_sync)
        if self.retention_s is not None:
            settings["retention.ms"] = str(int(self.retention_s * 1_000))
        return settings


LogSettings = FileLogSettings | KafkaLogSettings


def open_log(settings: LogSettings, folder: Path) -> EventLog:
    """Return the log of a profile; the caller closes it. `folder` is used by backends that store files.

    Neither backend connects or creates files before it is first used. Raises MissingDependency if the client of the
    backend is not installed, EnvironmentProblem if a password or certificate can't be read.
    """
    match settings:
        case FileLogSettings():
            return SegmentLog(folder)
        case KafkaLogSettings():
            return KafkaLog(
                settings.brokers,
                prefix=settings.prefix,
                keyed_partitions=settings.partitions,
                replication=-1 if settings.replication is None else settings.replication,
                topic_settings=settings.topic_settings(),
                client_settings=settings.security.settings(),
            )


def has_shared_writers(settings: LogSettings) -> bool:
    """True if several processes may append to one partition; otherwise writers need a lock."""
    match settings:
        case FileLogSettings():
            return False
        case KafkaLogSettings():
            return True
