"""Calls about API keys; for admins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.client.async_client.connection import AsyncGatewayConnection
from tidegate.client.requests import keys as key_requests


class AsyncKeyCalls:
    """The methods of `AsyncClient` about API keys."""

    _connection: AsyncGatewayConnection

    async def keys(self) -> list[dict[str, Any]]:
        """Return all API keys, without their secrets."""
        document = await self._connection.send(key_requests.list_all())
        keys: list[dict[str, Any]] = document["keys"]
        return keys

    async def create_key(
        self,
        name: str,
        role: str = "consumer",
        services: Sequence[str] | None = None,
        *,
        expires: str | None = None,
        quotas: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Create an API key. Only this answer has its secret. `expires` is a duration such as `90d`."""
        return await self._connection.send(key_requests.create(name, role, services, expires, quotas))

    async def rotate_key(self, id: str, overlap: str = "24h", *, expires: str | None = None) -> dict[str, Any]:  # noqa: A002
        """Replace the secret of a key. Only this answer has the new one; the old one stays valid for `overlap`."""
        return await self._connection.send(key_requests.rotate(id, overlap, expires))

    async def revoke_key(self, id: str) -> dict[str, Any]:  # noqa: A002 - public name
        """Revoke a key: the gateway refuses it from now on."""
        return await self._connection.send(key_requests.revoke(id))
