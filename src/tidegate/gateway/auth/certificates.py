"""Client certificates as a way to say who asks: the certificate of a TLS connection, and the caller it stands for.

A certificate is trusted when an authority of `tls.client_ca` has issued it; OpenSSL checks that in the handshake. What
its holder may do is what `access.certificates` says, and nothing where no entry fits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from tidegate.errors import EnvironmentProblem
from tidegate.gateway.auth.callers import Caller, unknown
from tidegate.gateway.http.problems import Problem
from tidegate.registry import Role

if TYPE_CHECKING:
    from cryptography import x509
    from starlette.types import ASGIApp, Receive, Scope, Send

EXTENSION = "tidegate.certificate"
"""Where a request's scope holds the certificate of its connection."""
ID_PREFIX = "cert:"
"""What the id of a caller begins with who is known by a certificate."""
ALWAYS_OPEN = ("/livez", "/readyz")
"""Calls that need no certificate where all others do: whoever watches the process asks them."""
MAX_REMEMBERED = 10_000
_NOT_KNOWN = 4401
"""The close code of a WebSocket without a certificate."""

Kind = Literal["subject", "uri", "dns"]


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """What we read in the certificate of a connection, which OpenSSL has verified."""

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
    """Read a certificate in DER. Raises ValueError where it can't be read, so that it stands for nobody."""
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(der)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = frozenset(names.get_values_for_type(x509.UniformResourceIdentifier))
        dns = frozenset(each.lower() for each in names.get_values_for_type(x509.DNSName))
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
    """One entry of `access.certificates`: which certificates it fits, and what their holders are."""

    kind: Kind
    value: str
    name: str
    """The caller's name, or that of the link."""
    role: Role = "consumer"
    services: tuple[str, ...] | None = None
    quotas: tuple[tuple[str, float], ...] = ()
    is_link: bool = False
    """The certificate is a neighbour broker's, which may open the link of this name, and no caller's."""
    subject: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def id(self) -> str:
        """The id of its caller, which owns durable subscriptions."""
        return f"{ID_PREFIX}{self.name}"

    def caller(self) -> Caller:
        """Whom it stands for."""
        return Caller(self.id, self.name, self.role, self.services, quotas=self.quotas)

    def fits(self, peer: PeerCertificate) -> bool:
        """True if a certificate has what the entry names.

        Of a subject each attribute that is named has exactly the values that are named: a certificate with two
        common names does not pass for either.
        """
        if self.kind == "uri":
            return self.value in peer.uris
        if self.kind == "dns":
            return self.value.lower() in peer.dns
        named = {kind for kind, _ in self.subject}
        return sorted(self.subject) == sorted(each for each in peer.subject if each[0] in named)


def read_subject(text: str) -> tuple[tuple[str, str], ...]:
    """The attributes of a subject as RFC 4514 writes it: `CN=fleet,O=City`. Raises ValueError."""
    from cryptography import x509

    found = _attributes(x509.Name.from_rfc4514_string(text))
    if not found:
        raise ValueError("it names no attribute")
    return found


def _attributes(name: x509.Name) -> tuple[tuple[str, str], ...]:
    return tuple((each.oid.dotted_string, _text(each.value)) for each in name)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.hex()


class Certificates:
    """Finds the caller of a certificate by the profile's entries, which may change while the gateway runs."""

    def __init__(self, rules: Iterable[CertificateRule] = ()) -> None:
        self._known: dict[bytes, Caller | None] = {}
        self.define(rules)

    def define(self, rules: Iterable[CertificateRule]) -> None:
        """Replace all entries; callers of those that are gone are refused from now on."""
        rules = tuple(rules)
        self._callers = tuple(each for each in rules if not each.is_link)
        self._links = {each.name: each for each in rules if each.is_link}
        self._by_id = {each.id: each.caller() for each in self._callers}
        self._known.clear()

    def caller(self, peer: PeerCertificate, now: datetime) -> Caller | None:
        """Whom a certificate stands for, by the first entry that fits; None: nobody. A problem where it has expired."""
        if peer.expires_at <= now:
            raise unknown(f"the client certificate of {peer.told!r} expired at {peer.expires_at.isoformat()}")
        if peer.fingerprint not in self._known:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            rule = next((each for each in self._callers if each.fits(peer)), None)
            found = None if rule is None else replace(rule.caller(), expires_at=peer.expires_at)
            self._known[peer.fingerprint] = found
        return self._known[peer.fingerprint]

    def owner(self, id_: str) -> Caller:
        """The caller of an id that begins with `cert:`; one who may do nothing where the entry is gone."""
        return self._by_id.get(id_) or Caller(id_, id_.removeprefix(ID_PREFIX), "consumer", ())

    def problem(self, caller: Caller) -> str | None:
        """Why a caller who came with a certificate may not stay; None: they may."""
        known = self._by_id.get(caller.id or "")
        if known is None:
            return f"{caller.told} opens nothing here any more"
        if replace(known, expires_at=caller.expires_at) != caller:
            return f"what {caller.told} may do has changed: connect again"
        return None

    def link_problem(self, name: str, peer: PeerCertificate | None) -> str | None:
        """Why a neighbour may not open the link of its name with its certificate; None: it may."""
        rule = self._links.get(name)
        if rule is None:
            return None
        if peer is None:
            return f"the link {name!r} needs a client certificate with {rule.kind} {rule.value!r}, and none was shown"
        if peer.expires_at <= datetime.now(UTC) or not rule.fits(peer):
            return f"the link {name!r} needs a client certificate with {rule.kind} {rule.value!r}, not {peer.told!r}"
        return None


def peer_of(scope: Any) -> PeerCertificate | None:
    """The client's certificate of the connection on which a request came; None: there is none."""
    found = scope.get("extensions", {}).get(EXTENSION)
    return found if isinstance(found, PeerCertificate) else None


class CertificateRequired:
    """ASGI middleware where `client_auth` is `required`: refuses whoever shows no certificate.

    Refused here and not in the handshake, so that `/livez` and `/readyz` answer whoever watches the process, and
    all others learn what is missing.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass whose connection has a certificate."""
        if scope["type"] not in ("http", "websocket") or peer_of(scope) is not None or scope["path"] in ALWAYS_OPEN:
            await self._app(scope, receive, send)
            return
        detail = "this gateway asks for a client certificate of an authority that it trusts, and none was shown"
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _NOT_KNOWN, "reason": detail})
            return
        await Problem(403, "no-certificate", "Who asks?", detail).response()(scope, receive, send)


def need_distinct(rules: Iterable[CertificateRule], where: str) -> tuple[CertificateRule, ...]:
    """Return the rules; raise where two of them name the same certificate or the same caller."""
    rules = tuple(rules)
    certificates: list[tuple[str, str]] = [(each.kind, str(sorted(each.subject) or each.value)) for each in rules]
    names = [(str(each.is_link), each.name) for each in rules]
    for what, shown in (("certificate", certificates), ("name", names)):
        for n, each in enumerate(shown):
            if each in shown[:n]:
                raise EnvironmentProblem(f"{where}: entry {n + 1} has the same {what} as entry {shown.index(each) + 1}")
    return rules
