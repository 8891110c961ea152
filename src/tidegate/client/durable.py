"""What is asked of durable subscriptions, as values: no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from tidegate.client.http import Asked, Since, service_path, since_text
from tidegate.client.values import Format
from tidegate.errors import ClientError

if TYPE_CHECKING:
    from tidegate.filters import Filter

_JSON = {"content-type": "application/json"}


def path(id_: str, *more: str) -> str:
    """The path of a subscription, or of something of it.

    >>> path("sub_1", "events")
    '/v1/subscriptions/sub_1/events'
    """
    return "/".join(["/v1/subscriptions", quote(id_, safe=""), *more])


def make(
    service: str,
    filter_: str | Filter | None,
    params: Sequence[Any],
    webhook: str | Mapping[str, Any] | None,
    cursor: str | None,
    since: Since | None,
    select: Sequence[str] | None,
    format_: Format,
    every: float | None,
    key: str | None,
    idle: float | None,
    description: str,
) -> Asked:
    """Make one."""
    said: dict[str, Any] = {
        "filter": None if filter_ is None else str(filter_),
        "params": list(params) or None,
        "deliver": None if webhook is None else deliver(webhook),
        "select": None if select is None else _names(select),
        "format": format_,
        "every": every,
        "key": key,
        "idle": idle,
        "description": description or None,
        "cursor": cursor,
        "from": None if since is None else since_text(since),
    }
    told = {name: value for name, value in said.items() if value is not None}
    return Asked("POST", service_path(service, "subscriptions"), headers=_JSON, body=_written(told))


def deliver(webhook: str | Mapping[str, Any]) -> dict[str, Any]:
    """Deliver by webhook: to a URL, or as a document says."""
    return {"webhook": {"url": webhook} if isinstance(webhook, str) else dict(webhook)}


def change(id_: str, version: int | None, fields: Mapping[str, Any]) -> Asked:
    """Change the fields that are given; None is a field's default."""
    said = dict(fields)
    if "webhook" in said:
        webhook = said.pop("webhook")
        said["deliver"] = "pull" if webhook is None else deliver(webhook)
    if said.get("filter") is not None:
        said["filter"] = str(said["filter"])
    if said.get("params") is not None:
        said["params"] = list(said["params"])
    if said.get("select") is not None:
        said["select"] = _names(said["select"])
    headers = _JSON if version is None else {**_JSON, "if-match": f'"{version}"'}
    return Asked("PATCH", path(id_), headers=headers, body=_written(said))


def remove(id_: str) -> Asked:
    """Remove one."""
    return Asked("DELETE", path(id_))


def acknowledge(id_: str, cursor: str) -> Asked:
    """Say what was dealt with."""
    return Asked("POST", path(id_, "ack"), headers=_JSON, body=_written({"cursor": cursor}))


def adopt(id_: str, owner: str | None) -> Asked:
    """Make the caller, or an API key by its id, the owner."""
    return Asked("POST", path(id_, "adopt"), headers=_JSON, body=_written({"owner": owner}))


def explain(id_: str, event: Mapping[str, Any] | str | None) -> Asked:
    """What the filter means, and what it makes of an event: its attributes, or the id of one in the stream."""
    if event is None:
        return Asked("GET", path(id_, "explain"))
    said = event if isinstance(event, str) else _written(dict(event)).decode()
    return Asked("GET", path(id_, "explain"), [("event", said)])


def dead_letters(id_: str, after: int, most: int) -> Asked:
    """What could not be delivered, the oldest first."""
    return Asked("GET", path(id_, "dead-letters"), [("after", str(after)), ("max", str(most))])


def redeliver(id_: str, ids: Sequence[int] | Literal["all"]) -> Asked:
    """Send dead letters once more."""
    said = ids if isinstance(ids, str) else list(ids)
    return Asked("POST", path(id_, "dead-letters", "redeliver"), headers=_JSON, body=_written({"ids": said}))


def _names(select: str | Sequence[str]) -> list[str]:
    return [each.strip() for each in select.split(",")] if isinstance(select, str) else list(select)


def _written(said: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(said, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ClientError(f"{said!r:.200} can't be written as JSON: {error}") from error
