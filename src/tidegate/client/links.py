"""What is asked of links between brokers, as values: no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote

from tidegate.client.http import Asked

_JSON = {"content-type": "application/json"}


def all_() -> Asked:
    """All links."""
    return Asked("GET", "/v1/links")


def add(
    name: str,
    url: str | None,
    secret: str | None,
    services: Sequence[str] | None,
    transit: Sequence[str] = (),
    public: Sequence[str] = (),
) -> Asked:
    """Link a broker to another."""
    said = {"name": name, "url": url, "secret": secret, "services": None if services is None else list(services)}
    said |= {"transit": list(transit), "public": list(public)}
    return Asked("POST", "/v1/links", headers=_JSON, body=json.dumps(said).encode())


def change(name: str, transit: Sequence[str] | None, public: Sequence[str] | None) -> Asked:
    """Change what is believed of a neighbour."""
    said = {"transit": transit, "public": public}
    body = json.dumps({field: list(names) for field, names in said.items() if names is not None}).encode()
    return Asked("PATCH", f"/v1/links/{quote(name, safe='')}", headers=_JSON, body=body)


def trust(origin: str, keys: str) -> Asked:
    """Pin the public keys of a broker, a JWK set as text."""
    return Asked("PUT", f"/v1/links/{quote(origin, safe='')}/keys", headers=_JSON, body=keys.encode())


def distrust(origin: str) -> Asked:
    """Remove the pinned keys of a broker."""
    return Asked("DELETE", f"/v1/links/{quote(origin, safe='')}/keys")


def remove(name: str) -> Asked:
    """Remove a link.

    >>> remove("city").path
    '/v1/links/city'
    """
    return Asked("DELETE", f"/v1/links/{quote(name, safe='')}")
