"""The cluster's log: a Kafka topic per stream, one JSON object per record.

*Partitions.* Kafka's partitions have numbers; a partition of ours has a name. A
name that is a number, as raw streams have them, is Kafka's number. Any other, as
outputs have them ("gps_taxi_a.0"), is the key of its records, and Kafka's usual
hash of the key (Java's and Spark's too) chooses the number: what has one name
stays in order, and nothing is kept anywhere about names. So a key needs not be
made before it is written to. Cursors, gaps and places of records count by Kafka's
numbers. A topic that was made for keys never grows by more keys, since another
number of partitions would move them all.

*Generation.* The topic's id: a topic that is deleted and made again has another.
It is asked for at most every `check_s`, so readers in other processes notice
within that time, and also new partitions.

*Appending.* By one idempotent producer, acknowledged by all replicas in sync
before `append` returns: each record once, in order. All or none holds for what is
refused before it is sent (no object, too long, unknown partition). Where the
cluster fails in the middle, some of the records may be there though `append`
raises; appending them again writes these twice.

*Repeats.* Spark may write a record again after a failure. Readers leave it out by
the marks that their cursor carries (`marks.py`). A cursor that was not read up to
(`end`, `since`) has no marks yet: the first repeat behind it may come through.

*Keeping.* Kafka's own retention: `expire` sets it on the topic and frees nothing
itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from tidegate.errors import CursorError, LogError, MissingDependency
from tidegate.logs.cursor import Cursor
from tidegate.logs.kafka_reader import Misplaced, Reader
from tidegate.logs.kafka_sender import Sender, SenderClosed, Sent
from tidegate.logs.log import (
    Gap,
    Read,
    Retention,
    another_generation,
    beyond_end,
    is_name,
    need_names,
    need_records,
    no_partition,
    no_stream,
)
from tidegate.logs.marks import is_repeat

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

_logger = logging.getLogger(__name__)


_AT = ".."
"""What stands for `@` in a topic's name."""


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic as it was seen last."""

    name: str
    generation: str
    partitions: int
    seen_at: float

    @property
    def numbers(self) -> dict[str, int]:
        """Kafka's numbers by their text."""
        return {str(number): number for number in range(self.partitions)}


class KafkaLog:
    """Streams as topics."""

    def __init__(
        self,
        brokers: str,
        *,
        prefix: str = "",
        keyed_partitions: int = 4,
        replication: int = -1,
        record_bytes: int = 1_000_000,
        readers: int = 16,
        timeout_s: float = 10.0,
        check_s: float = 1.0,
        topic_settings: Mapping[str, str] | None = None,
        client_settings: Mapping[str, str] | None = None,
    ) -> None:
        """Connect when first used.

        `prefix` precedes every topic's name, for a cluster that others use too.
        `keyed_partitions` is how many a topic has whose partitions are keys;
        `replication` -1 is the cluster's default. `record_bytes` is the longest
        record, a little less than the brokers' `message.max.bytes`. `readers` is how
        many consumers are kept for the next read, one per place that is read from;
        each has threads and connections.
        `topic_settings` are for topics that are made, `client_settings` for every
        client: security above all.
        """
        try:
            import confluent_kafka  # noqa: F401
        except ImportError as exc:
            raise MissingDependency("confluent-kafka", "kafka") from exc
        self._brokers, self._prefix = brokers, prefix
        self._keyed_partitions, self._replication, self._record_bytes = keyed_partitions, replication, record_bytes
        self._timeout_s, self._check_s, self._most_readers = timeout_s, check_s, readers
        # When a record was appended is for the broker to say, as in the embedded log it is for the writer.
        self._topic_settings = {"message.timestamp.type": "LogAppendTime", **(topic_settings or {})}
        # Nagle's algorithm would hold small requests back for one another.
        here = {"bootstrap.servers": brokers, "socket.nagle.disable": "true", "log_level": "3"}
        self._client_settings: dict[str, Any] = {**here, **(client_settings or {}), "error_cb": self._note_refusal}
        self._refusal: tuple[float, str] | None = None
        self._topics: dict[str, _Topic] = {}
        self._retentions: dict[str, Retention] = {}
        self._readers: list[Reader] = []
        self._lock = Lock()
        self._admin_client: AdminClient | None = None
        self._sender: Sender | None = None

    # Streams -------------------------------------------------------------------

    def topic(self, stream: str) -> str:
        """The topic of a stream; Kafka takes no `@`, which mirrors of other brokers' services have."""
        return self._prefix + stream.replace("@", _AT)

    def create(self, stream: str, partitions: Sequence[str] = ("0",)) -> None:
        """Make a topic, or add partitions to it."""
        from confluent_kafka import KafkaError
        from confluent_kafka.admin import NewPartitions, NewTopic

        need_names((stream, *partitions))
        numbers = [number for number in map(_number, partitions) if number is not None]
        wanted = max(numbers, default=-1) + 1
        topic = self.topic(stream)
        known = self._look(stream)
        if known is None:
            count = max(wanted, 1 if len(numbers) == len(partitions) else self._keyed_partitions)
            new = NewTopic(topic, count, self._replication, config=self._topic_settings)
            self._settle(
                self._admin().create_topics([new], request_timeout=self._timeout_s)[topic],
                KafkaError.TOPIC_ALREADY_EXISTS,
            )
        elif known.partitions < wanted:
            new_partitions = NewPartitions(topic, wanted)
            self._settle(
                self._admin().create_partitions([new_partitions], request_timeout=self._timeout_s)[topic],
                KafkaError.INVALID_PARTITIONS,  # another was faster
            )
        else:
            return
        self._await(lambda: (seen := self._look(stream)) is not None and seen.partitions >= wanted)
        self._await(lambda: self._has_leaders(stream))

    def streams(self) -> list[str]:
        """The names of all streams."""
        with self._asking():
            topics = self._admin().list_topics(timeout=self._timeout_s).topics
        found = [name.removeprefix(self._prefix).replace(_AT, "@") for name in topics if name.startswith(self._prefix)]
        return sorted(name for name in found if is_name(name) and not self.topic(name).startswith("__"))

    def partitions(self, stream: str) -> list[str]:
        """Kafka's numbers, as texts."""
        return list(self._known(stream).numbers)

    def delete(self, stream: str) -> None:
        """Forget a topic and all its records."""
        from confluent_kafka import KafkaError

        topic = self._known(stream).name
        self._forget(stream)
        self._settle(
            self._admin().delete_topics([topic], request_timeout=self._timeout_s)[topic],
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        )
        self._await(lambda: self._look(stream) is None)

    def close(self) -> None:
        """Wait for what is on its way, and let go of all connections."""
        with self._lock:
            readers, self._readers = self._readers, []
            sender, self._sender = self._sender, None
            self._admin_client = None
            self._topics.clear()
        for reader in readers:
            reader.close()
        if sender is not None:
            sender.close()

    # Writing -------------------------------------------------------------------

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        """Add records and give the offset behind the last, when all replicas in sync have them."""
        need_records(records)
        for n, record in enumerate(records):
            if len(record) > self._record_bytes:
                raise LogError(f"record {n}: {len(record)} bytes; expected at most {self._record_bytes}")
        topic = self._known(stream)
        number = _number(partition)
        if number is not None and number >= topic.partitions:
            topic = self._known(stream, anew=True)
            if number >= topic.partitions:
                raise no_partition(stream, partition, map(str, range(topic.partitions)))
        if number is None:
            need_names([partition])
        if not records:
            return self.end(stream).offsets.get(partition, 0)
        key = partition.encode() if number is None else None
        sender, sent = self._send(topic.name, number, key, records)
        sent.done.wait(self._timeout_s + 5.0)
        if not sent.arrived:
            self._drop(sender)
            self._known(stream, anew=True)  # gone meanwhile?
            raise self._unreachable() if sent.error is None else self._problem(sent.error)
        return sent.end

    def _send(self, topic: str, number: int | None, key: bytes | None, records: Sequence[bytes]) -> tuple[Sender, Sent]:
        while True:
            sender = self._sending()
            try:
                with self._asking():
                    return sender, sender.send(topic, number, key, records)
            except SenderClosed:
                continue  # another thread has let go of it

    def _sending(self) -> Sender:
        from confluent_kafka import Producer

        with self._lock:
            if self._sender is None:
                settings: dict[str, Any] = {
                    **self._client_settings,
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": 0,
                    "message.max.bytes": self._record_bytes + 48_000,
                    "message.timeout.ms": int(self._timeout_s * 1_000),
                    "partitioner": "murmur2_random",  # Java's, and so Spark's
                }
                self._sender = Sender(Producer(settings, logger=_logger), self._timeout_s)
            return self._sender

    def _drop(self, sender: Sender) -> None:
        """Take another producer from now on: one that has failed may not go on."""
        with self._lock:
            if self._sender is sender:
                self._sender = None
        sender.close()

    # Reading -------------------------------------------------------------------

    def begin(self, stream: str) -> Cursor:
        """Before the oldest record that is left."""
        topic = self._known(stream)
        return _cursor(topic, self._offsets(topic, "earliest"))

    def end(self, stream: str) -> Cursor:
        """Behind the newest record."""
        topic = self._known(stream)
        return _cursor(topic, self._offsets(topic, "latest"))

    def since(self, stream: str, micros: int) -> Cursor:
        """At the first record that was appended in the millisecond of a moment, or later."""
        topic = self._known(stream)
        found = self._offsets(topic, max(0, micros // 1_000))
        ends = self._offsets(topic, "latest")
        return _cursor(topic, {number: at if at >= 0 else ends[number] for number, at in found.items()})

    def read(self, stream: str, cursor: Cursor, most: int = 1_000) -> Read:
        """Read on from a cursor, at most so many records, without those that the cursor's marks have."""
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                with self._reading(stream, cursor) as (topic, reader, gaps):
                    return self._read(topic, reader, cursor, most, gaps, until)
            except Misplaced:
                self._look_again(stream, until)

    def _read(
        self, topic: _Topic, reader: Reader, cursor: Cursor, most: int, gaps: Sequence[Gap], until: float
    ) -> Read:
        records: list[bytes] = []
        places: list[tuple[str, int]] = []
        marks = dict(cursor.marks)
        while most > 0 and not records:
            for partition, offset, record in reader.take(most):
                if record is not None and not is_repeat(record, marks):
                    records.append(record)
                    places.append((str(partition), offset))
            if records or reader.wait(0.0):
                continue
            # Nothing is here yet: either there is nothing, or it is on its way.
            ends = self._offsets(topic, "latest")
            if all(reader.offsets[number] >= end for number, end in ends.items()):
                break
            if time.monotonic() > until:
                raise self._unreachable()
            reader.fetch(0.1)
        offsets = {str(number): offset for number, offset in reader.offsets.items()}
        return Read(tuple(records), tuple(places), Cursor(cursor.generation, offsets, marks), tuple(gaps))

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        """Leave it to the broker, which answers a fetch when something comes."""
        until = time.monotonic() + timeout_s
        while True:
            try:
                with self._reading(stream, cursor) as (_, reader, gaps):
                    # Now and then another look at the topic: it may be deleted, or have more partitions.
                    if gaps or reader.wait(min(max(0.0, until - time.monotonic()), max(self._check_s, 0.05))):
                        return True
            except Misplaced:
                self._look_again(stream, until + self._timeout_s)
            if time.monotonic() >= until:
                return False

    @contextmanager
    def _reading(self, stream: str, cursor: Cursor) -> Iterator[tuple[_Topic, Reader, list[Gap]]]:
        """A reader that stands at a cursor, for whoever has it alone; and what the cursor has missed."""
        topic = self._known(stream)
        if not cursor.offsets.keys() <= topic.numbers.keys():
            topic = self._known(stream, anew=True)
        if cursor.generation != topic.generation:
            raise another_generation(stream)
        for name in cursor.offsets.keys() - topic.numbers.keys():
            raise CursorError(f"the cursor has a partition {name!r}, which {stream!r} has not")
        wanted = {topic.numbers[name]: offset for name, offset in cursor.offsets.items()}
        reader = self._take(topic, wanted)
        try:
            if reader.is_at(wanted) and len(reader.offsets) == topic.partitions:
                yield topic, reader, []
            else:
                yield topic, reader, self._place(stream, topic, reader, wanted)
        except BaseException:
            reader.close()
            raise
        self._give_back(reader)

    def _place(self, stream: str, topic: _Topic, reader: Reader, wanted: Mapping[int, int]) -> list[Gap]:
        """Make a reader stand where it is wanted, or behind what has expired there; give what that leaves out."""
        begins = self._offsets(topic, "earliest")
        ends = self._offsets(topic, "latest")
        gaps = []
        offsets = {}
        for number, begin in begins.items():
            offset = wanted.get(number, begin)
            if offset < begin:
                gaps.append(Gap(str(number), offset, begin))
            elif offset > ends[number]:
                raise beyond_end(stream, str(number), offset, ends[number])
            offsets[number] = max(offset, begin)
        reader.go(offsets, None if gaps else wanted)
        return gaps

    def _take(self, topic: _Topic, wanted: Mapping[int, int]) -> Reader:
        """The idle reader that stands where it is wanted; else, of many, the one that idles longest; else a new one."""
        from confluent_kafka import Consumer

        with self._lock:
            idle = [reader for reader in self._readers if reader.generation == topic.generation]
            there = [reader for reader in idle if reader.is_at(wanted)]
            full = len(self._readers) >= self._most_readers
            for reader in there or (idle if full else []):
                self._readers.remove(reader)
                return reader
        settings: dict[str, Any] = {
            **self._client_settings,
            "group.id": "tidegate",  # must be, and is never joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 100,  # a reader that is placed elsewhere waits for its last fetch to end
            "queued.max.messages.kbytes": 8_192,
        }
        return Reader(Consumer(settings, logger=_logger), topic.name, topic.generation)

    def _give_back(self, reader: Reader) -> None:
        with self._lock:
            self._readers.append(reader)
            surplus = self._readers.pop(0) if len(self._readers) > self._most_readers else None
        if surplus is not None:
            surplus.close()

    # Keeping -------------------------------------------------------------------

    def expire(self, stream: str, retention: Retention) -> int:
        """Tell the topic what to keep; its broker lets go of the rest in its own time, segment by segment."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        topic = self._known(stream)
        if self._retentions.get(topic.generation) == retention:
            return 0
        kept = {
            "retention.ms": -1 if retention.age_s is None else int(retention.age_s * 1_000),
            "retention.bytes": -1 if retention.size_bytes is None else retention.size_bytes,
        }
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET) for name, value in kept.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=entries)
        self._settle(self._admin().incremental_alter_configs([resource], request_timeout=self._timeout_s)[resource])
        self._retentions[topic.generation] = retention
        return 0

    # Topics --------------------------------------------------------------------

    def _known(self, stream: str, *, anew: bool = False) -> _Topic:
        """A topic as it was a moment ago, or is now."""
        found = self._topics.get(stream)
        if found is None or anew or time.monotonic() - found.seen_at >= self._check_s:
            found = self._look(stream)
        if found is None:
            raise no_stream(stream, self.streams())
        return found

    def _look(self, stream: str) -> _Topic | None:
        """A topic as it is; None where there is none."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        if not is_name(stream):
            return None
        topic = self.topic(stream)
        try:
            asked = self._admin().describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)
            said = asked[topic].result()
        except KafkaException as exc:
            if exc.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._forget(stream)
                return None
            raise self._problem(exc.args[0]) from exc
        found = _Topic(topic, generation_of(str(said.topic_id)), len(said.partitions), time.monotonic())
        before = self._topics.get(stream)
        if before is not None and before.generation != found.generation:
            self._forget(stream)
        self._topics[stream] = found
        return found

    def _look_again(self, stream: str, until: float) -> None:
        """Look at a topic that has nothing where its reader stood; not forever."""
        self._known(stream, anew=True)
        if time.monotonic() > until:
            raise self._unreachable()

    def _forget(self, stream: str) -> None:
        """Let go of what was opened for a topic that is no more."""
        with self._lock:
            known = self._topics.pop(stream, None)
            if known is None:
                return
            self._retentions.pop(known.generation, None)
            old = [reader for reader in self._readers if reader.generation == known.generation]
            self._readers = [reader for reader in self._readers if reader not in old]
            sender, self._sender = self._sender, None  # its count of what it sent would not fit a new topic
        for reader in old:
            reader.close()
        if sender is not None:
            sender.close()

    def _offsets(self, topic: _Topic, place: Literal["earliest", "latest"] | int) -> dict[int, int]:
        """Where each partition begins, ends, or was at a moment in milliseconds; -1: it had not come to that."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if isinstance(place, int):
            spec = OffsetSpec.for_timestamp(place)
        else:
            spec = OffsetSpec.earliest() if place == "earliest" else OffsetSpec.latest()
        asked = {TopicPartition(topic.name, number): spec for number in range(topic.partitions)}
        with self._asking():
            said = self._admin().list_offsets(asked, request_timeout=self._timeout_s)
            return {partition.partition: int(future.result().offset) for partition, future in said.items()}

    def _has_leaders(self, stream: str) -> bool:
        """Say whether all partitions of a new topic can be used."""
        try:
            self.end(stream)
        except LogError:
            return False
        return True

    # Kafka ---------------------------------------------------------------------

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        with self._lock:
            if self._admin_client is None:
                self._admin_client = AdminClient(dict(self._client_settings), logger=_logger)
            return self._admin_client

    def _hear_refusals(self) -> None:
        """Let the client for administration report what it has met: it does so only when it is asked."""
        with self._lock:
            admin = self._admin_client
        if admin is not None:
            admin.poll(0)

    def _settle(self, asked: Future[Any], unless: int | None = None) -> None:
        """Wait for an answer; one kind of refusal may be as good as consent."""
        from confluent_kafka import KafkaException

        try:
            asked.result()
        except KafkaException as exc:
            if exc.args[0].code() != unless:
                raise self._problem(exc.args[0]) from exc

    def _await(self, is_so: Callable[[], bool]) -> None:
        """Look until something is so: brokers hear of a topic's change one after the other."""
        until = time.monotonic() + self._timeout_s
        while not is_so():
            if time.monotonic() > until:
                raise self._unreachable()
            time.sleep(0.005)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as exc:
            raise self._problem(exc.args[0]) from exc

    def _problem(self, error: KafkaError) -> LogError:
        from confluent_kafka import KafkaError as Kafka

        away = (Kafka._TRANSPORT, Kafka._TIMED_OUT, Kafka._ALL_BROKERS_DOWN, Kafka._MSG_TIMED_OUT, Kafka._RESOLVE)
        if error.code() in away:
            return self._unreachable()
        return LogError(f"Kafka at {self._brokers} refuses: {error.str()}")

    def _note_refusal(self, error: KafkaError) -> None:
        """Keep why brokers let nobody in: what was asked for then only times out."""
        from confluent_kafka import KafkaError as Kafka

        if error.code() in (Kafka._AUTHENTICATION, Kafka._SSL, Kafka.SASL_AUTHENTICATION_FAILED):
            self._refusal = time.monotonic(), error.str()

    def _unreachable(self) -> LogError:
        self._hear_refusals()
        refusal = self._refusal
        if refusal is not None and time.monotonic() - refusal[0] < self._timeout_s + 30.0:
            return LogError(
                f"Kafka at {self._brokers} does not let us in: {refusal[1]}; check sasl and tls of log.kafka in the "
                "profile"
            )
        return LogError(
            f"no answer from Kafka at {self._brokers} within {self._timeout_s:g} s; check that it runs, that this "
            "host reaches it, and that its advertised.listeners name addresses this host can use"
        )


def _number(partition: str) -> int | None:
    """Kafka's number of a partition whose name is one."""
    return int(partition) if partition.isdecimal() and partition == str(int(partition)) else None


def _cursor(topic: _Topic, offsets: Mapping[int, int]) -> Cursor:
    return Cursor(topic.generation, {str(number): offset for number, offset in sorted(offsets.items())})


def generation_of(topic_id: str) -> str:
    """The generation of a topic with an id: the same without `/` and `+`, as places at an origin are told apart by `/`.

    >>> generation_of("vlxYj7T0RT2vWDjBI/f7aw")
    'vlxYj7T0RT2vWDjBI_f7aw'
    """
    return topic_id.replace("/", "_").replace("+", "-")
