"""A profile's `access`: who gets into the gateway."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit

from tidegate.errors import EnvironmentProblem, did_you_mean
from tidegate.gateway.settings import ALGORITHMS, AccessSettings, OidcSettings, Quotas
from tidegate.model import units

if TYPE_CHECKING:
    from tidegate.gateway.auth.certificates import CertificateRule, Kind

_TIMES = {"leeway": "leeway_s", "fresh": "fresh_s", "stale": "stale_s", "pause": "pause_s", "timeout": "timeout_s"}
_QUOTAS = tuple(each.name for each in fields(Quotas))
_RATES = ("events", "deliveries", "requests")
_LIFETIME = "webhook_lifetime"
_OIDC_KEYS = ("issuer", "audience", "jwks_url", "roles_claim", "services_claim", "algorithms", _LIFETIME, *_TIMES)
_SELECTORS: tuple[Kind, ...] = ("subject", "uri", "dns")
_CERTIFICATE = "{subject: CN=fleet, name: fleet, role: provider}"


def read_access(document: Any, path: str) -> AccessSettings:
    """Read what a profile says of access; `path` is the profile's, for messages."""
    if document is None:
        return AccessSettings()
    found = _entries(document, ("oidc", "required", "quotas", "certificates", "proxies"), f"{path}: access")
    required = found.get("required")
    if not isinstance(required, bool | None):
        raise EnvironmentProblem(f"{path}: access.required: expected true or false, not {required!r}")
    oidc = None if found.get("oidc") is None else _oidc(found["oidc"], f"{path}: access.oidc")
    quotas = Quotas() if found.get("quotas") is None else _quotas(found["quotas"], f"{path}: access.quotas")
    certificates = _certificates(found.get("certificates"), f"{path}: access.certificates")
    proxies = _proxies(found.get("proxies"), f"{path}: access.proxies")
    return AccessSettings(oidc, required, quotas, certificates, proxies)


def _proxies(document: Any, where: str) -> tuple[str, ...]:
    """Read whose `X-Forwarded-For` is believed."""
    expected = "expected a list of addresses or networks, such as [127.0.0.1, 10.0.0.0/8]"
    if document is None:
        return ()
    if not isinstance(document, list):
        raise EnvironmentProblem(f"{where}: {expected}, not {document!r}")
    for each in document:
        try:
            ipaddress.ip_network(each)
        except (ValueError, TypeError) as error:
            raise EnvironmentProblem(f"{where}: {expected}, not {each!r}") from error
    return tuple(map(str, document))


def _certificates(document: Any, where: str) -> tuple[CertificateRule, ...]:
    """Read whose client certificates are taken for whom."""
    if document is None:
        return ()
    from tidegate.gateway.auth.certificates import need_distinct

    if not isinstance(document, list):
        raise EnvironmentProblem(f"{where}: expected a list of entries such as {_CERTIFICATE}, not {document!r}")
    return need_distinct((_certificate(each, f"{where}[{n}]") for n, each in enumerate(document)), where)


def _certificate(document: Any, where: str) -> CertificateRule:
    from tidegate.gateway.auth.certificates import CertificateRule, read_subject
    from tidegate.registry import Role

    found = _entries(document, (*_SELECTORS, "name", "role", "services", "quotas", "link"), where)
    kinds = [kind for kind in _SELECTORS if kind in found]
    if len(kinds) != 1:
        raise EnvironmentProblem(f"{where}: expected one of {', '.join(_SELECTORS)}, as in {_CERTIFICATE}")
    kind, value = kinds[0], _text(found[kinds[0]], f"{where}.{kinds[0]}", "text")
    subject: tuple[tuple[str, str], ...] = ()
    if kind == "subject":
        try:
            subject = read_subject(value)
        except ValueError as error:
            raise EnvironmentProblem(
                f"{where}.subject: expected a subject such as CN=fleet,O=City, not {value!r}: {error}"
            ) from error
    if "link" in found:
        if found.keys() & {"name", "role", "services", "quotas"}:
            raise EnvironmentProblem(f"{where}: link: stands alone: a neighbour broker's certificate opens no calls")
        name = _text(found["link"], f"{where}.link", "the name of a link")
        return CertificateRule(kind, value, name, is_link=True, subject=subject)
    name = _text(found.get("name"), f"{where}.name", "the caller's name")
    role = found.get("role", "consumer")
    if role not in get_args(Role):
        raise EnvironmentProblem(f"{where}.role: expected one of {', '.join(get_args(Role))}, not {role!r}")
    services = found.get("services")
    if services is not None and not (isinstance(services, list) and all(isinstance(each, str) for each in services)):
        raise EnvironmentProblem(f"{where}.services: expected a list of names, not {services!r}")
    quotas = found.get("quotas") or {}
    if not isinstance(quotas, Mapping):
        raise EnvironmentProblem(f"{where}.quotas: expected limits by name, not {quotas!r}")
    limits = tuple((str(key), read_quota(str(key), str(each), f"{where}.quotas.{key}")) for key, each in quotas.items())
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
    """Read one limit; `where` it stands, for messages."""
    if name not in _QUOTAS:
        raise EnvironmentProblem(f"{where}: {name!r} is no quota; expected one of {', '.join(_QUOTAS)}")
    try:
        found = float(limit) if name in _RATES else int(limit)
    except ValueError:
        found = 0
    if not 0 < found < float("inf"):
        what = "a number above 0" if name in _RATES else "a whole number above 0"
        raise EnvironmentProblem(f"{where}: expected {what}, not {limit!r}")
    return found


def _oidc(document: Any, where: str) -> OidcSettings:
    found = _entries(document, _OIDC_KEYS, where)
    settings: dict[str, Any] = {
        "issuer": _url(found.get("issuer"), f"{where}.issuer", "https://id.example.org/realms/city"),
        "audience": _text(found.get("audience"), f"{where}.audience", "what aud holds, such as tidegate"),
    }
    if "jwks_url" in found:
        settings["jwks_url"] = _url(found["jwks_url"], f"{where}.jwks_url", "https://id.example.org/keys")
    for name in ("roles_claim", "services_claim"):
        if name in found:
            settings[name] = _text(found[name], f"{where}.{name}", "a claim, such as roles or realm_access.roles")
    if "algorithms" in found:
        settings["algorithms"] = _algorithms(found["algorithms"], f"{where}.algorithms")
    for name, field in _TIMES.items():
        if name in found:
            length = units.seconds(found[name]) if isinstance(found[name], str) else None
            if length is None:
                raise EnvironmentProblem(f"{where}.{name}: expected a length of time such as 30s, not {found[name]!r}")
            settings[field] = round(length) if name == "leeway" else length
    if _LIFETIME in found:
        settings["webhook_lifetime_s"] = _lifetime(found[_LIFETIME], f"{where}.{_LIFETIME}")
    return OidcSettings(**settings)


def _lifetime(value: Any, where: str) -> float | None:
    """Read how long webhooks are delivered without a renewal; None: as long as the token holds."""
    if value == "token":
        return None
    length = units.seconds(value) if isinstance(value, str) else None
    if length is None or length <= 0:
        raise EnvironmentProblem(f"{where}: expected a length of time such as 30d, or token, not {value!r}")
    return length


def _entries(document: Any, known: Collection[str], where: str) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise EnvironmentProblem(f"{where}: expected a map with {', '.join(known)}, not {document!r}")
    for key in document:
        if key not in known:
            hint = did_you_mean(str(key), known) or f"; expected {', '.join(known)}"
            raise EnvironmentProblem(f"{where}: unknown key {key!r}{hint}")
    return {key: value for key, value in document.items() if value is not None}


def _text(value: Any, where: str, expected: str) -> str:
    if not isinstance(value, str) or not value:
        raise EnvironmentProblem(f"{where}: expected {expected}, not {'nothing' if value is None else repr(value)}")
    return value


def _url(value: Any, where: str, example: str) -> str:
    text = _text(value, where, f"a URL such as {example}")
    parts = urlsplit(text)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise EnvironmentProblem(
            f"{where}: expected a URL that begins with https:, not {text!r}: whoever is on the way could put "
            "keys of their own in the place of the issuer's"
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
    for each in value:
        if each not in ALGORITHMS:
            raise EnvironmentProblem(f"{where}: expected some of {', '.join(ALGORITHMS)}, not {each!r}")
    return tuple(value)
