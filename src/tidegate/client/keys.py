"""What is asked of API keys, as values: no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from tidegate.client.http import Asked

_JSON = {"content-type": "application/json"}


def all_() -> Asked:
    """All keys."""
    return Asked("GET", "/v1/keys")


def create(
    name: str,
    role: str,
    services: Sequence[str] | None,
    expires: str | None,
    quotas: Mapping[str, float] | None,
) -> Asked:
    """Create a key."""
    said = {
        "name": name,
        "role": role,
        "services": None if services is None else list(services),
        "expires": expires,
        "quotas": None if quotas is None else dict(quotas),
    }
    return Asked("POST", "/v1/keys", headers=_JSON, body=json.dumps(said).encode())


def rotate(id_: str, overlap: str, expires: str | None) -> Asked:
    """Give a key a new secret."""
    said = {"overlap": overlap, "expires": expires}
    return Asked("POST", f"{_path(id_)}/rotate", headers=_JSON, body=json.dumps(said).encode())


def revoke(id_: str) -> Asked:
    """Revoke a key.

    >>> revoke("key_1").path
    '/v1/keys/key_1'
    """
    return Asked("DELETE", _path(id_))


def _path(id_: str) -> str:
    return f"/v1/keys/{quote(id_, safe='')}"
