"""Calls about events: publish, pages, ad-hoc subscriptions."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate.client.async_client.connection import AsyncGatewayConnection
from tidegate.client.async_client.history import AsyncHistory
from tidegate.client.async_client.subscription import AsyncSubscription
from tidegate.client.publish_session import EventInput, Mode, PublishSession
from tidegate.client.requests import events as event_requests
from tidegate.client.requests.request import Since
from tidegate.client.subscription_session import SubscriptionSession, SubscriptionTarget
from tidegate.client.values import Format, Notice, Page, Receipt, parse_page
from tidegate.errors import ClientError

if TYPE_CHECKING:
    from tidegate.filters import Filter


class AsyncEventCalls:
    """The methods of `AsyncClient` about events."""

    _connection: AsyncGatewayConnection

    async def publish(
        self, stream: str, events: Iterable[EventInput] | EventInput, *, mode: Mode = "all", batch: int = 500
    ) -> Receipt:
        """Append events to a raw stream, in batches. They are in the log when this returns.

        An event is a mapping of attributes, or a JSON object as bytes or text; a single event needs no list.
        In mode `all` a batch with an invalid event is refused as a whole: `PublishError`. In mode `partial` only the
        invalid events are refused, and the receipt lists them. A batch that the gateway can't accept now is retried
        for half a minute; a batch that may have been accepted is retried only if all its events have an `_id`.
        """
        session = PublishSession(stream, events, mode, batch)
        for next_batch in session.batches():
            while True:
                try:
                    document = await self._connection.send(session.request(next_batch))
                except ClientError as error:
                    await asyncio.sleep(session.retry_backoff_s(next_batch, error))
                else:
                    session.batch_accepted(next_batch, document)
                    break
        return session.receipt

    async def events(
        self,
        service: str,
        filter: str | Filter | None = None,  # noqa: A002 - public name
        *,
        params: Sequence[Any] = (),
        cursor: str | None = None,
        since: Since | None = None,
        latest: str | None = None,
        select: str | Sequence[str] | None = None,
        wait: float = 0.0,
        most: int = 1_000,
        format: Format = "cloudevents",  # noqa: A002 - public name
        every: float | None = None,
        key: str | None = None,
    ) -> Page:
        """Return a page of at most `most` events after a cursor or since a point in time.

        If there is no event, wait up to `wait` seconds for one. With `every` the page has only the latest event of
        each value of the attribute `key`, and a request with `wait` collects events for `every` seconds.
        """
        request = event_requests.page(
            service, filter, params, cursor, since, latest, select, wait, most, format, every, key
        )
        return parse_page(await self._connection.send(request), format)

    def history(
        self,
        service: str,
        filter: str | Filter | None = None,  # noqa: A002 - public name
        *,
        params: Sequence[Any] = (),
        since: Since | None = None,
        until: Since | None = None,
        select: str | Sequence[str] | None = None,
    ) -> AsyncHistory:
        """Return the events that arrived from `since` on and before `until`, as data; see `AsyncHistory`.

        Without `since` from the oldest event on, without `until` up to now. Asks the gateway when a method of the
        history is called.
        """
        request = partial(event_requests.history, service, filter, params, since, until, select)
        return AsyncHistory(self._connection, request)

    def subscribe(
        self,
        service: str,
        filter: str | Filter | None = None,  # noqa: A002 - public name
        *,
        params: Sequence[Any] = (),
        cursor: str | None = None,
        since: Since | None = None,
        latest: str | None = None,
        select: str | Sequence[str] | None = None,
        format: Format = "cloudevents",  # noqa: A002 - public name
        every: float | None = None,
        key: str | None = None,
        idle: float | None = None,
        on_notice: Callable[[Notice], None] | None = None,
    ) -> AsyncSubscription:
        """Return an iterator over the events after a cursor or since a point in time; see `AsyncSubscription`.

        Without `cursor` and `since` it starts now. `latest` starts with the newest existing event of each value of
        this attribute. `every` delivers at most the latest event of each value of the attribute `key` per interval of
        `every` seconds. `idle` sends a notice after `idle` seconds without an event. `on_notice` is called with each
        notice by the task that waits for the next event; without it a gap is raised as `Missed`, and other notices
        are dropped.
        """
        target = SubscriptionTarget.of_service(
            service, filter, params, cursor, since, latest, select, format, every, key, idle
        )
        session = SubscriptionSession(target, self._connection.reconnect, on_notice, random.random, time.monotonic)
        return AsyncSubscription(self._connection, session)
