"""The client: all calls of the API on one gateway."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tidegate.client.async_client.connection import AsyncGatewayConnection
from tidegate.client.async_client.events import AsyncEventCalls
from tidegate.client.async_client.keys import AsyncKeyCalls
from tidegate.client.async_client.links import AsyncLinkCalls
from tidegate.client.async_client.services import AsyncServiceCalls
from tidegate.client.async_client.subscriptions import AsyncSubscriptionCalls
from tidegate.client.endpoint import DEFAULT_URL
from tidegate.client.reconnect import Reconnect
from tidegate.client.tls import Cert, Verify


class AsyncClient(AsyncServiceCalls, AsyncEventCalls, AsyncSubscriptionCalls, AsyncKeyCalls, AsyncLinkCalls):
    """Calls the HTTP API of one gateway.

    Use `async with`, or call `close`. A client may be shared by several tasks of one event loop; a subscription belongs
    to one task. Every call raises a `ClientError` if the gateway can't be reached or refuses the request.
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
        self._connection = AsyncGatewayConnection(url, key, timeout_s, reconnect, verify, cert)
        self.url = self._connection.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()
