"""An open subscription, as an iterator of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx

from tidegate.client import responses
from tidegate.client.async_client.connection import AsyncGatewayConnection
from tidegate.client.errors import ConnectionLost, Missed
from tidegate.client.requests.request import ApiRequest
from tidegate.client.subscription_session import SubscriptionSession
from tidegate.client.values import Event
from tidegate.errors import ClientError


class AsyncSubscription:
    """Iterates over the events of a service or of a durable subscription, without end.

    After a lost connection it reconnects with exponential backoff and continues after the last event: no event is lost
    or repeated. Errors that a retry does not cure are raised, and close the subscription; only `Missed` leaves it open.

    `async with` connects at once and closes at the end. Without it, the first event connects. A subscription of
    `consume` is durable: the next `consume` delivers events that were not acknowledged again.
    """

    def __init__(self, connection: AsyncGatewayConnection, session: SubscriptionSession) -> None:
        """Called by `subscribe` and `consume`. Does not connect."""
        self._connection, self._session = connection, session
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._is_closed = False

    @property
    def cursor(self) -> str | None:
        """The position after the last returned event, to continue there later; None if there is none yet."""
        return self._session.cursor

    async def __aenter__(self) -> Self:
        try:
            while self._response is None:
                await self._connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._session.mark_processed()
        await self.close()
        with suppress(ClientError):  # the gateway delivers unacknowledged events again
            await self._acknowledge(self._session.pending_ack())

    async def ack(self, what: Event | str | None = None) -> None:
        """Acknowledge all events up to an event or cursor, or all returned events. Returns when it is stored.

        Raises ClientError if the subscription is not durable.
        """
        await self._connection.send(self._session.ack(what))
        self._session.ack_succeeded()

    async def close(self) -> None:
        """Close the connection and end the iteration. Acknowledges nothing."""
        self._is_closed = True
        await self._disconnect()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._is_closed:
            try:
                await self._acknowledge(self._session.ack_on_next())
                event = self._session.next_event()
                if event is not None:
                    return event
                await self._receive()
            except Missed:
                raise
            except ClientError:
                await self.close()
                raise
            except BaseException:  # such as a cancellation or Ctrl-C: the next call reconnects after the last event
                await self._disconnect()
                raise
        raise StopAsyncIteration

    async def _acknowledge(self, request: ApiRequest | None) -> None:
        if request is not None:
            try:
                await self._connection.send(request)
                self._session.ack_succeeded()
            except ClientError as error:
                self._session.ack_failed(error)

    async def _receive(self) -> None:
        """Connect if there is no connection, else read one chunk."""
        if self._response is None or self._chunks is None:
            await self._connect()
            return
        try:
            self._session.feed(await anext(self._chunks))
        except StopAsyncIteration:
            await self._reconnect_later(ConnectionLost(f"{self._connection.url} has ended the connection"))
        except httpx.TransportError as error:
            await self._reconnect_later(responses.transport_error(self._connection.url, error))

    async def _connect(self) -> None:
        """Send the session's next request. Afterwards there may still be no stream: then call it again."""
        request = self._session.request()
        try:
            if self._session.needs_position:
                self._session.position_received(await self._connection.send(request))
                return
            self._response = await self._connection.open_stream(request)
        except ClientError as error:
            await self._reconnect_later(error)
            return
        self._chunks = self._response.aiter_bytes()
        self._session.stream_opened()

    async def _reconnect_later(self, error: ClientError) -> None:
        await self._disconnect()
        await asyncio.sleep(self._session.connection_lost(error))

    async def _disconnect(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()
