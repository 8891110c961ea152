"""Writes inputs to raw streams: adds ids and arrival times, chooses partitions, quarantines other texts than JSON."""

from __future__ import annotations

import base64
import json
import zlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import orjson

from tidegate.logs.clock import Clock, SystemClock
from tidegate.logs.log import EventLog
from tidegate.model import timestamps
from tidegate.services.definitions import Stream

MAX_RAW_BYTES = 1 << 20
"""Longest part of a refused input that quarantine keeps."""

_WHITESPACE = b" \t\r\n"


class Input(NamedTuple):
    """One input, unparsed."""

    raw: bytes
    id: str | None = None
    """An id from the source, such as a position, that always names this input; None: the source has none."""


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """How many inputs were appended, and how many quarantined."""

    accepted: int = 0
    refused: int = 0


def quarantine_of(stream: Stream) -> str:
    """Return the name of the stream that holds the refused inputs of a raw stream."""
    return f"{stream.name}.quarantine"


class RawStreamWriter:
    """Appends inputs to one raw stream. Thread-safe.

    An input that is a JSON object is appended byte by byte, after two keys that are added where needed: `_id`, if the
    source has an id and the event has none, and `_time`, the time of arrival, if the stream has no event-time
    attribute. Any other input is quarantined with a reason.
    """

    def __init__(self, log: EventLog, stream: Stream, clock: Clock | None = None) -> None:
        self.log, self.stream, self.quarantine = log, stream, quarantine_of(stream)
        self._clock = clock or SystemClock()
        self.partitions = tuple(str(n) for n in range(max(1, stream.partitions)))
        self.meter = RateMeter(self._clock)
        self._round_robin = 0
        log.create(stream.name, self.partitions)
        log.create(self.quarantine)

    def partition_of(self, key: Any) -> str:
        """Return the partition of all events with this value of the key; the same in every process."""
        return self.partitions[zlib.crc32(orjson.dumps(key, option=orjson.OPT_SORT_KEYS)) % len(self.partitions)]

    def append_inputs(self, inputs: Iterable[Input]) -> WriteCounts:
        """Append inputs, in order within each partition. They are in the log when this returns. Raises LogError."""
        stamp = self.stamp()
        batches: dict[str, list[bytes]] = {}
        refused: list[bytes] = []
        for raw, id_ in inputs:
            try:
                event = orjson.loads(raw)
                if type(event) is not dict:
                    refused.append(self.refusal(raw, f"expected a JSON object, not {_type_name(event)}", id_))
                    continue
                record = with_metadata(raw, event, id_, stamp)
            except ValueError as exc:
                refused.append(self.refusal(raw, f"not JSON: {exc}", id_))
                continue
            batches.setdefault(self.choose_partition(event), []).append(record)
        self.write(batches)
        self.refuse(refused)
        return WriteCounts(sum(map(len, batches.values())), len(refused))

    def append_to(self, partition: str, records: Sequence[bytes]) -> None:
        """Append records to a partition; the caller guarantees that each is a JSON object on one line."""
        stamp = self.stamp()
        if stamp:
            records = [b"{" + stamp + record[1:] for record in records]
        self.write({partition: records})

    def refusal(self, raw: bytes, reason: str, id_: str | None = None) -> bytes:
        """Return the quarantine record for an input."""
        if len(raw) > MAX_RAW_BYTES:
            reason = f"{reason}; cut to the first {MAX_RAW_BYTES} of {len(raw)} bytes"
            raw = raw[:MAX_RAW_BYTES]
        document = {"_id": id_} if id_ is not None else {}
        document |= {"_time": timestamps.to_text(self._clock.now()), "_reason": reason}
        try:
            return orjson.dumps(document | {"_raw": raw.decode()})
        except UnicodeDecodeError:
            return orjson.dumps(document | {"_raw64": base64.b64encode(raw).decode()})

    def refuse(self, refusals: Sequence[bytes]) -> None:
        """Append records of `refusal` to the quarantine of the stream."""
        if refusals:
            self.log.append(self.quarantine, "0", refusals)
            self.meter.add(refused=len(refusals))

    def write(self, batches: Mapping[str, Sequence[bytes]]) -> dict[str, int]:
        """Append complete records by partition, and return the offset after the last of each partition."""
        ends = {}
        for partition, records in batches.items():
            if records:
                ends[partition] = self.log.append(self.stream.name, partition, records)
                self.meter.add(len(records))
        return ends

    def choose_partition(self, event: Mapping[str, Any]) -> str:
        """Return the partition of an event: by its key, or round-robin if the stream has no key."""
        if len(self.partitions) == 1:
            return "0"
        if self.stream.key is not None:
            return self.partition_of(event.get(self.stream.key))
        self._round_robin += 1
        return self.partitions[self._round_robin % len(self.partitions)]

    def stamp(self) -> bytes:
        """Return the arrival time as a JSON member for `with_metadata`; empty if the stream has an event time."""
        if self.stream.schema.event_time is not None:
            return b""
        return stamp(timestamps.to_text(self._clock.now()))


def stamp(moment: str) -> bytes:
    """Return a time as the JSON member that `with_metadata` adds to an event without one."""
    return b'"_time":"%s",' % moment.encode()


def with_metadata(raw: bytes, event: dict[str, Any], id_: str | None, stamp: bytes) -> bytes:
    """Return the record of an input: added keys, then the bytes of the input, so that no number loses a digit."""
    front = b""
    if id_ is not None and event.get("_id") is None:
        if "_id" in event:
            raw = json.dumps({k: v for k, v in json.loads(raw).items() if k != "_id"}, allow_nan=False).encode()
        front = b'"_id":%s,' % orjson.dumps(id_)
    if stamp and "_time" not in event:
        front += stamp
    text = raw.strip(_WHITESPACE)
    if b"\n" in text:
        text = text.replace(b"\n", b" ")  # only whitespace between tokens: JSON strings contain no newline
    if text == b"{}" or not event:
        return b"{" + front.rstrip(b",") + b"}"
    return b"{" + front + text[1:]


def _type_name(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


class RateMeter:
    """Counts events, and their rate over the last ten seconds. Thread-safe."""

    WINDOW_S = 10.0

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, Lock()
        self.events = 0
        self.refused = 0
        self._begin = clock.monotonic()
        self._slots: deque[tuple[int, int]] = deque()
        """Numbers of quarter seconds, and the events in each."""

    def add(self, events: int = 0, refused: int = 0) -> None:
        """Count events that were appended or refused now."""
        with self._lock:
            slot = int(self._clock.monotonic() * 4)
            self.events += events
            self.refused += refused
            if self._slots and self._slots[-1][0] == slot:
                events += self._slots.pop()[1]
            self._slots.append((slot, events))
            self._forget(slot)

    @property
    def rate(self) -> float:
        """Appended events per second."""
        with self._lock:
            now = self._clock.monotonic()
            self._forget(int(now * 4))
            span = min(self.WINDOW_S, max(0.25, now - self._begin))
            return sum(events for _, events in self._slots) / span

    def _forget(self, slot: int) -> None:
        while self._slots and self._slots[0][0] <= slot - self.WINDOW_S * 4:
            self._slots.popleft()
