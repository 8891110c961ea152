"""Webhook transport: sends signed HTTP requests to public addresses, one per message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpcore
import httpx

from tidegate import __version__
from tidegate.delivery import signing
from tidegate.delivery.push.transport import Outcome, PendingEvent
from tidegate.errors import WebhookError
from tidegate.gateway.telemetry.tracing import Tracing, failed
from tidegate.gateway.transports.addresses import CheckedBackend, resolve
from tidegate.subscriptions import PushTarget, SubscriptionRecord, Webhook

if TYPE_CHECKING:
    from tidegate.gateway.transports.push import TransportRequest

REFUSALS = frozenset({400, 406, 413, 415, 422})
"""Status codes that refuse a message for good. Other errors may be temporary, so the message is sent again."""
MAX_SHOWN = 200
"""Characters of a response that an error message shows."""
MAX_RESPONSE_BYTES = 16 * 1024
"""Bytes of a response that are read. Its content is only used in error messages, and it may never end."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Settings of webhook requests."""

    allow_private: bool = False
    """Allow addresses that are not public. A consumer can then reach the operator's own network."""
    timeout_s: float = 10.0
    """Timeout of a whole request: a receiver should accept a message first and process it later."""
    origin: str = "tidegate"
    """The value of `WebHook-Request-Origin` in the handshake."""


class WebhookTransport:
    """The push transport of webhooks: sends messages, and does the handshake. Runs on the event loop."""

    def __init__(
        self, settings: WebhookSettings, clock: Callable[[], float] = time.time, tracing: Tracing | None = None
    ) -> None:
        self._settings, self._clock, self._tracing = settings, clock, tracing
        self._created: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._created is not None:
            await self._created.aclose()

    async def validate(self, target: PushTarget, *, handshake: bool) -> None:
        """Raise `WebhookError` if messages must not be sent to a webhook's address, or the receiver does not agree."""
        await self._check_address(target.address)
        if handshake:
            await self._shake_hands(target.address)

    async def _check_address(self, url: str) -> None:
        """Raise a `WebhookError` if the host of a URL can't be resolved, or has an address that is not public."""
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        await resolve(parts.hostname or "", port, allow_private=self._settings.allow_private)

    async def _shake_hands(self, url: str) -> None:
        """Do the handshake of CloudEvents webhooks. Raises a `WebhookError` if the receiver does not agree."""
        hint = "a receiver agrees to OPTIONS with WebHook-Allowed-Origin (or create it with handshake: false)"
        origin = self._settings.origin
        try:
            status, headers, _ = await self._request("OPTIONS", url, {"webhook-request-origin": origin})
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise WebhookError(f"the handshake with {url} failed: {_reason(error)}; {hint}") from error
        if not 200 <= status < 300:
            raise WebhookError(f"the handshake with {url} was answered with {status}; {hint}")
        allowed = headers.get("webhook-allowed-origin")
        if allowed is None:
            raise WebhookError(f"the handshake with {url} was answered without WebHook-Allowed-Origin; {hint}")
        if allowed.strip() not in ("*", origin):
            raise WebhookError(f"{url} allows the origin {allowed!r}, not {origin!r}; {hint}")

    async def send(self, subscription: SubscriptionRecord, events: Sequence[PendingEvent]) -> Outcome:
        """Send events as one message. Returns the outcome; network errors are an outcome as well."""
        webhook = subscription.deliver
        assert isinstance(webhook, Webhook)
        kind, body = content(subscription, webhook, events)
        id_ = signing.message_id(subscription.id, [each.record for each in events])
        headers = {"content-type": kind, **signing.headers(webhook.secrets, id_, int(self._clock()), body)}
        if self._tracing is None:
            return await self._post(webhook.url, headers, body)
        records = [event.record for event in events]
        with self._tracing.webhook(subscription.service, subscription.id, webhook.url, records, headers) as span:
            outcome = await self._post(webhook.url, headers, body)
            if outcome.kind != "taken":
                failed(span, outcome.detail)
            return outcome

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> Outcome:
        try:
            status, response_headers, text = await self._request("POST", url, headers, body)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, WebhookError) as error:
            return Outcome("failed", _reason(error))
        return self._outcome(status, response_headers, text)

    def _outcome(self, status: int, headers: Mapping[str, str], text: str) -> Outcome:
        detail = f"answered {status}" + (f": {text[:MAX_SHOWN]}" if text else "")
        if 200 <= status < 300:
            return Outcome("taken")
        if status == 410:
            return Outcome("gone", "the receiver says that it is gone (410)")
        if 300 <= status < 400:
            return Outcome("failed", f"{detail} (redirects are not followed)")
        if status in REFUSALS:
            return Outcome("refused", detail)
        after = headers.get("retry-after", "")
        return Outcome("failed", detail, float(after) if after.isascii() and after.isdigit() else 0.0)

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], str]:
        async with asyncio.timeout(self._settings.timeout_s):
            async with self._client().stream(method, url, headers=dict(headers), content=body) as response:
                read = b""
                async for part in response.aiter_raw():
                    read += part
                    if len(read) >= MAX_RESPONSE_BYTES:
                        break
                text = read[: MAX_SHOWN * 4].decode("utf-8", "replace").strip()
                return response.status_code, response.headers, text

    def _client(self) -> httpx.AsyncClient:
        if self._created is None:
            self._created = httpx.AsyncClient(
                transport=_Transport(CheckedBackend(allow_private=self._settings.allow_private)),
                timeout=self._settings.timeout_s,
                follow_redirects=False,
                trust_env=False,
                headers={"user-agent": f"tidegate/{__version__}"},
            )
        return self._created


def make_transport(request: TransportRequest) -> WebhookTransport:
    """Build the transport of webhooks; see `push.TransportFactory`."""
    return WebhookTransport(request.webhooks, tracing=request.tracing)


class _Transport(httpx.AsyncHTTPTransport):
    """An httpx transport with its own connection pool: httpx has no public option for the network backend."""

    def __init__(self, backend: httpcore.AsyncNetworkBackend) -> None:
        super().__init__()
        # No connection limit: each push worker has at most one open request, and must not wait for other receivers.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=None,
            max_keepalive_connections=100,
            keepalive_expiry=30.0,
            network_backend=backend,
        )


def content(subscription: SubscriptionRecord, webhook: Webhook, events: Sequence[PendingEvent]) -> tuple[str, bytes]:
    """Return the content type and the body of a message."""
    is_plain = subscription.format == "plain"
    if webhook.batch == 1 and len(events) == 1:
        return "application/json" if is_plain else "application/cloudevents+json", events[0].data
    body = b"[%s]" % b",".join(event.data for event in events)
    return "application/json" if is_plain else "application/cloudevents-batch+json", body


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "no answer in time"
    return str(error) or type(error).__name__
