"""The settings of a gateway, which are read from the `access`, `limits` and `tls` sections of a profile."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tidegate.gateway.auth.certificates import CertificateRule

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448"),
)
"""Signature algorithms of tokens. Only asymmetric ones: with a shared secret the gateway could forge tokens."""

WEBHOOK_LIFETIME_S = 30 * 86_400.0
"""How long a webhook is delivered before its owner, who has no API key, has to renew it."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The issuer whose tokens are accepted, and the claims that are used."""

    issuer: str
    """The exact value of `iss`."""
    audience: str
    """The value that `aud` must contain, so that tokens for other applications are refused."""
    jwks_url: str | None = None
    """The URL of the issuer's keys; None: the one in its `.well-known/openid-configuration`."""
    roles_claim: str = "roles"
    """The claim with roles; `realm_access.roles` is a nested claim."""
    services_claim: str | None = None
    """The claim with the services that a token is valid for; None: every token is valid for all."""
    algorithms: tuple[str, ...] = ALGORITHMS
    leeway_s: int = 60
    """How far the clocks of issuer and gateway may differ."""
    fresh_s: float = 600.0
    """How long keys are used before they are fetched again."""
    stale_s: float = 3600.0
    """How long keys are used if the issuer can't be reached, so that a short outage locks no caller out."""
    pause_s: float = 10.0
    """The shortest time between two fetches of keys, so that tokens with unknown keys do not overload the issuer."""
    timeout_s: float = 5.0
    webhook_lifetime_s: float | None = WEBHOOK_LIFETIME_S
    """How long a webhook is delivered with the rights in its owner's token; None: until the token expires."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """A separate port for metrics, which needs no key. `/metrics` of the gateway stays available."""

    port: int
    host: str = "127.0.0.1"
    """Only this machine can reach the default. Protect any other address with a firewall."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits of one caller at all gateways that share a registry; None: no limit. A key may have its own."""

    connections: int | None = 20_000
    """Concurrent requests and open WebSockets. The default exceeds what the ports of one machine allow."""
    subscriptions: int | None = 100_000
    """Subscriptions by SSE and WebSocket together; also an upper limit of durable ones."""
    durable: int | None = 10_000
    """Durable subscriptions. Each is a row that every gateway holds in memory."""
    events: float | None = None
    """Events per second into raw streams."""
    deliveries: float | None = None
    """Delivered events per second, over all transports."""
    requests: float | None = None
    """Requests per second."""
    filter_bytes: int | None = 1024 * 1024
    """Size of a filter's text. The default is the size of a WebSocket message."""


RATES = ("events", "deliveries", "requests")
"""The quotas per second, which may be fractions."""


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """How callers authenticate, and what they may use."""

    oidc: OidcSettings | None = None
    """The issuer of tokens that are accepted besides API keys; None: there is none."""
    required: bool | None = None
    """Whether callers must authenticate; None: only if other machines can reach the gateway, or tokens or client
    certificates are configured."""

    quotas: Quotas = field(default_factory=Quotas)
    certificates: tuple[CertificateRule, ...] = ()
    """The client certificates that are accepted besides API keys and tokens."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose `X-Forwarded-For` is trusted. It is ignored from all other peers."""

    def requires(self, *, is_loopback: bool) -> bool:
        """True if callers must authenticate. `is_loopback`: only this machine can reach the gateway."""
        if self.required is not None:
            return self.required
        return not is_loopback or self.oidc is not None or bool(self.certificates)


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Limits of one peer, whether it has authenticated or not: the `limits` of a profile."""

    connections: int = 50_000
    """Open connections; fewer if the process may open fewer files. Beyond that, a new connection replaces the oldest
    one without an authorised request; if there is none, it is refused with 503."""
    connections_per_address: int = 5_000
    """Open connections of one address without an authorised request. More than the backlog of the listening socket
    (4,096), so that a burst of valid connections is not cut off."""
    head_timeout_s: float = 10.0
    """Timeout of the request line and headers, from the first byte or the start of the connection."""
    body_timeout_s: float = 30.0
    """Timeout of a body; every 1,000 received bytes extend it by a second."""
    idle_timeout_s: float = 5.0
    """Timeout between two requests on a connection."""
    headers: int = 200
    """Headers of one request."""
    events: int = 100_000
    """Events of one request, in any format."""
    decoded_bytes: int = 64 * 1024 * 1024
    """Size of an Arrow body as JSON events. Four times the largest body: JSON repeats names, Arrow does not."""
    heavy_calls: int = 2
    """Heavy calls of one caller at a time: definitions, long filters, explain, backtest, discover, semantics, webhook
    targets."""
    heavy_waiting: int = 32
    """Heavy calls of one caller that may wait; more are refused with 429."""
    sign_in_failures: int = 30
    """Failed sign-ins of one address per minute; more are answered with 429. A valid key is always accepted."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS files of a gateway, all in PEM."""

    cert: Path
    """The certificate, followed by the intermediate ones."""
    key: Path
    client_ca: Path | None = None
    """Authorities whose client certificates are trusted; None: clients are not asked for a certificate."""
    client_auth: Literal["optional", "required"] = "optional"
    crl: Path | None = None
    """The list of revoked client certificates."""

    @property
    def files(self) -> tuple[Path, ...]:
        """All files, which `ServerTls` watches for changes."""
        return tuple(file for file in (self.cert, self.key, self.client_ca, self.crl) if file is not None)
