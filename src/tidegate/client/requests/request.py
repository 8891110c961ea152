"""One request of the API as a value, and the encodings that all requests share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from tidegate.errors import ClientError

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"
JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}

Since = str | datetime | timedelta
"""Where to start reading: `now`, `beginning`, a point in time, or a duration before now such as `10m`."""


@dataclass(frozen=True)
class ApiRequest:
    """One HTTP request to a gateway, without the URL and the credentials of the gateway."""

    method: str
    path: str
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    wait_s: float = 0.0
    """Time that the gateway may take for the answer, in addition to the client's timeout."""


def resource_path(collection: str, name: str, *subpaths: str) -> str:
    """Return the path of a resource, or of a part of it. The name is percent-encoded.

    >>> resource_path("services", "gps raw", "events")
    '/v1/services/gps%20raw/events'
    """
    return "/".join(["/v1", collection, quote(name, safe=""), *subpaths])


def service_path(name: str, *subpaths: str) -> str:
    """Return the path of a service, or of a part of it."""
    return resource_path("services", name, *subpaths)


def json_body(fields: Mapping[str, Any]) -> bytes:
    """Encode the body of a request. Raises ClientError if a value has no JSON form."""
    try:
        return json.dumps(dict(fields), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ClientError(f"{fields!r:.200} can't be written as JSON: {error}") from error


def header_value(name: str, value: str, *, is_secret: bool = False) -> str:
    """Return the value unchanged if it can be sent in a header.

    Raises ClientError otherwise. The message shows the value unless it is secret.
    """
    if not (value.isascii() and value.isprintable()):
        shown = "" if is_secret else f", not {value!r:.80}"
        raise ClientError(f"{name}: expected printable ASCII{shown}; pass it exactly as the gateway returned it")
    return value


def since_text(since: Since) -> str:
    """Encode a start position as the API's parameter `from`.

    Raises ClientError if a datetime has no time zone, and for a value of another type.

    >>> since_text(timedelta(minutes=10)), since_text("now")
    ('600.000s', 'now')
    """
    value: Any = since  # callers without a type checker may pass anything
    match value:
        case datetime():
            if value.tzinfo is None:
                raise ClientError(f"since: expected a datetime with a time zone, not {value.isoformat()}")
            return value.isoformat()
        case timedelta():
            return f"{value.total_seconds():.3f}s"
        case str():
            return value.strip() or "now"
    message = "since: expected a datetime, a timedelta, or text such as '10m', 'now' or 'beginning'"
    raise ClientError(f"{message}, not {value!r:.80}")


def param_list(params: Any) -> list[Any]:
    """Return the values of a filter's parameters as a list. Raises ClientError if they are not in a list or tuple.

    >>> param_list((60, "B17"))
    [60, 'B17']
    """
    if isinstance(params, list | tuple):
        return list(params)
    raise ClientError(f"params: expected a list of values such as [60], not {params!r:.80}")
