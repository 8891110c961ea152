"""The key `log` of a profile: files in the data folder, or Kafka with the settings of its clients and topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.cli.profile.connections import read_kafka_security
from tidegate.cli.profile.entries import describe_type, read_entries
from tidegate.errors import EnvironmentProblem
from tidegate.logs.factory import FileLogSettings, KafkaLogSettings, LogSettings
from tidegate.model import units

_KEYS = ("brokers", "sasl", "tls", "prefix", "replication", "min_in_sync", "partitions", "retention")
_MAX_REPLICATION, _MAX_PARTITIONS = 32_767, 10_000
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,64}")
_EXPECTED = "expected files, {kafka: 'host:9092'}, or {kafka: {brokers: 'host:9092', sasl: {...}, tls: {...}}}"


def read_log(document: Any, path: str) -> LogSettings:
    """Read `log` of the profile at `path`. Error messages show no values, as one may be a password."""
    if document == "files":
        return FileLogSettings()
    if not isinstance(document, Mapping) or list(document) != ["kafka"]:
        raise EnvironmentProblem(f"{path}: log: {_EXPECTED}, not {describe_type(document)}")
    kafka, where, folder = document["kafka"], f"{path}: log.kafka", Path(path).absolute().parent
    if isinstance(kafka, str):
        return KafkaLogSettings(kafka)
    entries = read_entries(kafka, _KEYS, where, has_secrets=True)
    replication = _count(entries, "replication", where, _MAX_REPLICATION)
    min_in_sync = _count(entries, "min_in_sync", where, _MAX_REPLICATION)
    if replication is not None and min_in_sync is not None and min_in_sync > replication:
        raise EnvironmentProblem(
            f"{where}.min_in_sync: expected at most replication ({replication}), not {min_in_sync}"
        )
    return KafkaLogSettings(
        _text(entries, "brokers", where, "host:9092, or several with commas"),
        read_kafka_security(entries, where, folder),
        prefix=_prefix(entries, where),
        replication=replication,
        min_in_sync=min_in_sync,
        partitions=_count(entries, "partitions", where, _MAX_PARTITIONS),
        retention_s=_retention_s(entries, where),
    )


def _count(entries: Mapping[str, Any], name: str, where: str, most: int) -> int | None:
    value = entries.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise EnvironmentProblem(f"{where}.{name}: expected a whole number from 1 to {most:,}, not {value!r}")
    return value


def _prefix(entries: Mapping[str, Any], where: str) -> str:
    value = entries.get("prefix", "")
    if not isinstance(value, str) or _PREFIX.fullmatch(value) is None or ".." in value or value.startswith("__"):
        raise EnvironmentProblem(
            f"{where}.prefix: expected at most 64 letters, digits, _ . and -, such as 'tidegate.', not {value!r}"
        )
    return value


def _retention_s(entries: Mapping[str, Any], where: str) -> float | None:
    value = entries.get("retention")
    if value is None:
        return None
    seconds = units.seconds(value) if isinstance(value, str) else None
    if not seconds:
        raise EnvironmentProblem(f"{where}.retention: expected a length of time such as 24h, not {value!r}")
    return seconds


def _text(entries: Mapping[str, Any], name: str, where: str, expected: str) -> str:
    value = entries.get(name)
    if not isinstance(value, str) or not value:
        raise EnvironmentProblem(f"{where}.{name}: expected {expected}, not {describe_type(value)}")
    return value
