"""Requests about API keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.client.requests.request import JSON_HEADERS, ApiRequest, json_body, resource_path


def list_all() -> ApiRequest:
    """List all keys."""
    return ApiRequest("GET", "/v1/keys")


def create(
    name: str,
    role: str,
    services: Sequence[str] | None,
    expires: str | None,
    quotas: Mapping[str, float] | None,
) -> ApiRequest:
    """Create a key."""
    fields = {
        "name": name,
        "role": role,
        "services": None if services is None else list(services),
        "expires": expires,
        "quotas": None if quotas is None else dict(quotas),
    }
    return ApiRequest("POST", "/v1/keys", headers=JSON_HEADERS, body=json_body(fields))


def rotate(id_: str, overlap: str, expires: str | None) -> ApiRequest:
    """Replace the secret of a key."""
    body = json_body({"overlap": overlap, "expires": expires})
    return ApiRequest("POST", resource_path("keys", id_, "rotate"), headers=JSON_HEADERS, body=body)


def revoke(id_: str) -> ApiRequest:
    """Revoke a key.

    >>> revoke("key_1").path
    '/v1/keys/key_1'
    """
    return ApiRequest("DELETE", resource_path("keys", id_))
