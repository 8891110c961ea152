"""Sending what was refused again: which event, to which raw stream, and whether it would fit there.

A refused event goes back where it came from: to the raw stream at the beginning of
its way, so that it passes every service on it once more. Its id is the place of the
refused one in the quarantine. So the same one sent twice is a duplicate to ingest, and
one that is refused again has a place of its own, from which it may be sent again.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from tidegate.errors import LanguageError, SchemaError, Violation, did_you_mean
from tidegate.filters import Constraints
from tidegate.gateway.quarantine.marks import Mark, Marks, arrived
from tidegate.gateway.quarantine.refused import Place, Refused, record_at
from tidegate.logs import EventLog
from tidegate.logs.intake import quarantine_of
from tidegate.model import Schema, events
from tidegate.services.definitions import Definitions, Http, Service, Stream

_DEEPEST = 64
"""Services behind each other that an event is followed through."""

_OURS = ("_id", "_src", "_reason", "_violations")


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose quarantine it is: a service's, or a raw stream's."""

    of: Service | Stream

    @property
    def name(self) -> str:
        """Of the service or stream."""
        return self.of.name

    @property
    def quarantine(self) -> str:
        """The stream that holds what was refused."""
        return quarantine_of(self.of) if isinstance(self.of, Stream) else self.of.quarantine

    @property
    def replays(self) -> str:
        """The stream beside it that says what of it was sent again."""
        return f"{self.quarantine}.replayed" if isinstance(self.of, Stream) else self.of.replays


@dataclass(frozen=True, slots=True)
class Entry:
    """One refused event that is to be sent again."""

    id: str
    event: Mapping[str, Any] | None = None
    """All of the corrected event, as its raw stream has it."""
    patch: Mapping[str, Any] | None = None
    """What is corrected of it, as RFC 7396 has it: null takes an attribute away."""
    stream: str | None = None
    """The raw stream, where it can't be told."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of one entry."""

    id: str
    result: Literal["replayed", "already", "refused"]
    stream: str | None = None
    errors: tuple[Violation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As the API shows it."""
        said: dict[str, Any] = {"id": self.id, "result": self.result, "stream": self.stream}
        if self.errors:
            said["errors"] = [{"pointer": each.path, "detail": each.message} for each in self.errors]
        return said


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be sent, and what becomes of each entry once it was."""

    outcomes: tuple[Outcome, ...]
    bodies: Mapping[str, Sequence[bytes]]
    """By raw stream: the events, one line each."""

    def ids(self, stream: str) -> list[str]:
        """What goes to a raw stream, in the order of its events."""
        return [each.id for each in self.outcomes if each.result == "replayed" and each.stream == stream]

    @property
    def refused(self) -> list[tuple[int, Outcome]]:
        """What can't be sent."""
        return [(n, each) for n, each in enumerate(self.outcomes) if each.result == "refused"]


class _NotSent(Exception):  # noqa: N818 - never leaves this module
    """An entry that can't be sent, and why."""

    def __init__(self, *violations: Violation) -> None:
        super().__init__()
        self.violations = violations


class Planner:
    """Finds out what each entry of one request would send; reads the log, writes nothing."""

    def __init__(self, log: EventLog, definitions: Definitions, subject: Subject, marks: Marks) -> None:
        self._log, self._definitions, self._subject, self._marks = log, definitions, subject, marks
        self._upstream = tuple(_upstream(definitions, subject.of))
        self.streams = tuple(each.name for each in self._upstream if isinstance(each, Stream))
        """The raw streams at the beginning of the way."""
        self._hides = any(isinstance(each, Service) and each.mask for each in self._upstream)

    def plan(self, entries: Iterable[Entry]) -> Plan:
        """Judge each entry; what was sent already is not sent again."""
        entries = list(entries)
        marks = self._marks.of(self._subject.replays)
        sent = {mark.id for mark in marks.values() if mark.state == "done"} | self._arrived(entries, marks)
        constraints = _Constraints(self._subject.of)
        outcomes: list[Outcome] = []
        bodies: dict[str, list[bytes]] = {}
        for entry in entries:
            if entry.id in sent:
                mark = marks.get(entry.id)
                outcomes.append(Outcome(entry.id, "already", None if mark is None else mark.stream))
                continue
            try:
                stream, event = self._made(entry, constraints)
            except _NotSent as refused:
                outcomes.append(Outcome(entry.id, "refused", None, refused.violations))
                continue
            sent.add(entry.id)  # once, also where it is asked for twice
            outcomes.append(Outcome(entry.id, "replayed", stream))
            bodies.setdefault(stream, []).append(event)
        return Plan(tuple(outcomes), bodies)

    def _arrived(self, entries: Sequence[Entry], marks: Mapping[str, Mark]) -> set[str]:
        """What was sent by somebody who did not live to say so."""
        begun: dict[str, list[Mark]] = {}
        for mark in (marks[each.id] for each in entries if each.id in marks):
            if mark.state == "begun":
                begun.setdefault(mark.stream, []).append(mark)
        return {id_ for stream, some in begun.items() for id_ in arrived(self._log, stream, some)}

    def _made(self, entry: Entry, constraints: _Constraints) -> tuple[str, bytes]:
        """The raw stream and the event of an entry."""
        refused = self._refused(entry.id)
        found, original = self._origin(refused)
        stream = self._target(entry.stream or found)
        event = dict(entry.event) if entry.event is not None else _patched(original, entry.patch)
        event = {"_id": entry.id, **{name: value for name, value in event.items() if name not in _OURS}}
        violations = [*events.violations(event, stream.schema)] or [*constraints.violations(stream, event)]
        if violations:
            # What was corrected is the caller's own; the rest is what a mask hides.
            shows = entry.event is not None or not self._hides
            raise _NotSent(*(each if shows else _hidden(each) for each in violations))
        return stream.name, orjson.dumps(event)

    def _refused(self, id_: str) -> Refused:
        quarantine = self._subject.quarantine
        place = Place.from_text(id_)
        if place is None or place.stream != quarantine:
            example = f"an id as GET …/quarantine gives it, which begins with {quarantine}:"
            raise _NotSent(Violation("id", f"expected {example}, not {id_!r:.80}"))
        record = record_at(self._log, quarantine, place.partition, place.offset, place.generation)
        if record is None:
            raise _NotSent(Violation("id", f"nothing is kept at {id_!r:.200}: it has expired, or never was"))
        return Refused(place, orjson.loads(record))

    # Where it came from --------------------------------------------------------------

    def _origin(self, refused: Refused) -> tuple[str | None, bytes | None]:
        """The raw stream that an event came from, and its record there; None where it can't be told any more."""
        if isinstance(self._subject.of, Stream):
            return self._subject.name, _raw(refused.record)
        source = refused.record.get("_src")
        for _ in range(_DEEPEST):
            place = _place(source)
            if place is None:
                break
            stream, partition, position = place
            record = record_at(self._log, stream, partition, position)
            if stream in self._definitions.streams:
                return stream, record
            if record is None:
                break
            source = orjson.loads(record).get("_src")
        return (self.streams[0] if len(self.streams) == 1 else None), None

    def _target(self, name: str | None) -> Stream:
        known = ", ".join(self.streams)
        if name is None:
            why = "it was made of several events, or its origin has expired"
            raise _NotSent(Violation("stream", f"{why}: expected one of {known}"))
        if name not in self.streams:
            raise _NotSent(Violation("stream", f"expected {known}, not {name!r:.80}{did_you_mean(name, self.streams)}"))
        stream = self._definitions.streams[name]
        if not isinstance(stream.source, Http):
            source = type(stream.source).__name__.lower()
            raise _NotSent(
                Violation(
                    "stream",
                    f"{name!r} is fed by its source, {source}, which is its one writer: correct the event there; "
                    "only streams with source: {http: {}} take it here",
                )
            )
        return stream


class _Constraints:
    """What a service demands that puts out what it reads: an event that violates it would be refused again."""

    def __init__(self, of: Service | Stream) -> None:
        self._of, self._made = of, dict[str, Constraints | None]()

    def violations(self, stream: Stream, event: Mapping[str, Any]) -> Iterator[Violation]:
        """Find them; none where a pipeline stands between."""
        if not isinstance(self._of, Service) or self._of.pipeline or stream.name not in self._of.inputs:
            return
        if self._of.on_violation != "quarantine":
            return
        if stream.name not in self._made:
            self._made[stream.name] = _constraints(self._of, stream.schema)
        found = self._made[stream.name]
        if found is not None:
            yield from found.violations(event)


def _constraints(service: Service, schema: Schema) -> Constraints | None:
    constraints = {**schema.constraints, **service.constraints}
    terms = {**schema.terms, **service.terms}
    try:
        return Constraints(Schema(schema.root, constraints=constraints, terms=terms, event_time=schema.event_time))
    except (LanguageError, SchemaError):  # Spark will judge
        return None


def _upstream(definitions: Definitions, of: Service | Stream) -> Iterator[Service | Stream]:
    """A service and all that it is made of, each once."""
    seen: set[str] = set()
    waiting: list[Service | Stream] = [of]
    while waiting:
        each = waiting.pop(0)
        if each.name in seen:
            continue
        seen.add(each.name)
        yield each
        if isinstance(each, Service):
            found = (definitions.services.get(name) or definitions.streams.get(name) for name in each.inputs)
            waiting += [one for one in found if one is not None]


def _place(source: Any) -> tuple[str, str, int] | None:
    """What `stream/partition:position` says; a child of a record has a number behind a dot."""
    if not isinstance(source, str):
        return None
    stream, _, rest = source.partition("/")
    partition, _, position = rest.rpartition(":")
    number = position.partition(".")[0]
    return (stream, partition, int(number)) if partition and number.isascii() and number.isdigit() else None


def _raw(record: Mapping[str, Any]) -> bytes | None:
    if isinstance(record.get("_raw"), str):
        return str(record["_raw"]).encode()
    return base64.b64decode(record["_raw64"]) if isinstance(record.get("_raw64"), str) else None


def _patched(original: bytes | None, patch: Mapping[str, Any] | None) -> dict[str, Any]:
    if original is None:
        raise _NotSent(Violation("event", "expected all of it: what was refused is not in its stream any more"))
    try:
        found = orjson.loads(original)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise _NotSent(Violation("event", "expected all of it: what was refused is no JSON object"))
    merged = _merged(found, patch or {})
    assert isinstance(merged, dict)
    return merged


def _merged(value: Any, patch: Any) -> Any:
    """A value as RFC 7396 patches it."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(value) if isinstance(value, Mapping) else {}
    for name, each in patch.items():
        if each is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), each)
    return found


def _hidden(violation: Violation) -> Violation:
    return Violation(violation.path, "does not fit; what it is is hidden")
