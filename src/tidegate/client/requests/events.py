"""Requests for the events of a service, and for publishing to a raw stream."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidegate.client.requests.request import (
    NDJSON,
    ApiRequest,
    Since,
    param_list,
    resource_path,
    service_path,
    since_text,
)
from tidegate.client.values import Format, HistoryFormat

if TYPE_CHECKING:
    from tidegate.filters import Filter

HISTORY_WAIT_S = 600.0
"""Longest pause in a history: the gateway sends nothing while a filter matches nothing."""


def event_params(
    filter_: str | Filter | None,
    params: Sequence[Any],
    select: str | Sequence[str] | None,
    format_: Format | HistoryFormat,
) -> list[tuple[str, str]]:
    """Return the query parameters that choose events and their format.

    >>> event_params("speed > %0", [60], ["vid", "speed"], "plain")
    [('filter', 'speed > %0'), ('param', '60'), ('select', 'vid,speed'), ('format', 'plain')]
    """
    query: list[tuple[str, str]] = []
    if filter_ is not None:
        query.append(("filter", str(filter_)))
    query += [("param", _param(value)) for value in param_list(params)]
    if select is not None:
        query.append(("select", select if isinstance(select, str) else ",".join(select)))
    return [*query, ("format", format_)]


def page(
    service: str,
    filter_: str | Filter | None,
    params: Sequence[Any],
    cursor: str | None,
    since: Since | None,
    latest: str | None,
    select: str | Sequence[str] | None,
    wait_s: float,
    limit: int,
    format_: Format,
    every: float | None,
    key: str | None,
) -> ApiRequest:
    """Get a page of events. The gateway waits up to `wait_s` seconds for the first event."""
    query = [*event_params(filter_, params, select, format_), ("max", str(limit))]
    if cursor is not None:
        query.append(("cursor", cursor))
    if since is not None:
        query.append(("from", since_text(since)))
    if latest is not None:
        query.append(("latest", latest))
    if every is not None:
        query.append(("every", f"{every:g}s"))
    if key is not None:
        query.append(("key", key))
    if wait_s:
        query.append(("wait", f"{wait_s:.3f}s"))
    return ApiRequest("GET", service_path(service, "events"), query, wait_s=wait_s)


def history(
    service: str,
    filter_: str | Filter | None,
    params: Sequence[Any],
    since: Since | None,
    until: Since | None,
    select: str | Sequence[str] | None,
    format_: HistoryFormat,
) -> ApiRequest:
    """Get the events of a span of time as one Arrow stream or Parquet file.

    >>> history("gps", None, (), "1h", None, ["vid"], "arrow").params
    [('select', 'vid'), ('format', 'arrow'), ('from', '1h')]
    """
    query = event_params(filter_, params, select, format_)
    if since is not None:
        query.append(("from", since_text(since)))
    if until is not None:
        query.append(("to", since_text(until)))
    return ApiRequest("GET", service_path(service, "events"), query, wait_s=HISTORY_WAIT_S)


def publish(stream: str, lines: Sequence[bytes], mode: str) -> ApiRequest:
    """Publish a batch of events, one line of JSON per event, to a raw stream."""
    path, body = resource_path("streams", stream, "events"), b"\n".join([*lines, b""])
    return ApiRequest("POST", path, [("mode", mode)], {"content-type": NDJSON}, body)


def _param(value: Any) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case datetime():
            return value.isoformat()
        case _:
            return str(value)
