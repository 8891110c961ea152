"""Idle consumers, kept for the next read at the position where they stopped."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

from tidegate.logs.kafka.cluster import KafkaCluster, logger
from tidegate.logs.kafka.reader import Reader
from tidegate.logs.kafka.topics import Topic


class ReaderPool:
    """Lends readers to threads. Thread-safe; keeps at most `max_idle` idle readers, of all topics together."""

    def __init__(self, cluster: KafkaCluster, max_idle: int) -> None:
        self._cluster, self._max_idle = cluster, max_idle
        self._lock = Lock()
        self._idle: list[Reader] = []
        """The one that is idle longest comes first."""

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, topic: Topic, offsets: Mapping[int, int]) -> Reader:
        """Return a reader of a topic for the caller alone: if possible one that is at these offsets.

        Otherwise, if the pool is full, the reader of the topic that was idle longest; otherwise a new one. The caller
        seeks if needed, then gives the reader back, or closes it after an error.
        """
        with self._lock:
            candidates = [reader for reader in self._idle if reader.generation == topic.generation]
            at_offsets = [reader for reader in candidates if reader.is_at(offsets)]
            is_full = len(self._idle) >= self._max_idle
            for reader in at_offsets or (candidates if is_full else []):
                self._idle.remove(reader)
                return reader
        return self._new(topic)

    def give_back(self, reader: Reader) -> None:
        """Make a reader available to others; closes the one that is idle longest if there are too many."""
        with self._lock:
            self._idle.append(reader)
            surplus = self._idle.pop(0) if len(self._idle) > self._max_idle else None
        if surplus is not None:
            surplus.close()

    def drop(self, generation: str | None = None) -> None:
        """Close the idle readers of a generation, or all."""
        with self._lock:
            dropped = [reader for reader in self._idle if generation in (None, reader.generation)]
            self._idle = [reader for reader in self._idle if reader not in dropped]
        for reader in dropped:
            reader.close()

    def _new(self, topic: Topic) -> Reader:
        from confluent_kafka import Consumer

        settings: dict[str, Any] = {
            **self._cluster.client_settings,
            "group.id": "tidegate",  # required by the client; the group is never joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 100,  # a seek waits until the fetch before it has ended
            "queued.max.messages.kbytes": 8_192,
        }
        return Reader(Consumer(settings, logger=logger), topic.name, topic.generation)
