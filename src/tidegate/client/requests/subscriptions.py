"""Requests about durable subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tidegate.client.requests.request import (
    JSON_HEADERS,
    ApiRequest,
    Since,
    json_body,
    param_list,
    resource_path,
    service_path,
    since_text,
)
from tidegate.client.values import Format

if TYPE_CHECKING:
    from tidegate.filters import Filter


def path(id_: str, *subpaths: str) -> str:
    """Return the path of a subscription, or of a part of it.

    >>> path("sub_1", "events")
    '/v1/subscriptions/sub_1/events'
    """
    return resource_path("subscriptions", id_, *subpaths)


def list_of(service: str) -> ApiRequest:
    """List the durable subscriptions of a service."""
    return ApiRequest("GET", service_path(service, "subscriptions"))


def get(id_: str) -> ApiRequest:
    """Get one subscription."""
    return ApiRequest("GET", path(id_))


def create(
    service: str,
    filter_: str | Filter | None,
    params: Sequence[Any],
    webhook: str | Mapping[str, Any] | None,
    deliver: str | Mapping[str, Any] | None,
    cursor: str | None,
    since: Since | None,
    select: str | Sequence[str] | None,
    format_: Format,
    every: float | None,
    key: str | None,
    idle: float | None,
    description: str,
) -> ApiRequest:
    """Create a subscription. Fields without a value are left out, so that the gateway's defaults apply.

    Raises `ValueError` for a webhook together with another way of delivery.
    """
    if webhook is not None and deliver is not None:
        raise ValueError("expected webhook or deliver, not both")
    fields: dict[str, Any] = {
        "filter": None if filter_ is None else str(filter_),
        "params": param_list(params) or None,
        "deliver": deliver if webhook is None else _deliver(webhook),
        "select": None if select is None else _names(select),
        "format": format_,
        "every": every,
        "key": key,
        "idle": idle,
        "description": description or None,
        "cursor": cursor,
        "from": None if since is None else since_text(since),
    }
    body = json_body({name: value for name, value in fields.items() if value is not None})
    return ApiRequest("POST", service_path(service, "subscriptions"), headers=JSON_HEADERS, body=body)


def change(id_: str, version: int | None, changes: Mapping[str, Any]) -> ApiRequest:
    """Change some fields; None resets a field to its default.

    With a version the gateway refuses the change if the subscription has another version.
    """
    fields = dict(changes)
    if "webhook" in fields:
        webhook = fields.pop("webhook")
        fields["deliver"] = "pull" if webhook is None else _deliver(webhook)
    if fields.get("filter") is not None:
        fields["filter"] = str(fields["filter"])
    if fields.get("params") is not None:
        fields["params"] = param_list(fields["params"])
    if fields.get("select") is not None:
        fields["select"] = _names(fields["select"])
    headers = JSON_HEADERS if version is None else {**JSON_HEADERS, "if-match": f'"{version}"'}
    return ApiRequest("PATCH", path(id_), headers=headers, body=json_body(fields))


def delete(id_: str) -> ApiRequest:
    """Delete a subscription."""
    return ApiRequest("DELETE", path(id_))


def acknowledge(id_: str, cursor: str) -> ApiRequest:
    """Move the cursor of a subscription: all events up to it have been processed."""
    return ApiRequest("POST", path(id_, "ack"), headers=JSON_HEADERS, body=json_body({"cursor": cursor}))


def enable(id_: str) -> ApiRequest:
    """Resume the delivery of a disabled subscription."""
    return ApiRequest("POST", path(id_, "enable"))


def renew(id_: str) -> ApiRequest:
    """Continue a webhook for another period, with the rights of the caller's current token."""
    return ApiRequest("POST", path(id_, "renew"))


def adopt(id_: str, owner: str | None) -> ApiRequest:
    """Make an API key, or the caller if `owner` is None, the owner of a subscription."""
    return ApiRequest("POST", path(id_, "adopt"), headers=JSON_HEADERS, body=json_body({"owner": owner}))


def explain(id_: str, event: Mapping[str, Any] | str | None) -> ApiRequest:
    """Explain the filter, and its result for an event: a mapping of attributes, or the id of an event in the stream."""
    if event is None:
        return ApiRequest("GET", path(id_, "explain"))
    text = event if isinstance(event, str) else json_body(dict(event)).decode()
    return ApiRequest("GET", path(id_, "explain"), [("event", text)])


def dead_letters(id_: str, after: int, limit: int) -> ApiRequest:
    """List dead letters with an id greater than `after`, the oldest first."""
    return ApiRequest("GET", path(id_, "dead-letters"), [("after", str(after)), ("max", str(limit))])


def redeliver(id_: str, ids: Sequence[int] | Literal["all"]) -> ApiRequest:
    """Send dead letters again."""
    body = json_body({"ids": ids if isinstance(ids, str) else list(ids)})
    return ApiRequest("POST", path(id_, "dead-letters", "redeliver"), headers=JSON_HEADERS, body=body)


def _deliver(webhook: str | Mapping[str, Any]) -> dict[str, Any]:
    return {"webhook": {"url": webhook} if isinstance(webhook, str) else dict(webhook)}


def _names(select: str | Sequence[str]) -> list[str]:
    return [name.strip() for name in select.split(",")] if isinstance(select, str) else list(select)
