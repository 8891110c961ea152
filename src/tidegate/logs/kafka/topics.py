"""The topics behind streams: their names, metadata, offsets and retention."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Literal

from tidegate.errors import LogError
from tidegate.logs.cursor import Cursor
from tidegate.logs.kafka.cluster import KafkaCluster
from tidegate.logs.log import RetentionLimits, is_name, need_names, no_stream

_AT = ".."
"""Replaces `@` in the name of a topic."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The metadata of a topic when it was last read."""

    name: str
    generation: str
    partitions: int
    """Number of partitions."""
    seen_at: float
    """Monotonic time of the read."""

    @property
    def numbers(self) -> dict[str, int]:
        """Kafka's partition numbers by their text, as cursors have them."""
        return {str(number): number for number in range(self.partitions)}

    def cursor(self, offsets: Mapping[int, int]) -> Cursor:
        """Return a cursor at one offset per partition."""
        return Cursor(self.generation, {str(number): offset for number, offset in sorted(offsets.items())})


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How new topics are created."""

    prefix: str
    """Precedes the name of every topic, for a cluster that others use too."""
    keyed_partitions: int | None
    """Number of partitions of a topic whose partitions are keys; None: one for each key that it is created with."""
    replication: int
    """Replication factor; -1: the cluster's default."""
    config: Mapping[str, str]


class Topics:
    """The topics of one log. Thread-safe; caches the metadata of each topic for `check_s` seconds."""

    def __init__(
        self,
        cluster: KafkaCluster,
        settings: TopicSettings,
        check_s: float,
        on_forget: Callable[[Topic], None],
    ) -> None:
        """`on_forget` is called before a topic is dropped from the cache because it was deleted or replaced."""
        self._cluster, self._settings, self.check_s, self._on_forget = cluster, settings, check_s, on_forget
        self._lock = Lock()
        self._known: dict[str, Topic] = {}
        self._retentions: dict[str, RetentionLimits] = {}
        """By generation, the retention that this process has set."""

    def name(self, stream: str) -> str:
        """Return the name of a stream's topic. Kafka allows no `@`, which mirrors of remote services have."""
        return self._settings.prefix + stream.replace("@", _AT)

    def streams(self) -> list[str]:
        """Return the names of all streams that have a topic."""
        prefix = self._settings.prefix
        with self._cluster.translated_errors():
            topics = self._cluster.admin().list_topics(timeout=self._cluster.timeout_s).topics
        names = [name.removeprefix(prefix).replace(_AT, "@") for name in topics if name.startswith(prefix)]
        return sorted(name for name in names if is_name(name) and not self.name(name).startswith("__"))

    def get(self, stream: str, *, refresh: bool = False) -> Topic:
        """Return a topic from the cache, or from the cluster if the cache is too old or `refresh` is set.

        Raises LogError if there is no such stream.
        """
        topic = self._known.get(stream)
        if topic is None or refresh or time.monotonic() - topic.seen_at >= self.check_s:
            topic = self.look_up(stream)
        if topic is None:
            raise no_stream(stream, self.streams())
        return topic

    def look_up(self, stream: str) -> Topic | None:
        """Read a topic's metadata from the cluster; None if it does not exist."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        if not is_name(stream):
            return None
        name = self.name(stream)
        try:
            request = self._cluster.admin().describe_topics(
                TopicCollection([name]), request_timeout=self._cluster.timeout_s
            )
            description = request[name].result()
        except KafkaException as exc:
            if exc.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._forget(stream)
                return None
            raise self._cluster.error(exc.args[0]) from exc
        topic = Topic(name, generation_of(str(description.topic_id)), len(description.partitions), time.monotonic())
        before = self._known.get(stream)
        if before is not None and before.generation != topic.generation:
            self._forget(stream)
        self._known[stream] = topic
        return topic

    def create(self, stream: str, partitions: Sequence[str]) -> None:
        """Create a topic, or add partitions to it. Returns when all its partitions can be used."""
        from confluent_kafka import KafkaError
        from confluent_kafka.admin import NewPartitions, NewTopic

        need_names((stream, *partitions))
        numbers = [number for number in map(partition_number, partitions) if number is not None]
        required = max(numbers, default=-1) + 1
        name, admin, timeout_s = self.name(stream), self._cluster.admin(), self._cluster.timeout_s
        topic = self.look_up(stream)
        if topic is None:
            keys = len(partitions) - len(numbers)
            count = max(required, (self._settings.keyed_partitions or keys) if keys else 1)
            new = NewTopic(name, count, self._settings.replication, config=dict(self._settings.config))
            request = admin.create_topics([new], request_timeout=timeout_s)[name]
            self._cluster.wait_for(request, KafkaError.TOPIC_ALREADY_EXISTS)
        elif topic.partitions < required:
            request = admin.create_partitions([NewPartitions(name, required)], request_timeout=timeout_s)[name]
            self._cluster.wait_for(request, KafkaError.INVALID_PARTITIONS)  # another process was faster
        else:
            return
        self._cluster.wait_until(lambda: (seen := self.look_up(stream)) is not None and seen.partitions >= required)
        self._cluster.wait_until(lambda: self._has_leaders(stream))

    def delete(self, stream: str) -> None:
        """Delete a topic and all its records. Returns when the cluster no longer knows it."""
        from confluent_kafka import KafkaError

        name = self.get(stream).name
        self._forget(stream)
        request = self._cluster.admin().delete_topics([name], request_timeout=self._cluster.timeout_s)[name]
        self._cluster.wait_for(request, KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._cluster.wait_until(lambda: self.look_up(stream) is None)

    def offsets(self, topic: Topic, position: Literal["earliest", "latest"] | int) -> dict[int, int]:
        """Return the first or next offset of each partition, or the first one at or after a time in milliseconds.

        -1: the partition has no record at or after that time.
        """
        from confluent_kafka import OFFSET_INVALID, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if isinstance(position, int):
            spec = OffsetSpec.for_timestamp(position)
        else:
            spec = OffsetSpec.earliest() if position == "earliest" else OffsetSpec.latest()
        request = {TopicPartition(topic.name, number): spec for number in range(topic.partitions)}
        with self._cluster.translated_errors():
            answer = self._cluster.admin().list_offsets(request, request_timeout=self._cluster.timeout_s)
            offsets = {partition.partition: int(future.result().offset) for partition, future in answer.items()}
        # A request that times out may succeed with this offset instead of an error.
        if OFFSET_INVALID in offsets.values():
            raise self._cluster.unreachable()
        return offsets

    def set_retention(self, stream: str, retention: RetentionLimits) -> None:
        """Set the retention of a topic, unless this process has already set the same."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        topic = self.get(stream)
        if self._retentions.get(topic.generation) == retention:
            return
        settings = {
            "retention.ms": -1 if retention.age_s is None else int(retention.age_s * 1_000),
            "retention.bytes": -1 if retention.size_bytes is None else retention.size_bytes,
        }
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=entries)
        requests = self._cluster.admin().incremental_alter_configs([resource], request_timeout=self._cluster.timeout_s)
        self._cluster.wait_for(requests[resource])
        self._retentions[topic.generation] = retention

    def clear(self) -> None:
        """Empty the cache, without calling `on_forget`."""
        with self._lock:
            self._known.clear()

    def _forget(self, stream: str) -> None:
        topic = self._known.get(stream)
        if topic is None:
            return
        # The callback comes first: a thread that looks the topic up again must not find the old readers and sender.
        self._on_forget(topic)
        with self._lock:
            self._known.pop(stream, None)
            self._retentions.pop(topic.generation, None)

    def _has_leaders(self, stream: str) -> bool:
        """True if all partitions of a new topic have a leader."""
        try:
            self.offsets(self.get(stream), "latest")
        except LogError:
            return False
        return True


def partition_number(partition: str) -> int | None:
    """Return Kafka's number of a partition whose name is one; None if the name is a key.

    >>> partition_number("7"), partition_number("07"), partition_number("gps.0")
    (7, None, None)
    """
    return int(partition) if partition.isdecimal() and partition == str(int(partition)) else None


def generation_of(topic_id: str) -> str:
    """Return the generation for the id of a topic: the id without `/` and `+`, since `/` separates parts of a source.

    >>> generation_of("vlxYj7T0RT2vWDjBI/f7aw")
    'vlxYj7T0RT2vWDjBI_f7aw'
    """
    return topic_id.replace("/", "_").replace("+", "-")
