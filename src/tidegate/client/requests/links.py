"""Requests about links between brokers, and about the keys of their origins."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.client.requests.request import JSON_HEADERS, ApiRequest, json_body, resource_path


def list_all() -> ApiRequest:
    """List all links."""
    return ApiRequest("GET", "/v1/links")


def add(
    name: str,
    url: str | None,
    secret: str | None,
    services: Sequence[str] | None,
    transit: Sequence[str],
    public: Sequence[str],
) -> ApiRequest:
    """Add a link to another broker."""
    fields = {
        "name": name,
        "url": url,
        "secret": secret,
        "services": None if services is None else list(services),
        "transit": list(transit),
        "public": list(public),
    }
    return ApiRequest("POST", "/v1/links", headers=JSON_HEADERS, body=json_body(fields))


def change(name: str, transit: Sequence[str] | None, public: Sequence[str] | None) -> ApiRequest:
    """Change the trust settings of a link. A setting that is None is not sent, so it does not change."""
    settings = {"transit": transit, "public": public}
    body = json_body({field: list(names) for field, names in settings.items() if names is not None})
    return ApiRequest("PATCH", resource_path("links", name), headers=JSON_HEADERS, body=body)


def remove(name: str) -> ApiRequest:
    """Remove a link.

    >>> remove("city").path
    '/v1/links/city'
    """
    return ApiRequest("DELETE", resource_path("links", name))


def trust(origin: str, keys: str) -> ApiRequest:
    """Pin the public keys of a broker, a JWK set as text."""
    return ApiRequest("PUT", resource_path("links", origin, "keys"), headers=JSON_HEADERS, body=keys.encode())


def distrust(origin: str) -> ApiRequest:
    """Remove the pinned keys of a broker."""
    return ApiRequest("DELETE", resource_path("links", origin, "keys"))
