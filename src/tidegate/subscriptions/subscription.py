"""The record of a subscription."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.subscriptions.push_target import PushTarget

Format = Literal["cloudevents", "plain"]
"""How an event is written: in a CloudEvents envelope, or as the object alone."""


@dataclass(frozen=True, slots=True)
class Pull:
    """The consumer fetches its events: by SSE, WebSocket or polling."""


Deliver = Pull | PushTarget


@dataclass(frozen=True, slots=True)
class Grant:
    """What the owner of a subscription may see, as their token or certificate said when it was created or renewed.

    Push delivery uses it while the owner is away. Owners with an API key need none: the key is looked up.
    """

    name: str
    role: str
    services: tuple[str, ...] | None
    """The services that the owner may see; None: all."""
    groups: tuple[str, ...]
    expires_at: int
    """Microseconds since 1970 UTC: the subscription stops then, unless it is renewed."""


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
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
    """Seconds without an event after which the consumer is notified; None: never."""
    description: str = ""
    owner: str | None = None
    """The id of an API key, or a token's subject; None: created while no keys were required."""
    grant: Grant | None = None
    """What an owner without an API key may see."""

    @property
    def push_target(self) -> PushTarget | None:
        """Where the gateway sends the events; None if the consumer fetches them."""
        return self.deliver if isinstance(self.deliver, PushTarget) else None


def new_id() -> str:
    """Return a new id, which is unique and can't be guessed.

    >>> new_id().startswith("sub_")
    True
    """
    return f"sub_{secrets.token_hex(10)}"
