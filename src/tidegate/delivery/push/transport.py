"""The protocol of push transports, and the events and outcomes that they exchange with delivery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import orjson

from tidegate.delivery.encoding import Encoding
from tidegate.subscriptions import PushTarget, SubscriptionRecord


class PendingEvent(NamedTuple):
    """An event that waits to be sent."""

    cursor: str
    """The cursor behind it."""
    data: bytes
    """The encoded event."""
    record: bytes
    """The bytes of the event in the log."""
    encoding: Encoding
    """The encoding of `data`."""

    def encoded(self, service: str, encoding: Encoding) -> PendingEvent:
        """Return the event in an encoding, which may have changed since the event was queued."""
        if encoding == self.encoding:
            return self
        data = encoding.encode(service, self.record, orjson.loads(self.record))
        return self._replace(data=data, encoding=encoding)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of sending a message."""

    kind: Literal["taken", "failed", "refused", "gone"]
    """`taken`: the target has accepted it. `failed`: try again. `refused`: the target will never accept this message.
    `gone`: the target will never accept any message again."""
    detail: str = ""
    after_s: float = 0.0
    """The minimum delay before the next attempt that the target asks for."""


class PushTransport(Protocol):
    """Sends messages to the targets of one kind. All methods run on the event loop."""

    async def validate(self, target: PushTarget, *, handshake: bool) -> None:
        """Check that events may be sent to a target before a subscription is created or gets another address.

        `handshake`: also ask the target whether it wants events. Raises `TidegateError` if it must not get any.
        """

    async def send(self, subscription: SubscriptionRecord, events: Sequence[PendingEvent]) -> Outcome:
        """Send events as one message, at most `subscription.push_target.batch` of them. Does not raise."""

    async def close(self) -> None:
        """Close all connections."""


class PushTransports:
    """The transport of each kind of push target. Itself a `PushTransport` for all of them."""

    def __init__(self, transports: Mapping[str, PushTransport]) -> None:
        """`transports` has an entry for each kind in `tidegate.subscriptions.PUSH_TARGETS`."""
        self._transports = transports

    async def validate(self, target: PushTarget, *, handshake: bool) -> None:
        """Check a target with the transport of its kind. Raises `TidegateError`."""
        await self._transports[target.kind].validate(target, handshake=handshake)

    async def send(self, subscription: SubscriptionRecord, events: Sequence[PendingEvent]) -> Outcome:
        """Send events with the transport of the subscription's target."""
        target = subscription.push_target
        assert target is not None
        return await self._transports[target.kind].send(subscription, events)

    async def close(self) -> None:
        """Close the connections of all transports."""
        for transport in self._transports.values():
            await transport.close()
