"""Tries the source of a stream before anything runs: can it be read, and do its first events fit? For `validate`."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Event

import orjson

from tidegate.errors import SourceError
from tidegate.ingress.connections import FeedResources, HttpConnection, KafkaConnection, MqttConnection
from tidegate.ingress.feeds.compression import compressed_reader, uncompressed_name
from tidegate.ingress.feeds.file_formats import FORMAT_BY_SUFFIX, READERS, FilePosition, RecordShape
from tidegate.ingress.feeds.payloads import Decoded, PayloadDecoder, TimeConverter
from tidegate.ingress.feeds.poll import Endpoint, events_of
from tidegate.ingress.feeds.sample import sample_kafka, sample_mqtt
from tidegate.model import Schema, events
from tidegate.model.schema import RESERVED
from tidegate.services.definitions import Files, Kafka, Mqtt, Poll, Stream

MAX_EVENTS = 100
"""Events that are compared with the schema."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of reading the first events of a source."""

    events: int
    """How many events were read."""
    unfit: int
    """How many of them can't be used."""
    reason: str | None
    """Why the first of these can't be used; None: all can."""


def probe(stream: Stream, resources: FeedResources, env: Mapping[str, str], wait_s: float) -> Probe | None:
    """Read the first events of a stream's source; None for sources that can't be tried. Blocks for about `wait_s`.

    Raises SourceError or MissingDependency if the source can't be read.
    """
    match stream.source:
        case Files() as source:
            decoded = _from_files(source, stream.schema)
        case Kafka() as source:
            kafka = KafkaConnection(source.brokers)
            if source.connection is not None:
                kafka = resources.connection(source.connection, KafkaConnection)
            messages = sample_kafka(source.topic, kafka, MAX_EVENTS, wait_s)
            decoded = _decoded(messages, PayloadDecoder(stream.schema, source, source.format))
        case Mqtt() as source:
            decoded = _from_mqtt(source, stream.schema, resources, env, wait_s)
        case Poll() as source:
            http = None if source.connection is None else resources.connection(source.connection, HttpConnection)
            body = Endpoint(source, http).get(Event())
            decoded = iter(events_of(body or b"", source, PayloadDecoder(stream.schema, source, source.format)))
        case _:
            return None
    reasons = [_unfit_reason(event, stream.schema) for event in islice(decoded, MAX_EVENTS)]
    unfit = [reason for reason in reasons if reason is not None]
    return Probe(len(reasons), len(unfit), unfit[0] if unfit else None)


def _from_files(source: Files, schema: Schema) -> Iterator[Decoded]:
    path = Path(source.path)
    if glob.has_magic(source.path):
        paths = sorted(Path(name) for name in glob.glob(source.path, recursive=True))
    elif path.is_dir():
        paths = sorted(path.iterdir())
    elif path.is_file():
        paths = [path]
    else:
        raise SourceError(f"no file or folder {source.path!r}")
    times = TimeConverter(schema, source)
    for file_path in paths:
        plain, suffix = uncompressed_name(file_path)
        kind = source.format or FORMAT_BY_SUFFIX.get(plain.suffix.lower())
        if kind is None or file_path.name.startswith(".") or not file_path.is_file():
            if file_path == path:
                raise SourceError(f"{path.name!r} ends in none of {', '.join(FORMAT_BY_SUFFIX)}; give its format")
            continue
        reader = READERS[kind]
        if suffix is not None:
            reader = compressed_reader(reader, suffix, file_path.stat().st_size, Event())
        try:
            with file_path.open("rb") as file:
                for record in reader(file, FilePosition(), RecordShape(schema, source.columns), True):
                    is_good = record.reason is None
                    yield times.convert(record.raw) if is_good else Decoded(record.raw, record.reason)
        except OSError as error:
            raise SourceError(f"can't read {str(file_path)!r}: {error.strerror or error}") from error


def _from_mqtt(
    source: Mqtt, schema: Schema, resources: FeedResources, env: Mapping[str, str], wait_s: float
) -> Iterator[Decoded]:
    decoder = PayloadDecoder(schema, source, source.format)
    if source.connection is not None:
        connection = resources.connection(source.connection, MqttConnection)
    else:
        from tidegate.ingress.feeds.mqtt import own_connection

        connection = own_connection(source, env)
    return _decoded(sample_mqtt(source.topic, connection, MAX_EVENTS, wait_s), decoder)


def _decoded(messages: list[bytes], decoder: PayloadDecoder) -> Iterator[Decoded]:
    for message in messages:
        yield from decoder.decode(message)


def _unfit_reason(event: Decoded, schema: Schema) -> str | None:
    """Return why an event can't be used; None if it can. Attributes that the schema does not know do not matter."""
    if event.reason is not None:
        return event.reason
    try:
        value = orjson.loads(event.raw)
    except ValueError as error:
        return f"not JSON: {error}"
    if isinstance(value, list):  # over MQTT: events as an array
        return next((reason for item in value for reason in [_violation(item, schema)] if reason is not None), None)
    return _violation(value, schema)


def _violation(value: object, schema: Schema) -> str | None:
    if not isinstance(value, dict):
        return "expected a JSON object"
    names = {field.name for field in schema.root} | set(RESERVED)
    known = {name: inner for name, inner in value.items() if name in names}
    for violation in events.violations(known, schema):
        if not violation.message.startswith("unknown attribute"):
            return f"{violation.path}: {violation.message}"
    return None
