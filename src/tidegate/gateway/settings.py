"""What an operator sets of a gateway: values that a profile's `access` is read into."""

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

    def requires(self, *, is_loopback: bool) -> bool:
        """Whether everybody must say who they are."""
        if self.required is not None:
            return self.required
        return not is_loopback or self.oidc is not None or bool(self.certificates)


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
