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

OnViolation = Literal["quarantine", "drop", "flag", "fail"]
"""What becomes of an event that violates a constraint: kept aside, left out, let through with `_violations`, or
the end of the service."""

OnLate = Literal["quarantine", "drop", "update"]
"""What happens to an event that is too late for a window: it goes to the quarantine, is dropped, or updates the result
of the closed window."""

Origin = Literal["operator", "remote"]
"""Who has stated a definition: the operator in a file, which is trusted; or somebody over the network, who is not."""


def _none() -> Mapping[Any, Any]:
    return NONE


@dataclass(frozen=True)
class Http:
    """Events come by HTTP, or by anything else that appends to the log."""


@dataclass(frozen=True)
class Demo:
    """Events of a built-in generator: seeded, so that they come again."""

    kind: str
    rate: float = 1_000.0
    """Events a second."""
    seed: int = 7


@dataclass(frozen=True)
class Files:
    """Events of files: one, or all of a folder or pattern, also those that are added later."""

    path: str
    format: Literal["csv", "ndjson", "parquet"] | None = None
    """None: by the file's ending."""
    speed: float | None = None
    """1: as fast as the events' times say, 10: ten times as fast. None: as fast as it goes."""


@dataclass(frozen=True)
class Kafka:
    """Events of a Kafka topic."""

    topic: str
    brokers: str = "localhost:9092"
    connection: str | None = None
    """A connection of the profile, instead of brokers."""


@dataclass(frozen=True)
class Mqtt:
    """Events of MQTT topics, QoS 1; the topic may have wildcards."""

    topic: str
    broker: str = "localhost:1883"
    username: str | None = None
    password_env: str | None = None
    """The environment variable that holds the password."""
    connection: str | None = None
    """A connection of the profile, instead of all but the topic."""


Source = Http | Demo | Files | Kafka | Mqtt


@dataclass(frozen=True)
class StreamAccess:
    """Who sees a raw stream, and who may put events into it. Admins may do both."""

    to: Literal["keys"] | tuple[str, ...] = "keys"
    """All who are known, and whose key or token is for it; or just these of them.

    They see its definition, and may define services over it where they are providers.
    """
    publish: tuple[str, ...] | None = None
    """Just these may put events into it; None: providers who see it, and publishers whose key names it."""


@dataclass(frozen=True)
class Stream:
    """A raw stream: what comes in."""

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
    """How long a stream is kept: whichever is reached first; None: no limit."""

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
    """How old the newest event is at the most."""
    completeness: float | None = None
    """The share of events, 0 to 1, that come out and were not refused."""


Property = bool | int | float | str
"""What a service says of itself under a name."""


@dataclass(frozen=True)
class Mask:
    """How an attribute is hidden before it leaves Spark."""

    how: Literal["drop", "hmac", "truncate", "round"]
    digits: int = 0
    """`truncate`: letters that are left; `round`: decimal places."""


@dataclass(frozen=True)
class Access:
    """Who sees a service, and what of it. Admins see everything."""

    to: Literal["public", "keys"] | tuple[str, ...] = "keys"
    """Everybody; all who are known, and whose key or token is for it; or just these of them.

    A name is a key's, or the subject of a token; `role:police` is whoever has that role.
    """
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=_none)
    """By attribute: just these see it."""


@dataclass(frozen=True)
class Service:
    """A pipeline from streams or other services to one output stream."""

    name: str
    main: tuple[str, ...]
    """The streams and services in `from`, in their order: the input of the first operator."""
    pipeline: tuple[Operator, ...] = ()
    constraints: Mapping[str, str] = field(default_factory=_none)
    """By attribute: the rest of a filter that starts with its name."""
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
    """What it says of itself: price, region, precision. Discovery filters by them."""
    categories: tuple[str, ...] = ()
    origin: Origin = "operator"
    """Kept by the registry, not a part of the document."""
    on_late: OnLate = "quarantine"
    idle_s: float | None = 10.0
    """A partition without events for so long does not hold the watermark back; None: it always does."""
    max_ahead_s: float | None = 300.0
    """An event whose time is further in the future goes to the quarantine; None: no limit."""

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """All streams and services that it reads, each once: those in `from`, then those that operators name."""
        named = (name for operator in self.pipeline for name in streams_read(operator))
        return tuple(dict.fromkeys((*self.main, *named)))

    @property
    def quarantine(self) -> str:
        """The stream beside the output that holds what was refused."""
        return f"{self.name}.quarantine"

    @property
    def replays(self) -> str:
        """The stream beside the quarantine that says what of it was sent again."""
        return f"{self.quarantine}.replayed"


@dataclass(frozen=True)
class Definitions:
    """Streams and services that belong together: the content of one file or several."""

    streams: Mapping[str, Stream] = field(default_factory=_none)
    services: Mapping[str, Service] = field(default_factory=_none)
    places: Mapping[Path, Place] = field(default_factory=_none, compare=False, repr=False)
    """Where each part was written, for messages; nothing where it came from no text."""
