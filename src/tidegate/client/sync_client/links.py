# Generated from async_client/links.py by scripts/generate_sync_client.py; do not edit.
"""Calls about links between brokers; for admins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.client.requests import links as link_requests
from tidegate.client.sync_client.connection import GatewayConnection


class LinkCalls:
    """The methods of `Client` about links."""

    _connection: GatewayConnection

    def links(self) -> dict[str, Any]:
        """Return the name of the gateway's broker and its links."""
        return self._connection.send(link_requests.list_all())

    def add_link(
        self,
        name: str,
        url: str | None = None,
        secret: str | None = None,
        services: Sequence[str] | None = None,
        *,
        transit: Sequence[str] = (),
        public: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Link the broker to another one that has the same secret. Without a URL the other broker connects.

        `services` limits the services that the other broker may see. `transit` lists the brokers whose services it may
        pass on, `public` its services that guests may read if their origin allows it; `*` in either means any.
        """
        return self._connection.send(link_requests.add(name, url, secret, services, transit, public))

    def change_link(
        self, name: str, *, transit: Sequence[str] | None = None, public: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Change the trust settings of a link, see `add_link`; None leaves a setting unchanged."""
        return self._connection.send(link_requests.change(name, transit, public))

    def remove_link(self, name: str) -> None:
        """Remove a link."""
        self._connection.send(link_requests.remove(name))

    def trust_origin(self, origin: str, keys: str) -> dict[str, Any]:
        """Pin the public keys of a broker, a JWK set as text. Messages that they did not sign are refused."""
        return self._connection.send(link_requests.trust(origin, keys))

    def distrust_origin(self, origin: str) -> None:
        """Remove the pinned keys of a broker: its events no longer need a signature."""
        self._connection.send(link_requests.distrust(origin))
