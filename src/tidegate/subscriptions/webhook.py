"""The webhook of a subscription: an HTTP endpoint that gets signed messages."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tidegate.errors import did_you_mean
from tidegate.subscriptions.push_target import BadValue, PushTarget

MAX_BATCH = 1_000
"""Maximum number of events in one request: the receiver reads the body as a whole."""
MAX_URL = 2_000
"""Maximum number of characters of a URL."""
MAX_SECRETS = 4
"""Maximum number of secrets that sign at the same time: each makes the header of every request longer."""

_WHOLE = {"type": "integer", "minimum": 0}


@dataclass(frozen=True, slots=True)
class Webhook(PushTarget):
    """The gateway sends events to a URL, signed as Standard Webhooks says."""

    kind: ClassVar[str] = "webhook"
    fields: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "url": {"type": "string", "maxLength": MAX_URL, "description": "http or https."},
        "batch": {"type": "integer", "minimum": 1, "maximum": MAX_BATCH, "default": 1},
        "handshake": {"type": "boolean", "default": True},
    }
    required_fields: ClassVar[tuple[str, ...]] = ("url",)
    shown_fields: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "url": {"type": "string"},
        "batch": _WHOLE,
        "secrets": _WHOLE,
    }

    url: str
    secrets: tuple[str, ...] = ()
    """Standard Webhooks secrets (`whsec_...`), the newest first: while one is replaced, all of them sign."""
    batch: int = 1
    """Maximum number of events in one request; more than one makes a CloudEvents batch."""

    @property
    def address(self) -> str:
        """The URL."""
        return self.url

    def with_secrets(self, secrets: tuple[str, ...]) -> Webhook:
        """Return the webhook with other secrets."""
        return replace(self, secrets=secrets)

    @classmethod
    def parse(cls, value: Any, previous: PushTarget | None) -> Webhook:
        """Return the webhook that a document describes, with a new secret unless `previous` has some.

        Raises `BadValue`.
        """
        if not isinstance(value, Mapping):
            raise BadValue(f"expected an object with a url, not {value!r:.60}")
        for name in value:
            if name not in cls.fields:
                hint = did_you_mean(name, cls.fields) or f"; expected {', '.join(cls.fields)}"
                raise BadValue(f"unknown field {name!r}{hint}", f".{name}")
        old = previous if isinstance(previous, Webhook) else None
        batch = value.get("batch", old.batch if old else 1)
        if type(batch) is not int or not 1 <= batch <= MAX_BATCH:
            raise BadValue(f"expected a whole number from 1 to {MAX_BATCH:,}, not {batch!r:.60}", ".batch")
        if not isinstance(value.get("handshake", True), bool):
            raise BadValue(f"expected true or false, not {value['handshake']!r:.60}", ".handshake")
        url = _url(value.get("url", old.url if old else None))
        return cls(url, old.secrets if old else (new_secret(),), batch)

    @classmethod
    def shorthand(cls, value: Any) -> Mapping[str, Any] | None:
        """Return the fields for a URL alone, or for an object with a URL and without a kind.

        >>> Webhook.shorthand("https://example.com/in")
        {'url': 'https://example.com/in'}
        """
        match value:
            case str() if value.startswith(("http://", "https://")):
                return {"url": value}
            case {"webhook": str() as url} if len(value) == 1 and "://" in url:
                return {"url": url}
            case {"url": _, **rest} if "webhook" not in rest and not isinstance(rest.get("type"), str):
                return dict(value)
        return None

    def describe(self, *, show_secret: bool = False, show_address: bool = True) -> dict[str, Any]:
        """Return the webhook as JSON values for the API."""
        url = self.url if show_address else f"{urlsplit(self.url).scheme}://…"
        described: dict[str, Any] = {"url": url, "batch": self.batch, "secrets": len(self.secrets)}
        if show_secret:
            described["secret"] = self.secrets[0]
        return described


def new_secret() -> str:
    """Return a new secret for Standard Webhooks.

    >>> new_secret().startswith("whsec_")
    True
    """
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def _url(value: Any) -> str:
    path = ".url"
    if not isinstance(value, str) or len(value) > MAX_URL or not value.isascii() or not value.isprintable():
        raise BadValue(f"expected an address such as https://example.com/events, not {value!r:.60}", path)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise BadValue(f"{value!r:.60} is no address: {error}", path) from error
    if parts.scheme not in ("http", "https"):
        raise BadValue(f"expected http or https, not {parts.scheme or value!r:.60}", path)
    if not parts.hostname or port == 0 or " " in value:
        raise BadValue(f"expected a host, as in https://example.com/events, not {value!r:.60}", path)
    if parts.username is not None or parts.password is not None:
        raise BadValue("expected no user or password in the address: requests are signed", path)
    if parts.fragment:
        raise BadValue("expected no #fragment: it is never sent", path)
    return value
