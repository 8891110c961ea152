"""Settings of push delivery, and what all push workers share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, TypeVar

from tidegate.delivery.acks import Acknowledgements
from tidegate.delivery.encoding import Encoding, encoding_of
from tidegate.delivery.pacing import Pace
from tidegate.delivery.push.placement import Peer
from tidegate.delivery.push.transport import Outcome, PushTransport
from tidegate.registry import Fence, Registry, SubscriptionState
from tidegate.subscriptions import SubscriptionRecord
from tidegate.timing import Backoff

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PushSettings:
    """Queue, retries and leases of push delivery."""

    max_queued: int = 1_000
    """Events that wait for one target; beyond that it reads from the log."""
    first_retry_s: float = 2.0
    """Delay between the first failure and the second attempt. It doubles with each failure."""
    max_retry_s: float = 3_600.0
    """Maximum delay between two attempts: a target that works again gets events within the hour."""
    max_attempts: int = 18
    """Failures in a row, about eight hours, after which a message becomes a dead letter."""
    lease_s: float = 6.0
    """How long a lease lasts, and with it how long the subscriptions of a gateway that died wait for another one. It is
    renewed three times as often."""
    ack_interval_s: float = 5.0
    """How often the cursor moves past events that did not match."""

    def retry_delay_s(self, failures: int, chance: random.Random, min_s: float = 0.0) -> float:
        """Return the delay after a number of failures, with jitter of up to a half; at least `min_s`."""
        delay_s = Backoff(self.first_retry_s, self.max_retry_s).delay_s(failures, chance.random)
        return max(delay_s, min(min_s, self.max_retry_s))


class Obstacle(NamedTuple):
    """Why a subscription must not be delivered, and the state that it gets."""

    state: SubscriptionState
    reason: str


LEASE_PREFIX = "webhook/"
"""The lease of a subscription is this text and its id: the same for every kind of target, and as in older versions, so
that gateways of both respect each other."""


@dataclass(frozen=True)
class PushContext:
    """What all push workers of a gateway share. The callbacks are called on the event loop."""

    registry: Registry
    acks: Acknowledgements
    """Cursors of this gateway's push subscriptions only, stored with `fence`."""
    transport: PushTransport
    settings: PushSettings
    holder: str
    """The name of this gateway in leases, and among the peers."""
    clock: Callable[[], datetime] = partial(datetime.now, UTC)
    chance: random.Random = field(default_factory=random.Random)
    encoding: Callable[[SubscriptionRecord], Encoding] = encoding_of
    """Returns how events are encoded for the owner of a subscription."""
    pace: Callable[[SubscriptionRecord], Pace | None] = lambda _: None
    """Returns the rate limit of a subscription's owner; None: no limit."""
    on_sent: Callable[[SubscriptionRecord, Outcome, int], None] = lambda _, __, ___: None
    """Called after each message with its outcome and number of events."""
    obstacle: Callable[[SubscriptionRecord], Obstacle | None] = lambda _: None
    """Returns why a subscription must not be delivered; None: it may."""
    peers: Callable[[], Collection[Peer]] = tuple
    """Returns the gateways that share the subscriptions; a gateway that is not among them adds itself."""

    @property
    def fence(self) -> Fence:
        """The condition of all writes about a subscription: this gateway still has its lease."""
        return Fence(self.holder, LEASE_PREFIX)

    async def ask(self, call: Callable[[Registry], T]) -> T:
        """Run a call to the registry, which blocks, on a thread."""
        return await asyncio.get_running_loop().run_in_executor(None, call, self.registry)
