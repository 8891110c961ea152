"""What an operator sets of links."""

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
    """Its name, which no other broker of the federation has."""
    strategy: str = "covering"
    """What it asks its neighbours for; see `federation.routes`."""
    beat_s: float = 5.0
    """Between two heartbeats. Each says what its sender has of the other's tables, so that what was lost is found."""
    silence_s: float = 20.0
    """A neighbour who says nothing for so long is gone: three heartbeats and some."""
    handshake_s: float = 10.0
    """How long a neighbour may take to prove who it is."""
    first_s: float = 0.2
    """The pause before a broken link is tried again; it doubles each time, and is never the same for two."""
    most_s: float = 30.0
    """The longest such pause."""
    batch_events: int = 500
    """Events in one message."""
    batch_bytes: int = 256 * 1024
    """Bytes of events in one message, if it has more than one."""
    under_way: int = 16
    """Messages with events, of one service, that a neighbour has not yet taken: then the sender waits."""
    adaptive: AdaptiveSettings | None = AdaptiveSettings()
    """When events are sent unfiltered, as it costs less, and when they are not; None: all are filtered."""
    keep_s: float = 0.5
    """Between two times at which what has changed is written to the registry."""
    linger_s: float = 60.0
    """How long what an ad-hoc subscriber wanted is still asked for: it may come back with its cursor."""
    tls: Callable[[], ssl.SSLContext] | None = None
    """Makes the TLS context with which a neighbour is dialled, anew each time, as its files may have changed; None:
    the authorities that this machine trusts, and no certificate of our own."""
    bounds: Bounds = field(default_factory=Bounds)
    """What each neighbour may make this broker keep or compute."""
    signing_keys: Path | None = None
    """The file with the keys that this broker signs with, a JWK set; while it is absent nothing is signed."""
    origins: Mapping[str, tuple[OriginKey, ...]] = field(default_factory=dict)
    """Pinned public keys by broker, in place of those in the registry: what it has not signed is refused."""
