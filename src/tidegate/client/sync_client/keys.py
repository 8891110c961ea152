# Generated from async_client/keys.py by scripts/generate_sync_client.py; do not edit.
"""Calls about API keys; for admins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.client.requests import keys as key_requests
from tidegate.client.sync_client.connection import GatewayConnection


class KeyCalls:
    """The methods of `Client` about API keys."""

    _connection: GatewayConnection

    def keys(self) -> list[dict[str, Any]]:
        """Return all API keys, without their secrets."""
        document = self._connection.send(key_requests.list_all())
        keys: list[dict[str, Any]] = document["keys"]
        return keys

    def create_key(
        self,
        name: str,
        role: str = "consumer",
        services: Sequence[str] | None = None,
        *,
        expires: str | None = None,
        quotas: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Create an API key. Only this answer has its secret. `expires` is a duration such as `90d`."""
        return self._connection.send(key_requests.create(name, role, services, expires, quotas))

    def rotate_key(self, id: str, overlap: str = "24h", *, expires: str | None = None) -> dict[str, Any]:  # noqa: A002
        """Replace the secret of a key. Only this answer has the new one; the old one stays valid for `overlap`."""
        return self._connection.send(key_requests.rotate(id, overlap, expires))

    def revoke_key(self, id: str) -> dict[str, Any]:  # noqa: A002 - public name
        """Revoke a key: the gateway refuses it from now on."""
        return self._connection.send(key_requests.revoke(id))
