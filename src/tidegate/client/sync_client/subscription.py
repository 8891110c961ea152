# Generated from async_client/subscription.py by scripts/generate_sync_client.py; do not edit.
"""An open subscription, as an iterator of events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx

from tidegate.client import responses
from tidegate.client.errors import ConnectionLost, Missed
from tidegate.client.requests.request import ApiRequest
from tidegate.client.subscription_session import SubscriptionSession
from tidegate.client.sync_client.connection import GatewayConnection
from tidegate.client.values import Event
from tidegate.errors import ClientError


class Subscription:
    """Iterates over the events of a service or of a durable subscription, without end.

    After a lost connection it reconnects with exponential backoff and continues after the last event: no event is lost
    or repeated. Errors that a retry does not cure are raised, and close the subscription; only `Missed` leaves it open.

    `with` connects at once and closes at the end. Without it, the first event connects. A subscription of
    `consume` is durable: the next `consume` delivers events that were not acknowledged again.
    """

    def __init__(self, connection: GatewayConnection, session: SubscriptionSession) -> None:
        """Called by `subscribe` and `consume`. Does not connect."""
        self._connection, self._session = connection, session
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] | None = None
        self._is_closed = False

    @property
    def cursor(self) -> str | None:
        """The position after the last returned event, to continue there later; None if there is none yet."""
        return self._session.cursor

    def __enter__(self) -> Self:
        try:
            while self._response is None:
                self._connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._session.mark_processed()
        self.close()
        with suppress(ClientError):  # the gateway delivers unacknowledged events again
            self._acknowledge(self._session.pending_ack())

    def ack(self, what: Event | str | None = None) -> None:
        """Acknowledge all events up to an event or cursor, or all returned events. Returns when it is stored.

        Raises ClientError if the subscription is not durable.
        """
        self._connection.send(self._session.ack(what))
        self._session.ack_succeeded()

    def close(self) -> None:
        """Close the connection and end the iteration. Acknowledges nothing."""
        self._is_closed = True
        self._disconnect()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        while not self._is_closed:
            try:
                self._acknowledge(self._session.ack_on_next())
                event = self._session.next_event()
                if event is not None:
                    return event
                self._receive()
            except Missed:
                raise
            except ClientError:
                self.close()
                raise
            except BaseException:  # such as a cancellation or Ctrl-C: the next call reconnects after the last event
                self._disconnect()
                raise
        raise StopIteration

    def _acknowledge(self, request: ApiRequest | None) -> None:
        if request is not None:
            try:
                self._connection.send(request)
                self._session.ack_succeeded()
            except ClientError as error:
                self._session.ack_failed(error)

    def _receive(self) -> None:
        """Connect if there is no connection, else read one chunk."""
        if self._response is None or self._chunks is None:
            self._connect()
            return
        try:
            self._session.feed(next(self._chunks))
        except StopIteration:
            self._reconnect_later(ConnectionLost(f"{self._connection.url} has ended the connection"))
        except httpx.TransportError as error:
            self._reconnect_later(responses.transport_error(self._connection.url, error))

    def _connect(self) -> None:
        """Send the session's next request. Afterwards there may still be no stream: then call it again."""
        request = self._session.request()
        try:
            if self._session.needs_position:
                self._session.position_received(self._connection.send(request))
                return
            self._response = self._connection.open_stream(request)
        except ClientError as error:
            self._reconnect_later(error)
            return
        self._chunks = self._response.iter_bytes()
        self._session.stream_opened()

    def _reconnect_later(self, error: ClientError) -> None:
        self._disconnect()
        time.sleep(self._session.connection_lost(error))

    def _disconnect(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()
