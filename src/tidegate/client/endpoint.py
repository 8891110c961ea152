"""The URL, credentials and TLS settings of a gateway, checked before the first request."""

from __future__ import annotations

import re
import ssl

import httpx

from tidegate.client.requests.request import header_value
from tidegate.client.tls import Cert, Verify, client_context
from tidegate.errors import ClientError

DEFAULT_URL = "http://127.0.0.1:8080"
_MAX_PORT = 65_535


def checked_url(url: str) -> str:
    """Return the base URL of a gateway, without a trailing slash or `/v1`.

    Raises ClientError if it is not an http or https URL.

    >>> checked_url("http://127.0.0.1:8080/")
    'http://127.0.0.1:8080'
    """
    bad_url = ClientError(f"expected the URL of a gateway, such as {DEFAULT_URL}, not {url!r}")
    if re.match(r"https?://[^/]", url) is None:
        raise bad_url
    try:
        port = httpx.URL(url).port
    except httpx.InvalidURL as error:
        raise bad_url from error
    if port is not None and port > _MAX_PORT:
        raise bad_url
    return url.rstrip("/").removesuffix("/v1")


def auth_headers(key: str | None) -> dict[str, str]:
    """Return the headers that carry an API key or token. Raises ClientError if it can't be sent in a header."""
    return {} if key is None else {"authorization": f"Bearer {header_value('key', key, is_secret=True)}"}


def tls_verification(url: str, verify: Verify, cert: Cert) -> ssl.SSLContext | bool:
    """Return the `verify` argument of httpx for a gateway. No file is read if the URL is not https.

    >>> tls_verification("http://127.0.0.1:8080", "no-such-file.pem", None)
    True
    """
    return client_context(verify, cert) if url.startswith("https:") else True
