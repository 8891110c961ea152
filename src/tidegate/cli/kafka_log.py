"""A profile's `log`: files of the data folder, or Kafka, with what its clients need to be let in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tidegate.cli.connections import read_kafka_security
from tidegate.errors import EnvironmentProblem, did_you_mean
from tidegate.logs.factory import FileLogSettings, KafkaLogSettings, LogSettings

_EXPECTED = "expected files, {kafka: 'host:9092'}, or {kafka: {brokers: 'host:9092', sasl: {...}, tls: {...}}}"


def read_log(document: Any, path: str) -> LogSettings:
    """Read the `log:` of the profile at `path`. What is wrong with it is not shown: a password may be in it."""
    if document == "files":
        return FileLogSettings()
    if not isinstance(document, Mapping) or list(document) != ["kafka"]:
        raise EnvironmentProblem(f"{path}: log: {_EXPECTED}, not {_shape(document)}")
    kafka, where, folder = document["kafka"], f"{path}: log.kafka", Path(path).absolute().parent
    if isinstance(kafka, str):
        return KafkaLogSettings(kafka)
    found = _entries(kafka, ("brokers", "sasl", "tls"), where)
    brokers = _text(found, "brokers", where, "host:9092, or several with commas")
    return KafkaLogSettings(brokers, read_kafka_security(found, where, folder))


def _entries(document: Any, known: Collection[str], where: str) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise EnvironmentProblem(f"{where}: expected a map with {', '.join(known)}, not {_shape(document)}")
    for key in document:
        if key not in known:
            hint = did_you_mean(str(key), known) or f"; expected {', '.join(known)}"
            raise EnvironmentProblem(f"{where}: unknown key {key!r}{hint}")
    return {key: value for key, value in document.items() if value is not None}


def _text(found: Mapping[str, Any], name: str, where: str, expected: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise EnvironmentProblem(f"{where}.{name}: expected {expected}, not {_shape(value)}")
    return value


def _shape(value: Any) -> str:
    """What a value is, without what it says.

    >>> _shape({"kafka": {"password": "hush"}}), _shape(None)
    ('a map with kafka', 'nothing')
    """
    if isinstance(value, Mapping):
        return f"a map with {', '.join(map(str, value)) or 'nothing'}"
    return "nothing" if value is None else f"{type(value).__name__}"
