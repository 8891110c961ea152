"""Reads sample events from a file or a topic, without a stream, a log or a position. For `tidegate init`."""

from __future__ import annotations

import io
import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import orjson

from tidegate.errors import MissingDependency, SourceError
from tidegate.ingress.connections import KafkaConnection, MqttConnection
from tidegate.ingress.feeds.compression import compressed_reader, uncompressed_name
from tidegate.ingress.feeds.file_formats import FORMAT_BY_SUFFIX, READERS, FilePosition, FileRecord, RecordShape
from tidegate.model import Schema
from tidegate.services.sources.event_format import TextFormat

MAX_SAMPLE_BYTES = 64 << 20
"""The messages of a topic that are kept as a sample."""

_NO_SCHEMA = Schema({})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceSample:
    """Events of a source, and the format that they have there."""

    events: tuple[Mapping[str, Any], ...]
    format: str
    refused: int
    """Records that are no events."""
    is_text: bool
    """True if all values are texts: the cells of CSV."""


def sample_file(path: Path, limit: int, columns: tuple[str, ...] = ()) -> SourceSample:
    """Read the first events of a file. Raises SourceError."""
    plain, suffix = uncompressed_name(path)
    kind = FORMAT_BY_SUFFIX.get(plain.suffix.lower())
    if kind is None:
        raise SourceError(f"{path.name!r} ends in none of {', '.join(FORMAT_BY_SUFFIX)}, also with .gz, .bz2 or .zst")
    reader = READERS[kind]
    try:
        if suffix is not None:
            reader = compressed_reader(reader, suffix, path.stat().st_size, Event())
        with path.open("rb") as file:
            records = list(islice(reader(file, FilePosition(), RecordShape(_NO_SCHEMA, columns), True), limit))
    except OSError as exc:
        raise SourceError(f"can't read {str(path)!r}: {exc.strerror}") from exc
    return _sample(records, kind)


def _sample(records: list[FileRecord], kind: str) -> SourceSample:
    events = []
    for record in records:
        event = None if record.reason is not None else _object(record.raw)
        if event is not None:
            events.append(event)
    return SourceSample(tuple(events), kind, len(records) - len(events), kind == "csv")


def _object(raw: bytes) -> Mapping[str, Any] | None:
    try:
        event = orjson.loads(raw)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def sample_messages(messages: list[bytes], limit: int, columns: tuple[str, ...] = ()) -> SourceSample:
    """Find out the format of messages, and return their events. Raises SourceError if there are none."""
    if not messages:
        raise SourceError("no message came; wait longer with --wait, or name another topic")
    kind = _format_of(messages[0])
    shape = RecordShape(_NO_SCHEMA, columns)
    records: list[FileRecord] = []
    for message in messages:
        try:
            if kind == "json":
                records += _from_json(message)
            else:
                records += READERS[kind](io.BytesIO(message), FilePosition(), shape, True)
        except SourceError as exc:
            records.append(FileRecord(message, FilePosition(), str(exc)))
        if len(records) >= limit:
            break
    return _sample(records[:limit], kind)


def _from_json(message: bytes) -> list[FileRecord]:
    """Return a message as a record, or the items of an array, as MQTT sources take it, as one each."""
    try:
        value = orjson.loads(message)
    except ValueError as exc:
        return [FileRecord(message, FilePosition(), str(exc))]
    items = value if isinstance(value, list) else [value]
    return [FileRecord(orjson.dumps(item), FilePosition()) for item in items]


def _format_of(message: bytes) -> TextFormat:
    text = message.strip()
    if text[:1] not in (b"{", b"["):
        return "csv"
    first, _, rest = text.partition(b"\n")
    return "ndjson" if rest.strip() and _object(first) is not None else "json"


def sample_kafka(topic: str, connection: KafkaConnection, limit: int, wait_s: float) -> list[bytes]:
    """Read the newest records of a topic, for at most `wait_s`. Raises SourceError."""
    try:
        from confluent_kafka import Consumer, KafkaException, TopicPartition
    except ModuleNotFoundError as exc:
        raise MissingDependency("confluent-kafka", "kafka") from exc
    settings = {
        "bootstrap.servers": connection.brokers,
        **connection.security.settings(),
        "group.id": f"tidegate-init-{secrets.token_hex(4)}",  # required by the client, and not used
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings, logger=_log)
    try:
        metadata = consumer.list_topics(topic, timeout=wait_s).topics[topic]
        if metadata.error is not None:
            raise SourceError(f"topic {topic!r}: {metadata.error}")
        share = max(1, limit // max(1, len(metadata.partitions)))
        expected, assignments = 0, []
        for partition in metadata.partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=wait_s)
            start = max(low, high - share)
            expected += high - start
            assignments.append(TopicPartition(topic, partition, start))
        consumer.assign(assignments)
        found = _bounded(_records(consumer, time.monotonic() + wait_s), min(limit, expected))
    except KafkaException as exc:
        raise SourceError(f"Kafka at {connection.brokers}: {exc.args[0]}") from exc
    finally:
        consumer.close()
    return found


def _records(consumer: Any, deadline_s: float) -> Iterator[bytes]:
    while (left_s := deadline_s - time.monotonic()) > 0:
        message = consumer.poll(min(left_s, 0.5))
        if message is not None and message.error() is None and message.value():
            yield message.value()


def _bounded(messages: Iterator[bytes], limit: int) -> list[bytes]:
    found: list[bytes] = []
    size = 0
    while len(found) < limit and size < MAX_SAMPLE_BYTES:
        message = next(messages, None)
        if message is None:
            break
        found.append(message)
        size += len(message)
    return found


def sample_mqtt(topic: str, connection: MqttConnection, limit: int, wait_s: float) -> list[bytes]:
    """Collect the messages that arrive on a topic within `wait_s`, at most `limit`. Raises SourceError."""
    try:
        from tidegate.ingress.feeds.mqtt import subscribe_once
    except ModuleNotFoundError as exc:
        raise MissingDependency("paho-mqtt", "mqtt") from exc
    return _bounded(subscribe_once(topic, connection, wait_s), limit)
