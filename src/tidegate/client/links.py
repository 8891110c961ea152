"""What is asked of links between brokers, as values: no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote

from tidegate.client.http import Asked


def all_() -> Asked:
    """All links."""
    return Asked("GET", "/v1/links")


def add(name: str, url: str | None, secret: str | None, services: Sequence[str] | None) -> Asked:
    """Link a broker to another."""
    said = {"name": name, "url": url, "secret": secret, "services": None if services is None else list(services)}
    return Asked("POST", "/v1/links", headers={"content-type": "application/json"}, body=json.dumps(said).encode())


def remove(name: str) -> Asked:
    """Remove a link.

    >>> remove("city").path
    '/v1/links/city'
    """
    return Asked("DELETE", f"/v1/links/{quote(name, safe='')}")
