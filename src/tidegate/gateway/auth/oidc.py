"""Validates bearer tokens (JWTs) of an OpenID Connect issuer with the keys that the issuer publishes.

A token is valid if a key of the issuer has signed it with an asymmetric algorithm, and issuer,
audience and time fit. Error messages name the reason, but never repeat the token: it may be valid elsewhere.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, get_args

import httpx
import orjson
import structlog
from joserfc import jws
from joserfc.errors import ExpiredTokenError, JoseError, MissingClaimError
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey, import_key
from joserfc.jwt import JWTClaimsRegistry

from tidegate.gateway.auth.callers import Caller, unknown
from tidegate.gateway.auth.rights import RIGHTS
from tidegate.gateway.http.problems import HttpProblem, forbidden
from tidegate.gateway.settings import OidcSettings
from tidegate.registry import Role

MAX_TOKEN_BYTES = 16 * 1024
"""Size of a token."""
MAX_RESPONSE_BYTES = 1024 * 1024
"""Size of a response of the issuer."""
_MIN_RSA_BITS = 2048
"""Shorter keys can be broken."""
DISCOVERY = "/.well-known/openid-configuration"

_log = structlog.get_logger("tidegate.gateway")


class IssuerUnreachable(Exception):  # noqa: N818 - what the issuer is
    """The keys of an issuer can't be fetched now."""


class Issuer:
    """Validates the tokens of one issuer. Runs on the event loop."""

    def __init__(self, settings: OidcSettings, now: Callable[[], float] = time.time) -> None:
        """`now` returns the time in seconds since 1970, as in tokens."""
        self._settings, self._now = settings, now
        self._keys = Keys(settings)
        self._signatures = _Signatures(algorithms=settings.algorithms, strict_check_header=False)

    async def close(self) -> None:
        """Close the connections to the issuer."""
        await self._keys.close()

    async def caller(self, token: str) -> Caller:
        """Return the caller of a token.

        Raises `HttpProblem`: 401 if the token is invalid, 403 if it has no role, 503 if the issuer can't be reached.
        """
        header = _header(token)
        algorithm = header.get("alg")
        if algorithm not in self._settings.algorithms:
            raise _refused(f"it is signed by {algorithm!r:.40}, and not by {', '.join(self._settings.algorithms)}")
        if "crit" in header or "b64" in header:
            raise _refused("its header asks for extensions (crit, b64) that are not known here")
        claims = self._verified(token, await self._key(header))
        self._check(claims)
        return self._caller_of(claims)

    async def _key(self, header: Mapping[str, Any]) -> KeySet:
        """Return the key that a token's header names. A token may omit the name if the issuer has one key."""
        kid = header.get("kid")
        try:
            keys = await self._keys.find(kid if isinstance(kid, str) else None)
        except IssuerUnreachable as problem:
            detail = f"tokens can't be checked now: {problem}"
            raise HttpProblem(
                503, "issuer-unreachable", "The issuer can't be reached", detail, headers={"retry-after": "10"}
            ) from problem
        if keys is None and kid is None:
            raise _refused("it names no key (kid), and the issuer has several")
        if keys is None:
            raise _refused(f"the issuer has no such key: {kid!r:.60}")
        return keys

    def _verified(self, token: str, keys: KeySet) -> dict[str, Any]:
        try:
            signed = jws.deserialize_compact(token, keys, registry=self._signatures)
            claims = orjson.loads(signed.payload)
        except (JoseError, ValueError) as error:
            why = error.description if isinstance(error, JoseError) else "its payload is not JSON"
            raise _refused(why.rstrip(".") or "the signature is not the issuer's") from error
        if not isinstance(claims, dict):
            raise _refused("its payload is not a JSON object")
        return claims

    def _check(self, claims: dict[str, Any]) -> None:
        """Raise `HttpProblem` (401) unless issuer, audience, subject and time are as expected."""
        settings = self._settings
        rules = JWTClaimsRegistry(
            now=lambda: int(self._now()),
            leeway=settings.leeway_s,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.audience},
            exp={"essential": True},
            sub={"essential": True},
        )
        expected = {"iss": settings.issuer, "aud": settings.audience}
        try:
            rules.validate(claims)
        except MissingClaimError as error:
            raise _refused(f"it has no {error.claim.replace(',', ', ')}") from error
        except ExpiredTokenError as error:
            raise _refused(f"it expired at {_moment(claims['exp'])}") from error
        except JoseError as error:
            claim = getattr(error, "claim", "")
            if claim in expected:
                raise _refused(f"{claim}: expected {expected[claim]!r}, not {claims[claim]!r:.100}") from error
            raise _refused(error.description) from error

    def _caller_of(self, claims: Mapping[str, Any]) -> Caller:
        settings, subject = self._settings, str(claims["sub"])
        groups = words(claims, settings.roles_claim) or ()
        role = next((named for named in reversed(get_args(Role)) if named in groups), None)  # `may` checks all groups
        if role is None:
            roles = ", ".join(RIGHTS)
            detail = f"the token of {subject!r:.60} has no role here: expected one of {roles} in {settings.roles_claim}"
            raise forbidden(detail)
        services = None if settings.services_claim is None else words(claims, settings.services_claim) or ()
        return Caller(
            f"{settings.issuer}#{subject}",
            subject,
            role,
            None if services is None or "*" in services else tuple(services),
            frozenset(groups),
            datetime.fromtimestamp(min(claims["exp"] + settings.leeway_s, _LATEST), UTC),
        )


_LATEST = 253_402_300_799
"""The end of the year 9999."""


class _Signatures(jws.JWSRegistry):
    max_header_length = 8192  # base64 characters: some issuers include certificates
    max_payload_length = MAX_TOKEN_BYTES

    def get_alg(self, name: str) -> Any:
        """Return an algorithm. `EdDSA` gives no deprecation warning, because many issuers use that name."""
        return self.algorithms[name] if name in (self.allowed or ()) else super().get_alg(name)


class Keys:
    """Fetches and caches the keys of an issuer. Fetches at most once per `pause_s`."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._keys: list[RSAKey | ECKey | OKPKey] = []
        self._read_at: float | None = None
        """When the keys were last fetched successfully."""
        self._asked_at: float | None = None
        """When the keys were last requested, successfully or not."""
        self._problem = ""
        self._asking = asyncio.Lock()
        self._http = httpx.AsyncClient(timeout=settings.timeout_s, follow_redirects=False)

    async def close(self) -> None:
        """Close the connections to the issuer."""
        await self._http.aclose()

    async def find(self, kid: str | None) -> KeySet | None:
        """Return the key with an id, or the only key if `kid` is None; None if the issuer has no such key.

        Raises `IssuerUnreachable` if the cached keys are too old, or the key is unknown and the last fetch failed.
        """
        if self._age() > self._settings.fresh_s or self._of(kid) is None:
            async with self._asking:
                # While this call waited for the lock, another one may have fetched the keys.
                may_ask = self._asked_at is None or self._clock() - self._asked_at >= self._settings.pause_s
                if may_ask and (self._age() > self._settings.fresh_s or self._of(kid) is None):
                    await self._ask()
        keys = self._of(kid)
        if self._age() > self._settings.stale_s or (keys is None and self._problem):
            raise IssuerUnreachable(self._problem)
        return keys

    def _age(self) -> float:
        return float("inf") if self._read_at is None else self._clock() - self._read_at

    def _of(self, kid: str | None) -> KeySet | None:
        keys = [key for key in self._keys if kid is None or key.kid == kid]
        return KeySet([keys[0]]) if len(keys) == 1 or (keys and kid is not None) else None

    async def _ask(self) -> None:
        self._asked_at = self._clock()
        try:
            url = self._settings.jwks_url or await self._discover()
            document = await self._get(url)
            keys = document.get("keys")
            if not isinstance(keys, list):
                raise IssuerUnreachable(f"{url} gave no keys")
            self._keys = [key for document in keys if (key := _public_key(document)) is not None]
            self._read_at, self._problem = self._clock(), ""
        except IssuerUnreachable as problem:
            self._problem = str(problem)
            _log.warning("can't get the issuer's keys", issuer=self._settings.issuer, problem=str(problem))

    async def _discover(self) -> str:
        issuer = self._settings.issuer
        url = issuer.rstrip("/") + DISCOVERY
        document = await self._get(url)
        if document.get("issuer") != issuer:
            raise IssuerUnreachable(
                f"{url} is of another issuer: expected {issuer!r}, not {document.get('issuer')!r:.100}"
            )
        jwks_url = document.get("jwks_uri")
        if not isinstance(jwks_url, str):
            raise IssuerUnreachable(f"{url} names no jwks_uri")
        if issuer.startswith("https:") and not jwks_url.startswith("https:"):
            raise IssuerUnreachable(f"{url}: expected a jwks_uri that begins with https:, not {jwks_url!r:.100}")
        return jwks_url

    async def _get(self, url: str) -> dict[str, Any]:
        body = b""
        try:
            async with asyncio.timeout(self._settings.timeout_s), self._http.stream("GET", url) as response:
                if response.status_code != 200:
                    raise IssuerUnreachable(f"{url} answered with {response.status_code}")
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MAX_RESPONSE_BYTES:
                        raise IssuerUnreachable(f"{url} gave more than {MAX_RESPONSE_BYTES:,} bytes")
            document = orjson.loads(body)
        except TimeoutError as error:
            raise IssuerUnreachable(f"{url} did not answer within {self._settings.timeout_s:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise IssuerUnreachable(f"{url} can't be reached ({str(error) or type(error).__name__})") from error
        except ValueError as error:
            raise IssuerUnreachable(f"{url} gave no JSON") from error
        if not isinstance(document, dict):
            raise IssuerUnreachable(f"{url} gave no JSON object")
        return document


def _public_key(jwk: Any) -> RSAKey | ECKey | OKPKey | None:
    """Import a public key for signatures; None if it has another use, an unknown type, or too few bits."""
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig" or jwk.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    if jwk["kty"] == "RSA" and len(str(jwk.get("n"))) * 6 < _MIN_RSA_BITS:
        return None
    try:
        key = import_key(jwk)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return key if isinstance(key, RSAKey | ECKey | OKPKey) else None


def _header(token: str) -> dict[str, Any]:
    """Return the header of a token, which is not verified yet. Raises `HttpProblem` (401) if it is malformed."""
    parts = token.split(".")
    if len(token) > MAX_TOKEN_BYTES or len(parts) != 3 or not token.isascii():
        raise unknown(f"expected an API key (tg_...) or a JWT of at most {MAX_TOKEN_BYTES:,} bytes")
    try:
        header = orjson.loads(base64.urlsafe_b64decode(parts[0] + "=" * (-len(parts[0]) % 4)))
    except ValueError as error:
        raise _refused("its header is not JSON in base64url") from error
    if not isinstance(header, dict):
        raise _refused("its header is not a JSON object")
    return header


def words(claims: Mapping[str, Any], path: str) -> list[str] | None:
    """Return the words of a claim, which is a list or a text with spaces; None if it is neither.

    The path `a.b` means b inside a, unless there is a claim with that whole name.

    >>> words({"realm_access": {"roles": ["provider"]}}, "realm_access.roles")
    ['provider']
    >>> words({"https://city/roles": "consumer police"}, "https://city/roles")
    ['consumer', 'police']
    """
    value: Any = claims
    for name in (path,) if path in claims else path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return value.split()
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else None


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _refused(why: str) -> HttpProblem:
    return unknown(f"the token can't be believed: {why:.300}", 'Bearer error="invalid_token"')
