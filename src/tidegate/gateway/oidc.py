"""Bearer tokens of an OpenID Connect issuer: JWTs, checked against the keys that it publishes.

A token is believed when a key of the issuer's has signed it, by an algorithm
that needs a key which just the issuer has, for us, and for now. Whatever is
wrong is said, and the token never repeated: it may be good elsewhere.
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

from tidegate.gateway.callers import Caller, unknown
from tidegate.gateway.problems import Problem, forbidden
from tidegate.gateway.rights import RIGHTS
from tidegate.gateway.settings import OidcSettings
from tidegate.registry import Role

MOST_BYTES = 16 * 1024
"""Of a token."""
MOST_ANSWER_BYTES = 1024 * 1024
"""Of what an issuer says."""
_LEAST_RSA_BITS = 2048
"""Shorter keys can be broken."""
DISCOVERY = "/.well-known/openid-configuration"

_log = structlog.get_logger("tidegate.gateway")


class Unreachable(Exception):  # noqa: N818 - what the issuer is
    """An issuer's keys can't be had now."""


class Issuer:
    """Says whose a token is."""

    def __init__(self, settings: OidcSettings, now: Callable[[], float] = time.time) -> None:
        """`now` is the time as tokens have it."""
        self._settings, self._now = settings, now
        self._keys = Keys(settings)
        self._signatures = _Signatures(algorithms=settings.algorithms, strict_check_header=False)

    async def close(self) -> None:
        """Let go of connections."""
        await self._keys.close()

    async def caller(self, token: str) -> Caller:
        """Whose token this is; a problem where it is not to be believed."""
        header = _header(token)
        algorithm = header.get("alg")
        if algorithm not in self._settings.algorithms:
            raise _refused(f"it is signed by {algorithm!r:.40}, and not by {', '.join(self._settings.algorithms)}")
        if "crit" in header or "b64" in header:
            raise _refused("its header asks for extensions (crit, b64) that are not known here")
        claims = self._verified(token, await self._key(header))
        self._check(claims)
        return self._made(claims)

    async def _key(self, header: Mapping[str, Any]) -> KeySet:
        """The one key that has signed, or says it has; of several keys a token has to name one."""
        kid = header.get("kid")
        try:
            found = await self._keys.find(kid if isinstance(kid, str) else None)
        except Unreachable as problem:
            detail = f"tokens can't be checked now: {problem}"
            raise Problem(
                503, "issuer-unreachable", "The issuer can't be reached", detail, headers={"retry-after": "10"}
            ) from problem
        if found is None:
            said = "it names no key (kid), and the issuer has several" if kid is None else "the issuer has no such key"
            raise _refused(said if kid is None else f"{said}: {kid!r:.60}")
        return found

    def _verified(self, token: str, keys: KeySet) -> dict[str, Any]:
        try:
            signed = jws.deserialize_compact(token, keys, registry=self._signatures)
            claims = orjson.loads(signed.payload)
        except (JoseError, ValueError) as error:
            why = error.description if isinstance(error, JoseError) else "what it says is not JSON"
            raise _refused(why.rstrip(".") or "the signature is not the issuer's") from error
        if not isinstance(claims, dict):
            raise _refused("what it says is not a JSON object")
        return claims

    def _check(self, claims: dict[str, Any]) -> None:
        """Refuse what is of another, for another, or not for now."""
        settings = self._settings
        wanted = JWTClaimsRegistry(
            now=lambda: int(self._now()),
            leeway=settings.leeway_s,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.audience},
            exp={"essential": True},
            sub={"essential": True},
        )
        expected = {"iss": settings.issuer, "aud": settings.audience}
        try:
            wanted.validate(claims)
        except MissingClaimError as error:
            raise _refused(f"it has no {error.claim.replace(',', ', ')}") from error
        except ExpiredTokenError as error:
            raise _refused(f"it expired at {_moment(claims['exp'])}") from error
        except JoseError as error:
            claim = getattr(error, "claim", "")
            if claim in expected:
                raise _refused(f"{claim}: expected {expected[claim]!r}, not {claims[claim]!r:.100}") from error
            raise _refused(error.description) from error

    def _made(self, claims: Mapping[str, Any]) -> Caller:
        settings, subject = self._settings, str(claims["sub"])
        groups = words(claims, settings.roles_claim) or ()
        role = next((each for each in reversed(get_args(Role)) if each in groups), None)  # `may` heeds them all
        if role is None:
            wanted = ", ".join(RIGHTS)
            detail = (
                f"the token of {subject!r:.60} has no role here: expected one of {wanted} in {settings.roles_claim}"
            )
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
    max_header_length = 8192  # of base64: some issuers put certificates in
    max_payload_length = MOST_BYTES

    def get_alg(self, name: str) -> Any:
        """How a token is signed; `EdDSA` without the warning that its name is deprecated, as it is much used."""
        return self.algorithms[name] if name in (self.allowed or ()) else super().get_alg(name)


class Keys:
    """The keys of an issuer, asked for when they are needed, and not too often."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._keys: list[RSAKey | ECKey | OKPKey] = []
        self._read_at: float | None = None
        """When the keys came."""
        self._asked_at: float | None = None
        """When they were asked for last, with whatever outcome."""
        self._problem = ""
        self._asking = asyncio.Lock()
        self._http = httpx.AsyncClient(timeout=settings.timeout_s, follow_redirects=False)

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.aclose()

    async def find(self, kid: str | None) -> KeySet | None:
        """The key of a name, or the only one there is; None: the issuer has no such key."""
        if self._age() > self._settings.fresh_s or self._of(kid) is None:
            async with self._asking:
                # Whoever waited here for another's answer finds what they look for, or that it was just asked for.
                may_ask = self._asked_at is None or self._clock() - self._asked_at >= self._settings.pause_s
                if may_ask and (self._age() > self._settings.fresh_s or self._of(kid) is None):
                    await self._ask()
        found = self._of(kid)
        if self._age() > self._settings.stale_s or (found is None and self._problem):
            raise Unreachable(self._problem)
        return found

    def _age(self) -> float:
        return float("inf") if self._read_at is None else self._clock() - self._read_at

    def _of(self, kid: str | None) -> KeySet | None:
        here = [each for each in self._keys if kid is None or each.kid == kid]
        return KeySet([here[0]]) if len(here) == 1 or (here and kid is not None) else None

    async def _ask(self) -> None:
        self._asked_at = self._clock()
        try:
            url = self._settings.jwks_url or await self._discover()
            document = await self._get(url)
            keys = document.get("keys")
            if not isinstance(keys, list):
                raise Unreachable(f"{url} gave no keys")
            self._keys = [found for each in keys if (found := _public(each)) is not None]
            self._read_at, self._problem = self._clock(), ""
        except Unreachable as problem:
            self._problem = str(problem)
            _log.warning("can't get the issuer's keys", issuer=self._settings.issuer, problem=str(problem))

    async def _discover(self) -> str:
        issuer = self._settings.issuer
        url = issuer.rstrip("/") + DISCOVERY
        said = await self._get(url)
        if said.get("issuer") != issuer:
            raise Unreachable(f"{url} is of another issuer: expected {issuer!r}, not {said.get('issuer')!r:.100}")
        found = said.get("jwks_uri")
        if not isinstance(found, str):
            raise Unreachable(f"{url} names no jwks_uri")
        if issuer.startswith("https:") and not found.startswith("https:"):
            raise Unreachable(f"{url}: expected a jwks_uri that begins with https:, not {found!r:.100}")
        return found

    async def _get(self, url: str) -> dict[str, Any]:
        body = b""
        try:
            async with asyncio.timeout(self._settings.timeout_s), self._http.stream("GET", url) as answer:
                if answer.status_code != 200:
                    raise Unreachable(f"{url} answered with {answer.status_code}")
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > MOST_ANSWER_BYTES:
                        raise Unreachable(f"{url} gave more than {MOST_ANSWER_BYTES:,} bytes")
            said = orjson.loads(body)
        except TimeoutError as error:
            raise Unreachable(f"{url} did not answer within {self._settings.timeout_s:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"{url} can't be reached ({str(error) or type(error).__name__})") from error
        except ValueError as error:
            raise Unreachable(f"{url} gave no JSON") from error
        if not isinstance(said, dict):
            raise Unreachable(f"{url} gave no JSON object")
        return said


def _public(said: Any) -> RSAKey | ECKey | OKPKey | None:
    """A key that signatures can be checked with; None: of a kind that is not for that, or not known."""
    if not isinstance(said, dict) or said.get("use", "sig") != "sig" or said.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    if said["kty"] == "RSA" and len(str(said.get("n"))) * 6 < _LEAST_RSA_BITS:
        return None
    try:
        found = import_key(said)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return found if isinstance(found, RSAKey | ECKey | OKPKey) else None


def _header(token: str) -> dict[str, Any]:
    """What a token says of its signature; nothing of it is believed yet."""
    parts = token.split(".")
    if len(token) > MOST_BYTES or len(parts) != 3 or not token.isascii():
        raise unknown(f"expected an API key (tg_...) or a JWT of at most {MOST_BYTES:,} bytes")
    try:
        found = orjson.loads(base64.urlsafe_b64decode(parts[0] + "=" * (-len(parts[0]) % 4)))
    except ValueError as error:
        raise _refused("its header is not JSON in base64url") from error
    if not isinstance(found, dict):
        raise _refused("its header is not a JSON object")
    return found


def words(claims: Mapping[str, Any], path: str) -> list[str] | None:
    """The words of a claim, a list or a text with spaces; `a.b` is b inside a, unless a claim is called so.

    >>> words({"realm_access": {"roles": ["provider"]}}, "realm_access.roles")
    ['provider']
    >>> words({"https://city/roles": "consumer police"}, "https://city/roles")
    ['consumer', 'police']
    """
    found: Any = claims
    for name in (path,) if path in claims else path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return found.split()
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else None


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _refused(why: str) -> Problem:
    return unknown(f"the token can't be believed: {why:.300}", 'Bearer error="invalid_token"')
