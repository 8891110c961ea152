"""The door of a raw stream: what comes in gets its partition, its stamps, or a place in quarantine."""

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

RAW_BYTES = 1 << 20
"""How much of a refused input is kept: enough to see what it was."""

_WHITE = b" \t\r\n"


class Input(NamedTuple):
    """One input as it came."""

    raw: bytes
    id: str | None = None
    """Where the source knows one: a position that names this input for ever."""


@dataclass(frozen=True, slots=True)
class Taken:
    """How many inputs went where."""

    accepted: int = 0
    refused: int = 0


def quarantine_of(stream: Stream) -> str:
    """The stream beside a raw stream that holds what was no event."""
    return f"{stream.name}.quarantine"


class Intake:
    """Appends inputs to one raw stream; any number of threads may share it.

    An input that is a JSON object is appended as it came, but for what is put in
    front: `_id`, if the source has one and the producer gave none, and `_time`, the
    moment of arrival, if the stream names no attribute for it. All else is
    quarantined with a reason.
    """

    def __init__(self, log: EventLog, stream: Stream, clock: Clock | None = None) -> None:
        self.log, self.stream, self.quarantine = log, stream, quarantine_of(stream)
        self._clock = clock or SystemClock()
        self.partitions = tuple(str(n) for n in range(max(1, stream.partitions)))
        self.meter = Meter(self._clock)
        self._turn = 0
        log.create(stream.name, self.partitions)
        log.create(self.quarantine)

    def partition_of(self, key: Any) -> str:
        """The partition of all events with this value of the key: the same in every process, for ever."""
        return self.partitions[zlib.crc32(orjson.dumps(key, option=orjson.OPT_SORT_KEYS)) % len(self.partitions)]

    def take(self, inputs: Iterable[Input]) -> Taken:
        """Append inputs, those of a partition in their order; when it returns, they are in the log."""
        stamp = self.stamp()
        batches: dict[str, list[bytes]] = {}
        refused: list[bytes] = []
        for raw, id_ in inputs:
            try:
                event = orjson.loads(raw)
                if type(event) is not dict:
                    refused.append(self.refusal(raw, f"expected a JSON object, not {_what(event)}", id_))
                    continue
                record = dressed(raw, event, id_, stamp)
            except ValueError as exc:
                refused.append(self.refusal(raw, f"no JSON: {exc}", id_))
                continue
            batches.setdefault(self.place(event), []).append(record)
        self.write(batches)
        self.refuse(refused)
        return Taken(sum(map(len, batches.values())), len(refused))

    def append(self, partition: str, records: Sequence[bytes]) -> None:
        """Append records that are surely JSON objects on one line, and whose partition is known."""
        stamp = self.stamp()
        if stamp:
            records = [b"{" + stamp + record[1:] for record in records]
        self.write({partition: records})

    def refusal(self, raw: bytes, reason: str, id_: str | None = None) -> bytes:
        """The record that quarantine keeps of an input."""
        if len(raw) > RAW_BYTES:
            reason = f"{reason}; cut to the first {RAW_BYTES} of {len(raw)} bytes"
            raw = raw[:RAW_BYTES]
        said = {"_id": id_} if id_ is not None else {}
        said |= {"_time": timestamps.to_text(self._clock.now()), "_reason": reason}
        try:
            return orjson.dumps(said | {"_raw": raw.decode()})
        except UnicodeDecodeError:
            return orjson.dumps(said | {"_raw64": base64.b64encode(raw).decode()})

    def refuse(self, refusals: Sequence[bytes]) -> None:
        """Append to the stream's quarantine."""
        if refusals:
            self.log.append(self.quarantine, "0", refusals)
            self.meter.add(refused=len(refusals))

    def write(self, batches: Mapping[str, Sequence[bytes]]) -> dict[str, int]:
        """Append finished records by partition, and give the offset behind the last of each."""
        ends = {}
        for partition, records in batches.items():
            if records:
                ends[partition] = self.log.append(self.stream.name, partition, records)
                self.meter.add(len(records))
        return ends

    def place(self, event: Mapping[str, Any]) -> str:
        """The partition of an event: by its key, else in turn."""
        if len(self.partitions) == 1:
            return "0"
        if self.stream.key is not None:
            return self.partition_of(event.get(self.stream.key))
        self._turn += 1
        return self.partitions[self._turn % len(self.partitions)]

    def stamp(self) -> bytes:
        """The moment of arrival as a member of a record; nothing where events have a time of their own."""
        if self.stream.schema.event_time is not None:
            return b""
        return stamp(timestamps.to_text(self._clock.now()))


def stamp(moment: str) -> bytes:
    """The member that `dressed` puts in front of an event that has no time."""
    return b'"_time":"%s",' % moment.encode()


def dressed(raw: bytes, event: dict[str, Any], id_: str | None, stamp: bytes) -> bytes:
    """The record of an input: its own bytes, so that no number loses a digit, behind our keys."""
    front = b""
    if id_ is not None and event.get("_id") is None:
        if "_id" in event:
            raw = json.dumps({k: v for k, v in json.loads(raw).items() if k != "_id"}, allow_nan=False).encode()
        front = b'"_id":%s,' % orjson.dumps(id_)
    if stamp and "_time" not in event:
        front += stamp
    text = raw.strip(_WHITE)
    if b"\n" in text:
        text = text.replace(b"\n", b" ")  # white space: inside a string JSON has none
    if text == b"{}" or not event:
        return b"{" + front.rstrip(b",") + b"}"
    return b"{" + front + text[1:]


def _what(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


class Meter:
    """How many events came, and how fast over the last ten seconds."""

    WINDOW_S = 10.0

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, Lock()
        self.events = 0
        self.refused = 0
        self._begin = clock.monotonic()
        self._slots: deque[tuple[int, int]] = deque()
        """Quarters of a second, and the events in each."""

    def add(self, events: int = 0, refused: int = 0) -> None:
        """Count."""
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
        """Events a second."""
        with self._lock:
            now = self._clock.monotonic()
            self._forget(int(now * 4))
            span = min(self.WINDOW_S, max(0.25, now - self._begin))
            return sum(events for _, events in self._slots) / span

    def _forget(self, slot: int) -> None:
        while self._slots and self._slots[0][0] <= slot - self.WINDOW_S * 4:
            self._slots.popleft()
