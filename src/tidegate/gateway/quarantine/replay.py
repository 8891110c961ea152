"""Plans the replay of quarantined events: which event goes to which raw stream, and whether it is valid there.

A quarantined event is sent to the raw stream that it came from, so that it passes through
all services again. Its id is its position in the quarantine. If the same event is replayed
twice, ingest therefore drops the second one as a duplicate. If it is quarantined again, it has a
new position and can be replayed from there.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from tidegate.errors import LanguageError, SchemaError, Violation, did_you_mean
from tidegate.filters import Constraints
from tidegate.gateway.quarantine.marks import ReplayMark, ReplayMarks, arrived
from tidegate.gateway.quarantine.refused import QuarantinedEvent, QuarantinePosition, record_at
from tidegate.ingress.raw_streams import quarantine_of
from tidegate.logs import EventLog
from tidegate.model import Schema, events
from tidegate.services.definitions import Definitions, Http, Service, Stream

_MAX_CHAIN = 64
"""The longest chain of services through which the origin of an event is traced."""

_OURS = ("_id", "_src", "_reason", "_violations")


@dataclass(frozen=True, slots=True)
class Subject:
    """The service or raw stream that owns a quarantine."""

    of: Service | Stream

    @property
    def name(self) -> str:
        """The name of the service or stream."""
        return self.of.name

    @property
    def quarantine(self) -> str:
        """The stream of quarantined events."""
        return quarantine_of(self.of) if isinstance(self.of, Stream) else self.of.quarantine

    @property
    def replays(self) -> str:
        """The stream of replay marks."""
        return f"{self.quarantine}.replayed" if isinstance(self.of, Stream) else self.of.replays


@dataclass(frozen=True, slots=True)
class ReplayEntry:
    """One quarantined event of a replay request."""

    id: str
    event: Mapping[str, Any] | None = None
    """The whole corrected event, with the attributes of its raw stream."""
    patch: Mapping[str, Any] | None = None
    """A JSON merge patch (RFC 7396) for the original event: null removes an attribute."""
    stream: str | None = None
    """The raw stream, for events whose origin can't be determined."""


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of one entry."""

    id: str
    result: Literal["replayed", "already", "refused"]
    stream: str | None = None
    errors: tuple[Violation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as the API shows it."""
        document: dict[str, Any] = {"id": self.id, "result": self.result, "stream": self.stream}
        if self.errors:
            document["errors"] = [{"pointer": error.path, "detail": error.message} for error in self.errors]
        return document


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The events to send, and the outcome of each entry once they are sent."""

    outcomes: tuple[ReplayOutcome, ...]
    bodies: Mapping[str, Sequence[bytes]]
    """The events of each raw stream, one JSON line each."""

    def ids(self, stream: str) -> list[str]:
        """Return the ids of the events for a raw stream, in the order of `bodies`."""
        return [outcome.id for outcome in self.outcomes if outcome.result == "replayed" and outcome.stream == stream]

    @property
    def refused(self) -> list[tuple[int, ReplayOutcome]]:
        """The entries that can't be sent, with their index."""
        return [(n, outcome) for n, outcome in enumerate(self.outcomes) if outcome.result == "refused"]


class _NotSent(Exception):  # noqa: N818 - never leaves this module
    """An entry can't be sent, for these reasons."""

    def __init__(self, *violations: Violation) -> None:
        super().__init__()
        self.violations = violations


class ReplayPlanner:
    """Determines what each entry of one request would send. Reads the log, writes nothing."""

    def __init__(self, log: EventLog, definitions: Definitions, subject: Subject, marks: ReplayMarks) -> None:
        self._log, self._definitions, self._subject, self._marks = log, definitions, subject, marks
        self._upstream = tuple(_upstream(definitions, subject.of))
        self.streams = tuple(definition.name for definition in self._upstream if isinstance(definition, Stream))
        """The raw streams that the owner of the quarantine reads, directly or through services."""
        self._hides = any(isinstance(definition, Service) and definition.mask for definition in self._upstream)

    def plan(self, entries: Iterable[ReplayEntry]) -> ReplayPlan:
        """Check each entry. Events that were replayed before are not sent again. Blocks: reads the log."""
        entries = list(entries)
        marks = self._marks.marks_of(self._subject.replays)
        sent = {mark.id for mark in marks.values() if mark.state == "done"} | self._arrived(entries, marks)
        constraints = _Constraints(self._subject.of)
        outcomes: list[ReplayOutcome] = []
        bodies: dict[str, list[bytes]] = {}
        for entry in entries:
            if entry.id in sent:
                mark = marks.get(entry.id)
                outcomes.append(ReplayOutcome(entry.id, "already", None if mark is None else mark.stream))
                continue
            try:
                stream, event = self._build(entry, constraints)
            except _NotSent as refused:
                outcomes.append(ReplayOutcome(entry.id, "refused", None, refused.violations))
                continue
            sent.add(entry.id)  # a second entry with the same id is not sent
            outcomes.append(ReplayOutcome(entry.id, "replayed", stream))
            bodies.setdefault(stream, []).append(event)
        return ReplayPlan(tuple(outcomes), bodies)

    def _arrived(self, entries: Sequence[ReplayEntry], marks: Mapping[str, ReplayMark]) -> set[str]:
        """Return the ids of events that were sent by a process that ended before it marked them as done."""
        begun: dict[str, list[ReplayMark]] = {}
        for mark in (marks[entry.id] for entry in entries if entry.id in marks):
            if mark.state == "begun":
                begun.setdefault(mark.stream, []).append(mark)
        return {id_ for stream, some in begun.items() for id_ in arrived(self._log, stream, some)}

    def _build(self, entry: ReplayEntry, constraints: _Constraints) -> tuple[str, bytes]:
        """Return the raw stream and the event of an entry. Raises `_NotSent` if the event would be invalid."""
        refused = self._read_event(entry.id)
        origin, original = self._origin(refused)
        stream = self._target(entry.stream or origin)
        event = dict(entry.event) if entry.event is not None else _patched(original, entry.patch)
        event = {"_id": entry.id, **{name: value for name, value in event.items() if name not in _OURS}}
        violations = [*events.violations(event, stream.schema)] or [*constraints.violations(stream, event)]
        if violations:
            # A caller may see the values of the event that they sent, not those that a mask hides.
            shows = entry.event is not None or not self._hides
            raise _NotSent(*(violation if shows else _without_value(violation) for violation in violations))
        return stream.name, orjson.dumps(event)

    def _read_event(self, id_: str) -> QuarantinedEvent:
        quarantine = self._subject.quarantine
        position = QuarantinePosition.from_text(id_)
        if position is None or position.stream != quarantine:
            example = f"an id as GET …/quarantine gives it, which begins with {quarantine}:"
            raise _NotSent(Violation("id", f"expected {example}, not {id_!r:.80}"))
        record = record_at(self._log, quarantine, position.partition, position.offset, position.generation)
        if record is None:
            raise _NotSent(Violation("id", f"there is no event at {id_!r:.200}: it has expired, or never existed"))
        return QuarantinedEvent(position, orjson.loads(record))

    def _origin(self, refused: QuarantinedEvent) -> tuple[str | None, bytes | None]:
        """Return the raw stream that an event came from, and its record there; each None if unknown or expired."""
        if isinstance(self._subject.of, Stream):
            return self._subject.name, _raw(refused.record)
        source = refused.record.get("_src")
        for _ in range(_MAX_CHAIN):
            position = _parse_source(source)
            if position is None:
                break
            stream, partition, offset = position
            record = record_at(self._log, stream, partition, offset)
            if stream in self._definitions.streams:
                return stream, record
            if record is None:
                break
            source = orjson.loads(record).get("_src")
        return (self.streams[0] if len(self.streams) == 1 else None), None

    def _target(self, name: str | None) -> Stream:
        streams = ", ".join(self.streams)
        if name is None:
            why = "it was derived from several events, or its origin has expired"
            raise _NotSent(Violation("stream", f"{why}: expected one of {streams}"))
        if name not in self.streams:
            raise _NotSent(
                Violation("stream", f"expected {streams}, not {name!r:.80}{did_you_mean(name, self.streams)}")
            )
        stream = self._definitions.streams[name]
        if not isinstance(stream.source, Http):
            source = type(stream.source).__name__.lower()
            raise _NotSent(
                Violation(
                    "stream",
                    f"{name!r} is written by its source, {source}, and by nothing else: correct the event there; "
                    "events can be replayed only to streams with source: {http: {}}",
                )
            )
        return stream


class _Constraints:
    """The constraints of a service without a pipeline: an event that violates them would be quarantined again."""

    def __init__(self, of: Service | Stream) -> None:
        self._of, self._by_stream = of, dict[str, Constraints | None]()

    def violations(self, stream: Stream, event: Mapping[str, Any]) -> Iterator[Violation]:
        """Yield the violations of an event; none if the service has a pipeline, whose output is not known here."""
        if not isinstance(self._of, Service) or self._of.pipeline or stream.name not in self._of.inputs:
            return
        if self._of.on_violation != "quarantine":
            return
        if stream.name not in self._by_stream:
            self._by_stream[stream.name] = _constraints(self._of, stream.schema)
        constraints = self._by_stream[stream.name]
        if constraints is not None:
            yield from constraints.violations(event)


def _constraints(service: Service, schema: Schema) -> Constraints | None:
    constraints = {**schema.constraints, **service.constraints}
    terms = {**schema.terms, **service.terms}
    try:
        return Constraints(Schema(schema.root, constraints=constraints, terms=terms, event_time=schema.event_time))
    except (LanguageError, SchemaError):  # the service can't run; the runner reports that
        return None


def _upstream(definitions: Definitions, of: Service | Stream) -> Iterator[Service | Stream]:
    """Yield a service or stream and everything that it reads, directly or indirectly, each once."""
    seen: set[str] = set()
    waiting: list[Service | Stream] = [of]
    while waiting:
        definition = waiting.pop(0)
        if definition.name in seen:
            continue
        seen.add(definition.name)
        yield definition
        if isinstance(definition, Service):
            inputs = (definitions.services.get(name) or definitions.streams.get(name) for name in definition.inputs)
            waiting += [read for read in inputs if read is not None]


def _parse_source(source: Any) -> tuple[str, str, int] | None:
    """Parse `stream/partition:offset`. The offset of one of several events of a record has a suffix such as `.2`."""
    if not isinstance(source, str):
        return None
    stream, _, rest = source.partition("/")
    partition, _, offset = rest.rpartition(":")
    number = offset.partition(".")[0]
    return (stream, partition, int(number)) if partition and number.isascii() and number.isdigit() else None


def _raw(record: Mapping[str, Any]) -> bytes | None:
    if isinstance(record.get("_raw"), str):
        return str(record["_raw"]).encode()
    return base64.b64decode(record["_raw64"]) if isinstance(record.get("_raw64"), str) else None


def _patched(original: bytes | None, patch: Mapping[str, Any] | None) -> dict[str, Any]:
    if original is None:
        raise _NotSent(Violation("event", "expected the whole event: the original has expired from its stream"))
    try:
        event = orjson.loads(original)
    except orjson.JSONDecodeError:
        event = None
    if not isinstance(event, dict):
        raise _NotSent(Violation("event", "expected the whole event: the original is not a JSON object"))
    merged = _merged(event, patch or {})
    assert isinstance(merged, dict)
    return merged


def _merged(value: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396) to a value."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(value) if isinstance(value, Mapping) else {}
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), change)
    return merged


def _without_value(violation: Violation) -> Violation:
    return Violation(violation.path, "is invalid; its value is hidden by a mask")
