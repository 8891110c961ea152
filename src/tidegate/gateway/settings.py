"""What an operator sets of a gateway: values that a profile's `access` and `limits` are read into."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tidegate.gateway.certificates import CertificateRule

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448"),
)
"""How tokens may be signed: with a key that the issuer keeps for itself. Never by a secret that we would hold too."""

WEBHOOK_LIFETIME_S = 30 * 86_400.0
"""How long a webhook is delivered before its owner, who has no API key, has to renew it."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Whose tokens are believed, and what is read in them."""

    issuer: str
    """As `iss` has it, letter by letter."""
    audience: str
    """What `aud` must hold: a token that was made for another is not for us."""
    jwks_url: str | None = None
    """Where the issuer's keys are; None: where its `.well-known/openid-configuration` says."""
    roles_claim: str = "roles"
    """The claim with roles; `realm_access.roles` is one inside another."""
    services_claim: str | None = None
    """The claim with the services that a token is for; None: every token is for all."""
    algorithms: tuple[str, ...] = ALGORITHMS
    leeway_s: int = 60
    """How far two clocks may differ."""
    fresh_s: float = 600.0
    """How long keys are believed without asking for them again."""
    stale_s: float = 3600.0
    """How long they are believed where the issuer can't be reached: it may rest for an hour, and lock nobody out."""
    pause_s: float = 10.0
    """Between two requests for keys, at least: tokens with keys that nobody knows must not become its burden."""
    timeout_s: float = 5.0
    webhook_lifetime_s: float | None = WEBHOOK_LIFETIME_S
    """How long a webhook is delivered by what its owner's token said; None: until the token expires."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where metrics are served to whoever reaches it, without a key, beside `/metrics` of the gateway."""

    port: int
    host: str = "127.0.0.1"
    """Only this machine reaches the default; elsewhere a firewall has to say who may."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """What one caller may have, on one gateway; None: as much as they like. A key may have its own."""

    connections: int | None = 20_000
    """Requests under way and sockets open, at once: more than one machine has ports for."""
    subscriptions: int | None = 100_000
    """By SSE and on all sockets together, and as many durable ones at the most."""
    durable: int | None = 10_000
    """Durable subscriptions: each is a row that every gateway knows."""
    events: float | None = None
    """Into raw streams, a second."""
    deliveries: float | None = None
    """Events that go out, a second, by all ways together."""
    requests: float | None = None
    """A second."""
    filter_bytes: int | None = 1024 * 1024
    """Of one filter's text: what fits in a socket's message."""


RATES = ("events", "deliveries", "requests")
"""Quotas by the second, which may be fractions."""


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who gets in."""

    oidc: OidcSettings | None = None
    """Tokens that are taken beside API keys; None: none."""
    required: bool | None = None
    """Whether nobody gets anything unknown; None: where other machines reach the gateway, or there is an
    issuer, or somebody is known by a client certificate."""

    quotas: Quotas = field(default_factory=Quotas)
    certificates: tuple[CertificateRule, ...] = ()
    """Whose client certificates are taken beside API keys and tokens."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies that say in `X-Forwarded-For` where a request came from; all others, who could
    say anything, are not believed."""

    def requires(self, *, is_loopback: bool) -> bool:
        """Whether everybody must say who they are."""
        if self.required is not None:
            return self.required
        return not is_loopback or self.oidc is not None or bool(self.certificates)


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How much one peer may ask of a gateway, known or not: a profile's `limits`."""

    connections: int = 50_000
    """Open at once, or as many as the process may have files, if that is less. Beyond, the oldest that has made no
    request makes room; where all have, a new one is refused with 503."""
    connections_per_address: int = 5_000
    """Open at once from one address without a request that was let in. More than the backlog of the listening socket
    (4,096), so that a burst of honest connections is not cut."""
    head_timeout_s: float = 10.0
    """For a request's line and headers, from the first byte or the opening of the connection."""
    body_timeout_s: float = 30.0
    """For a body; each 1,000 bytes of it that have come give a second more."""
    idle_timeout_s: float = 5.0
    """Between two requests of a connection."""
    headers: int = 200
    """Of one request."""
    events: int = 100_000
    """Events of one request, whatever its format."""
    decoded_bytes: int = 64 * 1024 * 1024
    """What an Arrow body may take as events. Four times the largest body: JSON repeats names, Arrow does not."""
    heavy_calls: int = 2
    """Of one caller at once: definitions, long filters, explain, backtest, discover, semantics, webhook targets."""
    heavy_waiting: int = 32
    """Of one caller, beyond those that run; more are refused with 429."""
    sign_in_failures: int = 30
    """Failed sign-ins of one address in a minute; more are answered with 429. A correct key is let in all the same."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The files of a gateway's TLS, all in PEM."""

    cert: Path
    """The certificate, followed by those between it and its authority."""
    key: Path
    client_ca: Path | None = None
    """Authorities whose client certificates are believed; None: clients are not asked for one."""
    client_auth: Literal["optional", "required"] = "optional"
    crl: Path | None = None
    """Certificates of clients that were revoked."""

    @property
    def files(self) -> tuple[Path, ...]:
        """All files, to be watched."""
        return tuple(each for each in (self.cert, self.key, self.client_ca, self.crl) if each is not None)
