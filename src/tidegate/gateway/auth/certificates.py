"""Authenticates callers by the client certificate of their TLS connection.

OpenSSL checks in the handshake that an authority of `tls.client_ca` has issued the certificate. The entries of
`access.certificates` say what its holder may do. Without a matching entry a certificate grants nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from cachetools import LRUCache

from tidegate.errors import EnvironmentProblem
from tidegate.gateway.auth.callers import Caller, unknown
from tidegate.gateway.http.problems import HttpProblem
from tidegate.registry import Role

if TYPE_CHECKING:
    from cryptography import x509
    from starlette.types import ASGIApp, Receive, Scope, Send

EXTENSION = "tidegate.certificate"
"""The scope extension that holds the certificate of a request's connection."""
ID_PREFIX = "cert:"
"""The prefix of the ids of callers with a certificate."""
ALWAYS_OPEN = ("/livez", "/readyz")
"""Paths of probes, which never need a certificate."""
_MAX_CACHED = 10_000
_NOT_KNOWN = 4401
"""Close code of a WebSocket without a certificate."""

Kind = Literal["subject", "uri", "dns"]


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The fields of a verified client certificate that rules are matched against."""

    fingerprint: bytes
    """SHA-256 of the certificate."""
    subject: tuple[tuple[str, str], ...]
    """Pairs of dotted object identifier and value, in the certificate's order."""
    uris: frozenset[str]
    dns: frozenset[str]
    expires_at: datetime

    @property
    def told(self) -> str:
        """The subject, for messages."""
        return ", ".join(value for _, value in self.subject) or "no subject"


def read_peer(der: bytes) -> PeerCertificate:
    """Parse a certificate in DER. Raises ValueError if it is malformed."""
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(der)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = frozenset(names.get_values_for_type(x509.UniformResourceIdentifier))
        dns = frozenset(name.lower() for name in names.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        uris = dns = frozenset()
    return PeerCertificate(
        hashlib.sha256(der).digest(),
        _attributes(certificate.subject),
        uris,
        dns,
        certificate.not_valid_after_utc,
    )


@dataclass(frozen=True, slots=True)
class CertificateRule:
    """One entry of `access.certificates`: which certificates it matches, and what their holders may do."""

    kind: Kind
    value: str
    name: str
    """The caller's name, or that of the link."""
    role: Role = "consumer"
    services: tuple[str, ...] | None = None
    quotas: tuple[tuple[str, float], ...] = ()
    is_link: bool = False
    """The certificate belongs to a neighbour broker, which may open the link of this name, and to no caller."""
    subject: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def id(self) -> str:
        """The id of its caller, which owns durable subscriptions."""
        return f"{ID_PREFIX}{self.name}"

    def caller(self) -> Caller:
        """Return the caller that holders of a matching certificate are."""
        return Caller(self.id, self.name, self.role, self.services, quotas=self.quotas)

    def fits(self, peer: PeerCertificate) -> bool:
        """True if a certificate matches the entry.

        Each subject attribute in the entry must have exactly the values in the entry: a certificate with two common
        names matches neither of them alone.
        """
        if self.kind == "uri":
            return self.value in peer.uris
        if self.kind == "dns":
            return self.value.lower() in peer.dns
        named = {kind for kind, _ in self.subject}
        return sorted(self.subject) == sorted(attribute for attribute in peer.subject if attribute[0] in named)


def read_subject(text: str) -> tuple[tuple[str, str], ...]:
    """Parse a subject as in RFC 4514, `CN=fleet,O=City`. Raises ValueError if it is malformed or empty."""
    from cryptography import x509

    attributes = _attributes(x509.Name.from_rfc4514_string(text))
    if not attributes:
        raise ValueError("it names no attribute")
    return attributes


def _attributes(name: x509.Name) -> tuple[tuple[str, str], ...]:
    return tuple((attribute.oid.dotted_string, _text(attribute.value)) for attribute in name)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.hex()


class Certificates:
    """Finds the caller of a certificate by the entries of the profile, which may change while the gateway runs."""

    def __init__(self, rules: Iterable[CertificateRule] = ()) -> None:
        self._known: LRUCache[bytes, Caller | None] = LRUCache(_MAX_CACHED)
        self.define(rules)

    def define(self, rules: Iterable[CertificateRule]) -> None:
        """Replace all entries. Callers of removed entries are refused from now on."""
        rules = tuple(rules)
        self._callers = tuple(rule for rule in rules if not rule.is_link)
        self._links = {rule.name: rule for rule in rules if rule.is_link}
        self._by_id = {rule.id: rule.caller() for rule in self._callers}
        self._known = LRUCache(_MAX_CACHED)  # not cleared: another thread may use it

    def caller(self, peer: PeerCertificate, now: datetime) -> Caller | None:
        """Return the caller of the first entry that matches a certificate; None if none does.

        Raises `HttpProblem` (401) if the certificate has expired.
        """
        if peer.expires_at <= now:
            raise unknown(f"the client certificate of {peer.told!r} expired at {peer.expires_at.isoformat()}")
        cache = self._known
        if peer.fingerprint not in cache:
            rule = next((candidate for candidate in self._callers if candidate.fits(peer)), None)
            caller = None if rule is None else replace(rule.caller(), expires_at=peer.expires_at)
            cache[peer.fingerprint] = caller
        return cache[peer.fingerprint]

    def owner(self, id_: str) -> Caller:
        """Return the caller with an id that starts with `cert:`; one without services if the entry was removed."""
        return self._by_id.get(id_) or Caller(id_, id_.removeprefix(ID_PREFIX), "consumer", ())

    def problem(self, caller: Caller) -> str | None:
        """Return why the connection of a caller with a certificate must be closed; None if it may stay."""
        current = self._by_id.get(caller.id or "")
        if current is None:
            return f"{caller.told} opens nothing here any more"
        if replace(current, expires_at=caller.expires_at) != caller:
            return f"what {caller.told} may do has changed: connect again"
        return None

    def link_problem(self, name: str, peer: PeerCertificate | None) -> str | None:
        """Return why a neighbour may not open the link of its name with a certificate; None if it may."""
        rule = self._links.get(name)
        if rule is None:
            return None
        if peer is None:
            return f"the link {name!r} needs a client certificate with {rule.kind} {rule.value!r}, and none was shown"
        if peer.expires_at <= datetime.now(UTC) or not rule.fits(peer):
            return f"the link {name!r} needs a client certificate with {rule.kind} {rule.value!r}, not {peer.told!r}"
        return None


def peer_of(scope: Any) -> PeerCertificate | None:
    """Return the client certificate of a request's connection; None if there is none."""
    peer = scope.get("extensions", {}).get(EXTENSION)
    return peer if isinstance(peer, PeerCertificate) else None


class CertificateRequired:
    """ASGI middleware for `client_auth: required`: refuses connections without a certificate.

    It refuses requests, not handshakes, so that probes reach `/livez` and `/readyz`, and other clients get a message.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if its connection has a certificate; otherwise answer with 403 or close code 4401."""
        if scope["type"] not in ("http", "websocket") or peer_of(scope) is not None or scope["path"] in ALWAYS_OPEN:
            await self._app(scope, receive, send)
            return
        detail = "this gateway asks for a client certificate of an authority that it trusts, and none was shown"
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _NOT_KNOWN, "reason": detail})
            return
        await HttpProblem(403, "no-certificate", "A client certificate is required", detail).response()(
            scope, receive, send
        )


def need_distinct(rules: Iterable[CertificateRule], where: str) -> tuple[CertificateRule, ...]:
    """Return the rules. Raises an `EnvironmentProblem` if two of them name the same certificate or caller."""
    rules = tuple(rules)
    certificates: list[tuple[str, str]] = [(rule.kind, str(sorted(rule.subject) or rule.value)) for rule in rules]
    names = [(str(rule.is_link), rule.name) for rule in rules]
    for what, shown in (("certificate", certificates), ("name", names)):
        for n, entry in enumerate(shown):
            if entry in shown[:n]:
                raise EnvironmentProblem(
                    f"{where}: entry {n + 1} has the same {what} as entry {shown.index(entry) + 1}"
                )
    return rules
