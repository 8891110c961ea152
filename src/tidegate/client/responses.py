"""Reads responses of a gateway, and turns failures of HTTP into the client's errors. Does no I/O."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tidegate.client.errors import ConnectionLost, Refused, Unavailable, Unreachable
from tidegate.client.requests.request import SSE
from tidegate.errors import ClientError

# Status codes after which a retry may succeed. Every other 4xx or 5xx is permanent.
_RETRYABLE_STATUSES = (408, 425, 429, 500, 502, 503, 504)


def json_document(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of a response whose body has been read; `{}` for 204.

    Raises the error of `problem_error` if the status is not 2xx, and Refused if the body is not a JSON object.
    """
    if not response.is_success:
        raise problem_error(response)
    if response.status_code == 204:
        return {}
    try:
        document = json.loads(response.content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise Refused(f"{response.request.url} answered without a JSON object: is it a gateway?", response.status_code)
    return document


def problem_error(response: httpx.Response) -> ClientError:
    """Return the error for a response that is not a success and whose body has been read.

    The message is the `detail` of the problem document (RFC 9457), if there is one. The error is `Unavailable` if a
    retry may succeed, else `Refused`.
    """
    status = response.status_code
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict) or "detail" not in document:
        text = f"{response.request.url} answered {status} {response.reason_phrase}".rstrip()
        document = {}
    else:
        text = str(document["detail"])
    # The quota of filter bytes is a 429, but a retry with the same filter fails again.
    if status in _RETRYABLE_STATUSES and document.get("quota") != "filter_bytes":
        return Unavailable(text, status, document, _retry_after_s(response))
    return Refused(text, status, document)


def stream_error(response: httpx.Response) -> ClientError | None:
    """Return the error for a response that should be an event stream, or None if it is one.

    The body must have been read unless the status is 200.
    """
    if response.status_code != 200:
        return problem_error(response)
    content_type = response.headers.get("content-type", "none")
    if content_type.partition(";")[0].strip().lower() == SSE:
        return None
    text = f"{response.request.url} answered with content type {content_type}, not {SSE}: is it a gateway?"
    return Refused(text, response.status_code)


def transport_error(url: str, error: httpx.TransportError) -> ClientError:
    """Return the client's error for a failure of the connection to the gateway at `url`.

    `Unreachable` means that nothing was sent; after `ConnectionLost` the gateway may have handled the request.
    """
    reason = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        detail = reason.partition("certificate verify failed: ")[2] or reason
        return Unreachable(
            f"{url} shows a certificate that is not trusted: {detail}\n"
            "name the authority that issued it: Client(url, verify=PATH), --ca PATH or TIDEGATE_CA"
        )
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError | httpx.UnsupportedProtocol):
        return Unreachable(
            f"can't reach a gateway at {url}: {reason}\n"
            "start one with `tidegate up`, or name another by its URL: Client(url), --url or TIDEGATE_URL"
        )
    if isinstance(error, httpx.TimeoutException):
        return ConnectionLost(f"{url} has not answered in time")
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) and url.startswith("https:"):
        reason += "\nif you use a client certificate: a gateway that does not trust its authority ends the connection"
    return ConnectionLost(f"the connection to {url} was lost: {reason}")


def _retry_after_s(response: httpx.Response) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None
