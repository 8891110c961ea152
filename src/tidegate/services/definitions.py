"""The definitions of streams and services as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from tidegate.model import Schema
from tidegate.services.findings import NONE as NONE
from tidegate.services.findings import Path as Path
from tidegate.services.findings import Place as Place
from tidegate.services.operators import Operator, streams_read
from tidegate.services.sources.demo import Demo as Demo
from tidegate.services.sources.files import Files as Files
from tidegate.services.sources.http import Http as Http
from tidegate.services.sources.kafka import Kafka as Kafka
from tidegate.services.sources.mqtt import Mqtt as Mqtt
from tidegate.services.sources.poll import Poll as Poll
from tidegate.services.sources.registry import Source as Source

OnViolation = Literal["quarantine", "drop", "flag", "fail"]
"""What happens to an event that violates a constraint: it goes to the quarantine, is dropped, passes with the attribute
`_violations`, or stops the service."""

OnLate = Literal["quarantine", "drop", "update"]
"""What happens to an event that is too late for a window: it goes to the quarantine, is dropped, or updates the result
of the closed window."""

Origin = Literal["operator", "remote"]
"""Where a definition comes from: from a file of the operator, which is trusted; or over HTTP, which is not."""


def _none() -> Mapping[Any, Any]:
    return NONE


@dataclass(frozen=True)
class StreamAccess:
    """Which callers see a raw stream, and which may publish to it. Admins may do both."""

    to: Literal["keys"] | tuple[str, ...] = "keys"
    """`keys`: all authenticated callers whose key or token includes the stream. A tuple: only those named in it.

    They see its definition. Providers among them may define services over it.
    """
    publish: tuple[str, ...] | None = None
    """Only these callers may publish; None: providers who see the stream, and publishers whose key names it."""


@dataclass(frozen=True)
class Stream:
    """A raw stream: the events of producers and sources, before any pipeline."""

    name: str
    schema: Schema
    """With its event time, constraints and terms."""
    key: str | None = None
    """Events of one key go to one partition, in order."""
    partitions: int = 1
    source: Source = field(default_factory=Http)
    retention: Retention = field(default_factory=lambda: Retention())
    themes: tuple[str, ...] = ()
    description: str = ""
    access: StreamAccess = field(default_factory=StreamAccess)
    origin: Origin = "operator"
    """Kept by the registry, not a part of the document."""


@dataclass(frozen=True)
class Retention:
    """Age and size up to which a stream keeps events; the limit that is reached first counts. None: no limit."""

    age_s: float | None = 24 * 3600.0
    size_bytes: int | None = None


@dataclass(frozen=True)
class Qos:
    """What a service promises."""

    latency_p99_s: float | None = None
    availability: float | None = None
    """A share, 0 to 1."""
    rate: float | None = None
    """Events a second, at least."""
    freshness_s: float | None = None
    """Maximum age of the newest event."""
    completeness: float | None = None
    """The share of events, 0 to 1, that reach the output and are not refused."""


Property = bool | int | float | str
"""The value of a property of a service."""


@dataclass(frozen=True)
class Mask:
    """How an attribute is hidden before it leaves Spark."""

    how: Literal["drop", "hmac", "truncate", "round"]
    digits: int = 0
    """`truncate`: number of letters that remain; `round`: number of decimal places."""


@dataclass(frozen=True)
class Access:
    """Which callers see a service, and which of its attributes. Admins see everything."""

    to: Literal["public", "keys"] | tuple[str, ...] = "keys"
    """`public`: every caller. `keys`: all authenticated callers whose key or token includes the service. A tuple: only
    those named in it.

    A name is that of a key, or the subject of a token; `role:police` is every caller with that role.
    """
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=_none)
    """By attribute: the only callers that see it."""


@dataclass(frozen=True)
class Service:
    """A pipeline from streams or other services to one output stream."""

    name: str
    main: tuple[str, ...]
    """The streams and services in `from`, in their order: the input of the first operator."""
    pipeline: tuple[Operator, ...] = ()
    constraints: Mapping[str, str] = field(default_factory=_none)
    """By attribute: a filter without its beginning, which is the name of the attribute."""
    on_violation: OnViolation = "quarantine"
    mask: Mapping[str, Mask] = field(default_factory=_none)
    qos: Qos = field(default_factory=Qos)
    retention: Retention = field(default_factory=Retention)
    terms: Mapping[str, Mapping[str, str]] = field(default_factory=_none)
    """Fuzzy words for attributes of the output."""
    themes: tuple[str, ...] = ()
    description: str = ""
    access: Access = field(default_factory=Access)
    properties: Mapping[str, Property] = field(default_factory=_none)
    """Named values for discovery to filter by, such as price, region or precision."""
    categories: tuple[str, ...] = ()
    origin: Origin = "operator"
    """Kept by the registry, not a part of the document."""
    on_late: OnLate = "quarantine"
    idle_s: float | None = 10.0
    """After this time without events, a partition no longer holds the watermark back; None: it always does."""
    max_ahead_s: float | None = 300.0
    """An event whose time is further in the future goes to the quarantine; None: no limit."""

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """All inputs without duplicates: the streams and services in `from`, then those that operators name."""
        return tuple(dict.fromkeys(self.reads))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """All inputs in the order of their use. One that is used twice, as in a join with itself, occurs twice."""
        named = (name for operator in self.pipeline for name in streams_read(operator))
        return (*self.main, *named)

    @property
    def quarantine(self) -> str:
        """The name of the stream with the refused events."""
        return f"{self.name}.quarantine"

    @property
    def replays(self) -> str:
        """The name of the stream that records which refused events were sent again."""
        return f"{self.quarantine}.replayed"


@dataclass(frozen=True)
class Definitions:
    """Streams and services that belong together: the content of one file or several."""

    streams: Mapping[str, Stream] = field(default_factory=_none)
    services: Mapping[str, Service] = field(default_factory=_none)
    places: Mapping[Path, Place] = field(default_factory=_none, compare=False, repr=False)
    """Where each part was written, for messages; nothing where it came from no text."""
