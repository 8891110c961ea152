"""The key `log` of a profile: files in the data folder, or Kafka with the security settings of its clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.cli.profile.connections import read_kafka_security
from tidegate.cli.profile.entries import describe_type, read_entries
from tidegate.errors import EnvironmentProblem
from tidegate.logs.factory import FileLogSettings, KafkaLogSettings, LogSettings

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
    entries = read_entries(kafka, ("brokers", "sasl", "tls"), where, has_secrets=True)
    brokers = _text(entries, "brokers", where, "host:9092, or several with commas")
    return KafkaLogSettings(brokers, read_kafka_security(entries, where, folder))


def _text(entries: Mapping[str, Any], name: str, where: str, expected: str) -> str:
    value = entries.get(name)
    if not isinstance(value, str) or not value:
        raise EnvironmentProblem(f"{where}.{name}: expected {expected}, not {describe_type(value)}")
    return value
