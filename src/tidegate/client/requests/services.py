"""Requests about services: list, discover, apply, quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.client.requests.request import JSON_HEADERS, SSE, ApiRequest, Since, json_body, service_path, since_text

APPLY_WAIT_S = 30.0
"""Time that an apply may take in addition to the timeout: it may wait for another apply, and import functions."""


def list_all() -> ApiRequest:
    """List all services."""
    return ApiRequest("GET", "/v1/services")


def get(name: str) -> ApiRequest:
    """Get one service."""
    return ApiRequest("GET", service_path(name))


def status(name: str) -> ApiRequest:
    """Get the running state of a service."""
    return ApiRequest("GET", service_path(name, "status"))


def apply(files: str | Mapping[str, str], **flags: bool) -> ApiRequest:
    """Apply service files. Only flags that are True are sent.

    >>> apply("streams: {}", force=True, prune=False).params
    [('force', 'true')]
    """
    params = [(name, "true") for name, is_set in flags.items() if is_set]
    body = files.encode() if isinstance(files, str) else json_body({"files": dict(files)})
    headers = {"content-type": "application/yaml"}
    return ApiRequest("POST", "/v1/apply", params, headers, body, wait_s=APPLY_WAIT_S)


def discover(query: Mapping[str, Any], *, watch: bool = False, used: str | None = None) -> ApiRequest:
    """Search for services. With `watch` the answer is a stream of server-sent events.

    >>> discover({"attributes": ["speed"]}, watch=True).params
    [('watch', 'true')]
    """
    params = [*([("watch", "true")] if watch else []), *([] if used is None else [("used", used)])]
    headers = {**JSON_HEADERS, **({"accept": SSE} if watch else {})}
    return ApiRequest("POST", "/v1/discover", params, headers, json_body(query))


def quarantine_page(
    service: str, rule: str | None, since: Since | None, replayed: bool | None, cursor: str | None, limit: int
) -> ApiRequest:
    """Get a page of the quarantine of a service."""
    params = [("max", str(limit))]
    if rule is not None:
        params.append(("rule", rule))
    if since is not None:
        params.append(("from", since_text(since)))
    if replayed is not None:
        params.append(("replayed", str(replayed).lower()))
    if cursor is not None:
        params.append(("cursor", cursor))
    return ApiRequest("GET", service_path(service, "quarantine"), params)


def replay(service: str, selection: Mapping[str, Any], mode: str) -> ApiRequest:
    """Ingest quarantined events again."""
    path = service_path(service, "quarantine", "replay")
    return ApiRequest("POST", path, [("mode", mode)], JSON_HEADERS, json_body(selection))
