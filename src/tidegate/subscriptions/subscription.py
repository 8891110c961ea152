"""The record of a subscription."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Literal

Format = Literal["cloudevents", "plain"]
"""How an event is written: in a CloudEvents envelope, or as the object alone."""


@dataclass(frozen=True, slots=True)
class Pull:
    """The consumer fetches its events: by SSE, WebSocket or polling."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """The gateway sends events to a URL, signed."""

    url: str
    secrets: tuple[str, ...] = ()
    """Standard Webhooks secrets (`whsec_...`), the newest first: while one is replaced, all of them sign."""
    batch: int = 1
    """Events in one request, at most; more than one makes a CloudEvents batch."""


Deliver = Pull | Webhook


@dataclass(frozen=True, slots=True)
class Grant:
    """What the owner of a subscription may see, as their token or certificate said when it was created or renewed.

    A webhook is delivered by it while its owner is away. Owners with an API key need none: the key is looked up.
    """

    name: str
    role: str
    services: tuple[str, ...] | None
    """The services that the owner may see; None: all."""
    groups: tuple[str, ...]
    expires_at: int
    """Microseconds since 1970 UTC: the subscription stops then, unless it is renewed."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer wants from a service, and how it is delivered."""

    id: str
    service: str
    filter: str = ""
    """Text of the filter; empty: everything."""
    params: tuple[Any, ...] = ()
    deliver: Deliver = field(default_factory=Pull)
    select: tuple[str, ...] | None = None
    """The attributes that are sent; None: all."""
    format: Format = "cloudevents"
    every_s: float | None = None
    """Conflation interval: at most the latest event per key in each interval."""
    key: str | None = None
    """The attribute that is the conflation key; None: all events have the same key."""
    idle_s: float | None = None
    """Tell when nothing has come for so long."""
    description: str = ""
    owner: str | None = None
    """Whose it is: the id of an API key, or a token's subject; None: created while no keys were required."""
    grant: Grant | None = None
    """What an owner without an API key may see."""


def new_id() -> str:
    """An id for a new subscription: no two are the same, and none can be guessed.

    >>> new_id().startswith("sub_")
    True
    """
    return f"sub_{secrets.token_hex(10)}"
