"""Delivers one durable subscription to its push target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

import structlog

from tidegate.delivery.conflation import conflated
from tidegate.delivery.hub import Hub
from tidegate.delivery.pacing import paced
from tidegate.delivery.push.context import PushContext
from tidegate.delivery.push.queue_sink import QueueSink
from tidegate.delivery.push.transport import Outcome, PendingEvent
from tidegate.delivery.subscriber import Subscriber, SubscriberState
from tidegate.errors import LeaseLost
from tidegate.logs import Cursor
from tidegate.registry import Fence, RegisteredSubscription, Registry, SubscriptionState
from tidegate.subscriptions import PushTarget, SubscriptionRecord

_log = structlog.get_logger("tidegate.delivery")


class PushWorker:
    """Sends the events of one subscription from its cursor on, in order, one message at a time, until they are taken.

    Runs on the event loop.
    """

    def __init__(
        self,
        registered: RegisteredSubscription,
        hub: Hub,
        context: PushContext,
        is_leased: Callable[[], bool] = lambda: True,
    ) -> None:
        """`registered` must be read from the registry after the lease was taken.

        `is_leased` returns whether the lease surely lasts: it is called before each message is sent.

        Raises `FilterError` if the filter does not fit the service's schema, and `NotRegistered`.
        """
        subscription = self.subscription = registered.subscription
        self._hub, self._context, self._is_leased = hub, context, is_leased
        self._attempts, self._retry_at = registered.attempts, registered.retry_at
        self._changed = asyncio.Event()
        self._sink = QueueSink(self._target.kind, context.settings.max_queued)
        self._is_sending = False
        sink = conflated(paced(self._sink, context.pace(subscription)), (subscription.every_s, subscription.key))
        position = None if registered.cursor is None else Cursor.from_text(registered.cursor)
        encoding = context.encoding(subscription)
        filter_ = hub.filter_of(subscription, encoding)
        self.subscriber = Subscriber(subscription.id, subscription.service, filter_, sink, encoding, position)

    @property
    def _target(self) -> PushTarget:
        target = self.subscription.push_target
        assert target is not None
        return target

    def change(self, subscription: SubscriptionRecord) -> None:
        """Continue with a new record. A retry that is waited for happens at once, as the target may be another."""
        self.subscription = subscription
        self._changed.set()

    def acknowledge_position(self) -> None:
        """Move the cursor past events that did not match, if all that did match were taken."""
        position = self.subscriber.position
        is_idle = not self._is_sending and self.subscriber.sink.is_flushed
        if position is not None and is_idle and self.subscriber.state is not SubscriberState.GONE:
            self._context.acks.note(self.subscription.id, position.text)

    async def run(self) -> None:
        """Deliver until cancelled, or until the subscription is disabled.

        Raises what the registry raises, and `LeaseLost` instead of sending a message without a lease.
        """
        try:
            self._is_sending = True  # the cursor must not move while a retry from before the start is waited for
            if self._retry_at is not None:
                await self._pause((self._retry_at - self._context.clock()).total_seconds())
            self._hub.subscribe(self.subscriber)
            while True:
                self._is_sending = False
                events = await self._sink.take(self._target.batch)
                self._is_sending = True
                if not events:
                    await self._disable(self._sink.error or "delivery has ended")
                    return
                if not await self._deliver(events):
                    return
        finally:
            self._hub.unsubscribe(self.subscriber)
            self.subscriber.sink.close()

    async def _deliver(self, events: Sequence[PendingEvent]) -> bool:
        """Send events until they are taken or become dead letters. Returns False if delivery has ended."""
        while True:
            self._changed.clear()  # a change while the message is sent ends the pause after it
            service, encoding = self.subscription.service, self.subscriber.encoding
            events = [event.encoded(service, encoding) for event in events]
            if not self._is_leased():  # this process was stopped for a while: another gateway may have sent them
                raise LeaseLost(f"the lease of {self.subscription.id} has ended")
            outcome = await self._context.transport.send(self.subscription, events)
            self._context.on_sent(self.subscription, outcome, len(events))
            match outcome.kind:
                case "taken":
                    await self._acknowledge(events)
                    return True
                case "gone":
                    await self._disable(outcome.detail)
                    return False
                case "refused" if len(events) > 1:  # one of them may be the cause: try each alone
                    for event in events:
                        if not await self._deliver([event]):
                            return False
                    return True
                case "refused":
                    await self._bury(events, outcome.detail, self._attempts + 1)
                    return True
                case "failed":
                    self._attempts += 1
                    if self._attempts >= self._context.settings.max_attempts:
                        await self._bury(events, outcome.detail, self._attempts)
                        return True
                    await self._wait_for_retry(outcome)

    async def _acknowledge(self, events: Sequence[PendingEvent]) -> None:
        self._context.acks.note(self.subscription.id, events[-1].cursor)
        if self._attempts:
            self._attempts = 0
            await self._context.acks.flush()
            await self._note_attempt(0, None)

    async def _wait_for_retry(self, outcome: Outcome) -> None:
        """Store the failure, so that a restart continues with it, then wait."""
        delay_s = self._context.settings.retry_delay_s(self._attempts, self._context.chance, outcome.after_s)
        retry_at = self._context.clock() + timedelta(seconds=delay_s)
        id_, attempts = self.subscription.id, self._attempts
        _log.warning(
            "a push attempt has failed", subscription=id_, attempts=attempts, problem=outcome.detail, retry_s=delay_s
        )
        await self._context.acks.flush()
        await self._note_attempt(attempts, retry_at)
        await self._pause(delay_s)

    async def _note_attempt(self, attempts: int, retry_at: datetime | None) -> None:
        id_, fence = self.subscription.id, self._context.fence
        await self._context.ask(lambda registry: registry.note_attempt(id_, attempts, retry_at, fence))

    async def _pause(self, delay_s: float) -> None:
        """Wait, but not after the subscription has changed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(0.0, delay_s))

    async def _bury(self, events: Sequence[PendingEvent], error: str, attempts: int) -> None:
        """Store events as dead letters, and continue behind them."""
        id_ = self.subscription.id
        for event in events:
            await self._context.ask(partial(_bury, id_, event, error, attempts, self._context.fence))
        _log.error("a message became a dead letter", subscription=id_, events=len(events), problem=error)
        self._attempts = self._attempts or 1  # so that `_acknowledge` resets the attempts in the registry
        await self._acknowledge(events)

    async def _disable(self, reason: str) -> None:
        await self._context.acks.flush()
        await self._context.ask(partial(disable, self.subscription.id, reason))


def _bury(id_: str, event: PendingEvent, error: str, attempts: int, fence: Fence, registry: Registry) -> None:
    registry.add_dead_letter(id_, event.cursor, event.record, error, attempts, fence)


def disable(id_: str, reason: str, registry: Registry, state: SubscriptionState = "disabled") -> None:
    """Disable a subscription, unless it is not active any more: then the first reason stays. Blocks."""
    if registry.subscription(id_).state == "active":
        registry.disable(id_, reason, state)
