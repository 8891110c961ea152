# Generated from async_client/client.py by scripts/generate_sync_client.py; do not edit.
"""The client: all calls of the API on one gateway."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tidegate.client.endpoint import DEFAULT_URL
from tidegate.client.reconnect import Reconnect
from tidegate.client.sync_client.connection import GatewayConnection
from tidegate.client.sync_client.events import EventCalls
from tidegate.client.sync_client.keys import KeyCalls
from tidegate.client.sync_client.links import LinkCalls
from tidegate.client.sync_client.services import ServiceCalls
from tidegate.client.sync_client.subscriptions import SubscriptionCalls
from tidegate.client.tls import Cert, Verify


class Client(ServiceCalls, EventCalls, SubscriptionCalls, KeyCalls, LinkCalls):
    """Calls the HTTP API of one gateway.

    Use `with`, or call `close`. A client may be shared by several threads; a subscription belongs
    to one thread. Every call raises a `ClientError` if the gateway can't be reached or refuses the request.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        timeout_s: float = 30.0,
        reconnect: Reconnect = Reconnect(),  # noqa: B008 - a frozen value
        verify: Verify = True,
        cert: Cert = None,
    ) -> None:
        """Check the arguments; connect with the first call.

        `key` is an API key or a token. `reconnect` sets how subscriptions reconnect. For an https URL `verify` is the
        PEM file of the authorities to trust, or False, and `cert` the client certificate and its key, as PEM files.
        """
        self._connection = GatewayConnection(url, key, timeout_s, reconnect, verify, cert)
        self.url = self._connection.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()
