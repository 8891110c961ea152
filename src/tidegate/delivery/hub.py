"""The registry of all subscribers of one log, and the entry to the package."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from tidegate.delivery import notices
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.history import HistoryProvider, NoHistory
from tidegate.delivery.lifecycle import Lifecycle
from tidegate.delivery.live import OnDispatch
from tidegate.delivery.outputs import Outputs
from tidegate.delivery.polling import Poller, PollResult
from tidegate.delivery.start import NOW, Start, start_cursor
from tidegate.delivery.subscriber import Sink, Subscriber, SubscriberState
from tidegate.errors import TidegateError
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.logs import Cursor, EventLog
from tidegate.model import Schema
from tidegate.subscriptions import SubscriptionRecord


class Hub:
    """Serves the subscribers of one log. Every method runs on the event loop in which the hub was created."""

    def __init__(
        self,
        log: EventLog,
        on_dispatch: OnDispatch = lambda _, __, ___: None,
        on_subscription_change: Callable[[Subscriber, bool], None] = lambda _, __: None,
        history: HistoryProvider | None = None,
        write_batch: AbstractContextManager[None] | None = None,
    ) -> None:
        """Create a hub that serves nothing yet.

        `on_dispatch` is called after the output of a live pass was written. `on_subscription_change` is called with
        True when a subscriber is added or changes its filter, and with False when it leaves. `history` has the events
        that are not in the log. All output of a pass is written inside the context `write_batch`.
        """
        self._log, self._history = log, history or NoHistory()
        self._on_subscription_change = on_subscription_change
        self._outputs = Outputs()
        self._subscribers: set[Subscriber] = set()
        self._is_draining = False
        self._lifecycle = Lifecycle(
            log,
            self._outputs,
            self._history,
            self._subscribers,
            write_batch=write_batch or nullcontext(),
            on_dispatch=on_dispatch,
            dismiss=self.dismiss,
        )
        senders = self._lifecycle.history_sender, self._lifecycle.snapshot_sender
        self._poller = Poller(log, self._history, *senders)

    # Services ------------------------------------------------------------------------

    def serve(self, schemas: Mapping[str, Schema], meanings: Mapping[str, Meaning] | None = None) -> None:
        """Serve these services, and no others. `meanings` has the semantics of those whose filters may use ~.

        Subscribers of a service whose schema has changed continue with the new one. A subscriber whose filter does not
        fit it, or whose service is gone, is dismissed.
        """
        for name in self._outputs.replace(schemas, meanings or {}):
            subscribers = [subscriber for subscriber in self._subscribers if subscriber.service == name]
            self._lifecycle.leave_lanes(subscribers)
            self._lifecycle.workers.cancel(name)
            for subscriber in subscribers:
                self._recompile(subscriber)

    def _recompile(self, subscriber: Subscriber) -> None:
        """Let a subscriber continue with the new schema of its service, or dismiss it."""
        try:
            self.schema(subscriber.service)
            if subscriber.filter is not None:
                subscriber.filter = self._outputs.recompiled(subscriber.filter, subscriber.service, subscriber.encoding)
                self._on_subscription_change(subscriber, True)
        except TidegateError as problem:
            self.dismiss(subscriber, str(problem))
        else:
            self._lifecycle.route([subscriber])

    def schema(self, service: str) -> Schema:
        """Return the schema of a service's output. Raises `NotRegistered`."""
        return self._outputs.schema(service)

    def meaning(self, service: str) -> Meaning | None:
        """Return what evaluates filters with ~ over a service; None if it has no semantics."""
        return self._outputs.meaning(service)

    def filter_of(self, record: SubscriptionRecord, encoding: Encoding) -> Filter | None:
        """Return the filter of a durable subscription, without the attributes that `encoding` hides; None: all events.

        Raises `FilterError` if the filter does not fit the schema, and `NotRegistered`.
        """
        return self._outputs.filter_of(record, encoding)

    # Subscribers ---------------------------------------------------------------------

    async def begin(self, service: str, start: Start = NOW, filter_: Filter | None = None) -> Cursor | None:
        """Return the cursor of a start position; None if the output does not exist yet, so that all of it will be new.

        `filter_` is the filter of the subscriber that will start there; None: all events. Raises `NotRegistered`, and
        `LogUnreachable` if the log does not answer.
        """
        self.schema(service)
        cursor = await self._history.start_cursor(service, start, filter_)
        return cursor or await asyncio.to_thread(start_cursor, self._log, service, start)

    def subscribe(self, subscriber: Subscriber, *, now: bool = False) -> None:
        """Serve a subscriber from its cursor on. Raises `NotRegistered`.

        `now`: it has no cursor and starts with the next event; its sink gets a notice `began` with the cursor.
        """
        self.schema(subscriber.service)
        if subscriber.state is SubscriberState.GONE:  # dismissed before it was served
            return
        self._subscribers.add(subscriber)
        subscriber.starts_now = now
        self._on_subscription_change(subscriber, True)
        self._lifecycle.route([subscriber])
        if self._is_draining:  # the request arrived before the hub started to drain
            subscriber.sink.end()

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop serving a subscriber; it may be gone already. Nothing is written to a sink without subscribers."""
        self._remove(subscriber)
        subscriber.enter(SubscriberState.GONE)

    def dismiss(self, subscriber: Subscriber, detail: str) -> None:
        """Unsubscribe a subscriber, and send it a notice `error` with its position and the reason."""
        position = subscriber.position
        self.unsubscribe(subscriber)
        subscriber.sink.send_notice(subscriber, notices.ended(position, detail))

    def _remove(self, subscriber: Subscriber) -> None:
        self._lifecycle.leave_lanes([subscriber])
        self._on_subscription_change(subscriber, False)
        self._subscribers.discard(subscriber)
        sink = subscriber.sink
        sink.subscribers.discard(subscriber)
        if not sink.subscribers:
            sink.epoch += 1

    def rewrite(self, subscriber: Subscriber, encoding: Encoding, sink: Sink) -> None:
        """Encode a subscriber's events differently, or write them to another sink, from its position on.

        Also for a subscriber that polls. Raises `NotRegistered`, and then changes nothing.
        """
        if subscriber.encoding == encoding and subscriber.sink is sink:
            return
        self.schema(subscriber.service)
        is_served = subscriber in self._subscribers
        if is_served:
            self._remove(subscriber)
        subscriber.sink.subscribers.discard(subscriber)
        subscriber.encoding, subscriber.sink = encoding, sink
        sink.subscribers.add(subscriber)
        if is_served:
            self.subscribe(subscriber)

    async def change(self, subscriber: Subscriber, filter_: Filter | None) -> Cursor | None:
        """Replace the filter of a subscriber between two events, and return the cursor from which it applies.

        The sink gets a notice `changed`. None: the stream does not exist yet.
        """
        on_change = partial(self._on_subscription_change, subscriber, True)
        return await self._lifecycle.change_filter(subscriber, filter_, on_change)

    async def poll(self, subscriber: Subscriber) -> PollResult:
        """Write the next events to the sink of a subscriber that is not served, and move its cursor.

        The caller unsubscribes it after the last poll. Raises `LogUnreachable` if the log does not answer.
        """
        self._on_subscription_change(subscriber, True)
        return await self._poller.poll(subscriber)

    # Figures -------------------------------------------------------------------------

    def listening(self) -> list[Subscriber]:
        """Return all subscribers that are served."""
        return list(self._subscribers)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return for each service with subscribers how many are live and behind, and the events read and matched."""
        counts: dict[str, dict[str, int]] = {}
        for subscriber in self._subscribers:
            count = counts.setdefault(subscriber.service, {"live": 0, "behind": 0, "events": 0, "matched": 0})
            count["live" if subscriber.state is SubscriberState.LIVE else "behind"] += 1
        for name, live in self._lifecycle.workers.running_live().items():
            if name in counts:
                counts[name] |= {"events": live.events, "matched": live.matched}
        return counts

    def kinds(self) -> Counter[tuple[str, str]]:
        """Return the number of subscribers for each service and kind of sink."""
        return Counter((subscriber.service, subscriber.sink.kind) for subscriber in self._subscribers)

    def positions_behind(self) -> dict[str, list[Cursor]]:
        """Return for each service with subscribers the positions of those that are behind."""
        positions: dict[str, list[Cursor]] = {subscriber.service: [] for subscriber in self._subscribers}
        for subscriber in self._subscribers:
            if subscriber.state.is_behind and subscriber.position is not None:
                positions[subscriber.service].append(subscriber.position)
        return positions

    # The end -------------------------------------------------------------------------

    def drain(self) -> None:
        """Let every sink send its remaining events and end, also the sinks of subscribers that are added later."""
        self._is_draining = True
        for sink in {subscriber.sink for subscriber in self._subscribers}:
            sink.end()

    async def close(self) -> None:
        """Unsubscribe all subscribers, and wait for all threads to end."""
        for subscriber in list(self._subscribers):
            self.unsubscribe(subscriber)
        await self._lifecycle.close()
