"""The key `access` of a profile: how callers of the gateway authenticate, and their quotas."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit

from tidegate.cli.profile.entries import read_entries
from tidegate.errors import EnvironmentProblem
from tidegate.gateway.settings import ALGORITHMS, AccessSettings, OidcSettings, Quotas
from tidegate.model import units

if TYPE_CHECKING:
    from tidegate.gateway.auth.certificates import CertificateRule, Kind

_DURATIONS = {"leeway": "leeway_s", "fresh": "fresh_s", "stale": "stale_s", "pause": "pause_s", "timeout": "timeout_s"}
_QUOTAS = tuple(field.name for field in fields(Quotas))
_RATES = ("events", "deliveries", "requests")
"""Quotas that are a number per second, and may be a fraction."""
_WEBHOOK_LIFETIME = "webhook_lifetime"
_OIDC_KEYS = (
    "issuer",
    "audience",
    "jwks_url",
    "roles_claim",
    "services_claim",
    "algorithms",
    _WEBHOOK_LIFETIME,
    *_DURATIONS,
)
_SELECTORS: tuple[Kind, ...] = ("subject", "uri", "dns")
_CERTIFICATE_EXAMPLE = "{subject: CN=fleet, name: fleet, role: provider}"


def read_access(document: Any, path: str) -> AccessSettings:
    """Read `access` of the profile at `path`. Raises an `EnvironmentProblem` that names the key."""
    if document is None:
        return AccessSettings()
    entries = read_entries(document, ("oidc", "required", "quotas", "certificates", "proxies"), f"{path}: access")
    required = entries.get("required")
    if not isinstance(required, bool | None):
        raise EnvironmentProblem(f"{path}: access.required: expected true or false, not {required!r}")
    oidc = None if entries.get("oidc") is None else _oidc(entries["oidc"], f"{path}: access.oidc")
    quotas = Quotas() if entries.get("quotas") is None else _quotas(entries["quotas"], f"{path}: access.quotas")
    certificates = _certificates(entries.get("certificates"), f"{path}: access.certificates")
    proxies = _proxies(entries.get("proxies"), f"{path}: access.proxies")
    return AccessSettings(oidc, required, quotas, certificates, proxies)


def _proxies(document: Any, where: str) -> tuple[str, ...]:
    """Read the addresses of proxies whose `X-Forwarded-For` is trusted."""
    expected = "expected a list of addresses or networks, such as [127.0.0.1, 10.0.0.0/8]"
    if document is None:
        return ()
    if not isinstance(document, list):
        raise EnvironmentProblem(f"{where}: {expected}, not {document!r}")
    for network in document:
        try:
            ipaddress.ip_network(network)
        except (ValueError, TypeError) as error:
            raise EnvironmentProblem(f"{where}: {expected}, not {network!r}") from error
    return tuple(map(str, document))


def _certificates(document: Any, where: str) -> tuple[CertificateRule, ...]:
    """Read which callers the client certificates identify."""
    if document is None:
        return ()
    from tidegate.gateway.auth.certificates import need_distinct

    if not isinstance(document, list):
        raise EnvironmentProblem(
            f"{where}: expected a list of entries such as {_CERTIFICATE_EXAMPLE}, not {document!r}"
        )
    return need_distinct((_certificate(entry, f"{where}[{n}]") for n, entry in enumerate(document)), where)


def _certificate(document: Any, where: str) -> CertificateRule:
    from tidegate.gateway.auth.certificates import CertificateRule, read_subject
    from tidegate.registry import Role

    entries = read_entries(document, (*_SELECTORS, "name", "role", "services", "quotas", "link"), where)
    kinds = [kind for kind in _SELECTORS if kind in entries]
    if len(kinds) != 1:
        raise EnvironmentProblem(f"{where}: expected one of {', '.join(_SELECTORS)}, as in {_CERTIFICATE_EXAMPLE}")
    kind, value = kinds[0], _text(entries[kinds[0]], f"{where}.{kinds[0]}", "text")
    subject: tuple[tuple[str, str], ...] = ()
    if kind == "subject":
        try:
            subject = read_subject(value)
        except ValueError as error:
            raise EnvironmentProblem(
                f"{where}.subject: expected a subject such as CN=fleet,O=City, not {value!r}: {error}"
            ) from error
    if "link" in entries:
        if entries.keys() & {"name", "role", "services", "quotas"}:
            raise EnvironmentProblem(
                f"{where}: link: expected no other key: a neighbour broker's certificate allows no calls of the API"
            )
        name = _text(entries["link"], f"{where}.link", "the name of a link")
        return CertificateRule(kind, value, name, is_link=True, subject=subject)
    name = _text(entries.get("name"), f"{where}.name", "the caller's name")
    role = entries.get("role", "consumer")
    if role not in get_args(Role):
        raise EnvironmentProblem(f"{where}.role: expected one of {', '.join(get_args(Role))}, not {role!r}")
    services = entries.get("services")
    if services is not None and not (isinstance(services, list) and all(isinstance(name, str) for name in services)):
        raise EnvironmentProblem(f"{where}.services: expected a list of names, not {services!r}")
    quotas = entries.get("quotas") or {}
    if not isinstance(quotas, Mapping):
        raise EnvironmentProblem(f"{where}.quotas: expected limits by name, not {quotas!r}")
    limits = tuple(
        (str(key), read_quota(str(key), str(limit), f"{where}.quotas.{key}")) for key, limit in quotas.items()
    )
    scope = None if services is None else tuple(services)
    return CertificateRule(kind, value, name, role, scope, limits, subject=subject)


def _quotas(document: Any, where: str) -> Quotas:
    if not isinstance(document, Mapping):
        raise EnvironmentProblem(f"{where}: expected a map with {', '.join(_QUOTAS)}, not {document!r}")
    limits: dict[str, Any] = {str(name): _quota(str(name), limit, where) for name, limit in document.items()}
    return Quotas(**limits)


def _quota(name: str, limit: Any, where: str) -> float | None:
    return None if name in _QUOTAS and limit == "none" else read_quota(name, str(limit), f"{where}.{name}")


def read_quota(name: str, limit: str, where: str) -> float:
    """Read one quota; raises an `EnvironmentProblem` that starts with `where`."""
    if name not in _QUOTAS:
        raise EnvironmentProblem(f"{where}: {name!r} is no quota; expected one of {', '.join(_QUOTAS)}")
    try:
        quota = float(limit) if name in _RATES else int(limit)
    except ValueError:
        quota = 0
    if not 0 < quota < float("inf"):
        what = "a number above 0" if name in _RATES else "a whole number above 0"
        raise EnvironmentProblem(f"{where}: expected {what}, not {limit!r}")
    return quota


def _oidc(document: Any, where: str) -> OidcSettings:
    entries = read_entries(document, _OIDC_KEYS, where)
    settings: dict[str, Any] = {
        "issuer": _url(entries.get("issuer"), f"{where}.issuer", "https://id.example.org/realms/city"),
        "audience": _text(entries.get("audience"), f"{where}.audience", "the value of aud, such as tidegate"),
    }
    if "jwks_url" in entries:
        settings["jwks_url"] = _url(entries["jwks_url"], f"{where}.jwks_url", "https://id.example.org/keys")
    for name in ("roles_claim", "services_claim"):
        if name in entries:
            settings[name] = _text(entries[name], f"{where}.{name}", "a claim, such as roles or realm_access.roles")
    if "algorithms" in entries:
        settings["algorithms"] = _algorithms(entries["algorithms"], f"{where}.algorithms")
    for name, field in _DURATIONS.items():
        if name in entries:
            value = entries[name]
            duration_s = units.seconds(value) if isinstance(value, str) else None
            if duration_s is None:
                raise EnvironmentProblem(f"{where}.{name}: expected a length of time such as 30s, not {value!r}")
            settings[field] = round(duration_s) if name == "leeway" else duration_s
    if _WEBHOOK_LIFETIME in entries:
        settings["webhook_lifetime_s"] = _lifetime(entries[_WEBHOOK_LIFETIME], f"{where}.{_WEBHOOK_LIFETIME}")
    return OidcSettings(**settings)


def _lifetime(value: Any, where: str) -> float | None:
    """Read how long webhooks are delivered without a renewal; None: until the token expires."""
    if value == "token":
        return None
    lifetime_s = units.seconds(value) if isinstance(value, str) else None
    if lifetime_s is None or lifetime_s <= 0:
        raise EnvironmentProblem(f"{where}: expected a length of time such as 30d, or token, not {value!r}")
    return lifetime_s


def _text(value: Any, where: str, expected: str) -> str:
    if not isinstance(value, str) or not value:
        raise EnvironmentProblem(f"{where}: expected {expected}, not {'nothing' if value is None else repr(value)}")
    return value


def _url(value: Any, where: str, example: str) -> str:
    text = _text(value, where, f"a URL such as {example}")
    parts = urlsplit(text)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise EnvironmentProblem(
            f"{where}: expected a URL that begins with https:, not {text!r}: without TLS an attacker on the network "
            "could replace the issuer's keys"
        )
    return text


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _algorithms(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise EnvironmentProblem(f"{where}: expected a list of algorithms, not {value!r}")
    for algorithm in value:
        if algorithm not in ALGORITHMS:
            raise EnvironmentProblem(f"{where}: expected some of {', '.join(ALGORITHMS)}, not {algorithm!r}")
    return tuple(value)
