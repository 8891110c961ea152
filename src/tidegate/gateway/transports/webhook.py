"""Messages to receivers over HTTP: signed, to public addresses, one request each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpcore
import httpx

from tidegate import __version__
from tidegate.delivery import signing
from tidegate.delivery.push.transport import Outcome, PendingEvent
from tidegate.errors import WebhookError
from tidegate.gateway.telemetry.tracing import Tracing, failed
from tidegate.gateway.transports.addresses import CheckedBackend, resolve
from tidegate.subscriptions import PushTarget, Subscription, Webhook

REFUSALS = frozenset({400, 406, 413, 415, 422})
"""What a receiver says of a message that it will never take. All else may be mended on its side."""
SHOWN = 200
"""Characters of an answer that an error shows."""
READ_BYTES = 16 * 1024
"""Of an answer: nothing in it matters, and it may never end."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """How messages are sent."""

    allow_private: bool = False
    """Also to addresses that are not public. A consumer could reach the operator's own network through it."""
    timeout_s: float = 10.0
    """For a whole request: a receiver takes a message first and works on it later."""
    origin: str = "tidegate"
    """Who asks, in the handshake."""


class WebhookTransport:
    """The push transport of webhooks: sends messages, and asks receivers whether they want any."""

    def __init__(
        self, settings: WebhookSettings, clock: Callable[[], float] = time.time, tracing: Tracing | None = None
    ) -> None:
        self._settings, self._clock, self._tracing = settings, clock, tracing
        self._made: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Let go of connections."""
        if self._made is not None:
            await self._made.aclose()

    async def validate(self, target: PushTarget, *, handshake: bool) -> None:
        """Raise `WebhookError` if messages must not be sent to a webhook's address, or the receiver does not agree."""
        await self._check_address(target.address)
        if handshake:
            await self._shake_hands(target.address)

    async def _check_address(self, url: str) -> None:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        await resolve(parts.hostname or "", port, allow_private=self._settings.allow_private)

    async def _shake_hands(self, url: str) -> None:
        """Ask a receiver for permission, as the CloudEvents webhook specification says."""
        wish = "a receiver agrees to OPTIONS with WebHook-Allowed-Origin (or create it with handshake: false)"
        origin = self._settings.origin
        try:
            status, headers, _ = await self._request("OPTIONS", url, {"webhook-request-origin": origin})
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise WebhookError(f"the handshake with {url} failed: {_told(error)}; {wish}") from error
        if not 200 <= status < 300:
            raise WebhookError(f"the handshake with {url} was answered with {status}; {wish}")
        allowed = headers.get("webhook-allowed-origin")
        if allowed is None:
            raise WebhookError(f"the handshake with {url} was answered without WebHook-Allowed-Origin; {wish}")
        if allowed.strip() not in ("*", origin):
            raise WebhookError(f"{url} allows the origin {allowed!r}, not {origin!r}; {wish}")

    async def send(self, subscription: Subscription, events: Sequence[PendingEvent]) -> Outcome:
        """Send events as one message."""
        webhook = subscription.deliver
        assert isinstance(webhook, Webhook)
        kind, body = content(subscription, webhook, events)
        id_ = signing.message_id(subscription.id, events[-1].cursor)
        headers = {"content-type": kind, **signing.headers(webhook.secrets, id_, int(self._clock()), body)}
        if self._tracing is None:
            return await self._post(webhook.url, headers, body)
        records = [each.record for each in events]
        with self._tracing.webhook(subscription.service, subscription.id, webhook.url, records, headers) as span:
            outcome = await self._post(webhook.url, headers, body)
            if outcome.kind != "taken":
                failed(span, outcome.detail)
            return outcome

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> Outcome:
        try:
            status, answered, text = await self._request("POST", url, headers, body)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, WebhookError) as error:
            return Outcome("failed", _told(error))
        return self._outcome(status, answered, text)

    def _outcome(self, status: int, headers: Mapping[str, str], text: str) -> Outcome:
        said = f"answered {status}" + (f": {text[:SHOWN]}" if text else "")
        if 200 <= status < 300:
            return Outcome("taken")
        if status == 410:
            return Outcome("gone", "the receiver says that it is gone (410)")
        if 300 <= status < 400:
            return Outcome("failed", f"{said} (redirects are not followed)")
        if status in REFUSALS:
            return Outcome("refused", said)
        after = headers.get("retry-after", "")
        return Outcome("failed", said, float(after) if after.isascii() and after.isdigit() else 0.0)

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], str]:
        async with asyncio.timeout(self._settings.timeout_s):
            async with self._client().stream(method, url, headers=dict(headers), content=body) as answer:
                read = b""
                async for part in answer.aiter_raw():
                    read += part
                    if len(read) >= READ_BYTES:
                        break
                return answer.status_code, answer.headers, read[: SHOWN * 4].decode("utf-8", "replace").strip()

    def _client(self) -> httpx.AsyncClient:
        if self._made is None:
            self._made = httpx.AsyncClient(
                transport=_Transport(CheckedBackend(allow_private=self._settings.allow_private)),
                timeout=self._settings.timeout_s,
                follow_redirects=False,
                trust_env=False,
                headers={"user-agent": f"tidegate/{__version__}"},
            )
        return self._made


class _Transport(httpx.AsyncHTTPTransport):
    """httpx over a pool of our own: it has no other way to say how connections are made."""

    def __init__(self, backend: httpcore.AsyncNetworkBackend) -> None:
        super().__init__()
        # No limit to connections: each push worker has one request at a time, and none waits for another's receiver.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=None,
            max_keepalive_connections=100,
            keepalive_expiry=30.0,
            network_backend=backend,
        )


def content(subscription: Subscription, webhook: Webhook, events: Sequence[PendingEvent]) -> tuple[str, bytes]:
    """The content type and the body of a message."""
    is_plain = subscription.format == "plain"
    if webhook.batch == 1 and len(events) == 1:
        return "application/json" if is_plain else "application/cloudevents+json", events[0].data
    body = b"[%s]" % b",".join(each.data for each in events)
    return "application/json" if is_plain else "application/cloudevents-batch+json", body


def _told(error: Exception) -> str:
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "no answer in time"
    return str(error) or type(error).__name__
