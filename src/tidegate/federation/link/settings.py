"""The settings of a broker's links."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.federation.link.bounds import Bounds
from tidegate.federation.link.keys import OriginKey
from tidegate.federation.routes import AdaptiveSettings


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How a broker is linked to others."""

    broker: str
    """The name of this broker, unique in the federation."""
    strategy: str = "covering"
    """Which filters it requests from its neighbours; see `federation.routes.strategies`."""
    heartbeat_interval_s: float = 5.0
    """A heartbeat carries the states of the tables that its sender has, so that lost steps are noticed."""
    silence_timeout_s: float = 20.0
    """A session ends if the neighbour sends nothing for this long: more than three heartbeats."""
    handshake_timeout_s: float = 10.0
    """How long a neighbour may take to prove its identity."""
    first_retry_s: float = 0.2
    """The delay before a broken link is dialled again. It doubles with each attempt and has random jitter."""
    max_retry_s: float = 30.0
    """The longest delay between two attempts."""
    batch_events: int = 500
    """Events in one message."""
    batch_bytes: int = 256 * 1024
    """Bytes of events in one message, unless it has a single event."""
    max_in_flight: int = 16
    """Unconfirmed messages with events of one service. At this number the sender waits."""
    adaptive: AdaptiveSettings | None = AdaptiveSettings()
    """When events are sent unfiltered because that costs less. None: never."""
    save_interval_s: float = 0.5
    """How often changes are written to the registry."""
    linger_s: float = 60.0
    """How long the filter of an ad-hoc subscriber that left is still requested: it may return with its cursor."""
    tls: Callable[[], ssl.SSLContext] | None = None
    """Makes the TLS context for each attempt to dial a neighbour, as its files may have changed. None: trust the
    certificate authorities of this machine, and present no client certificate."""
    bounds: Bounds = field(default_factory=Bounds)
    """What each neighbour may make this broker store or compute."""
    signing_keys: Path | None = None
    """A JWK set file with the keys that this broker signs with. While it is missing, nothing is signed."""
    origins: Mapping[str, tuple[OriginKey, ...]] = field(default_factory=dict)
    """Pinned public keys by broker, which take precedence over those in the registry. Events and offers of these
    brokers are accepted only if they are signed with one of the keys."""
