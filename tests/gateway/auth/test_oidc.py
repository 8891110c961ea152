"""Tokens of a real issuer: which are believed, and why others are not."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from tests.gateway.issuer import TestIssuer, key_of
from tests.gateway.running import World
from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.auth.oidc import MAX_TOKEN_BYTES, Issuer
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.settings import ALGORITHMS, AccessSettings, OidcSettings


@pytest.fixture
def issuer() -> Iterator[TestIssuer]:
    with TestIssuer().running() as found:
        yield found


def checked(settings: OidcSettings, *tokens: str, before: Callable[[int], None] = lambda _: None) -> list[Any]:
    """Return the callers or problems for tokens, in order."""

    async def check() -> list[Any]:
        made = Issuer(settings)
        found: list[Any] = []
        for n, token in enumerate(tokens):
            before(n)
            try:
                found.append(await made.caller(token))
            except HttpProblem as problem:
                found.append(problem)
        await made.close()
        return found

    return asyncio.run(check())


def refusal(issuer: TestIssuer, token: str, **settings: Any) -> str:
    """Why a token is refused: always with 401, and without the token in it."""
    (problem,) = checked(issuer.settings(**settings), token)
    assert isinstance(problem, HttpProblem), problem
    assert problem.status == 401
    assert problem.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    shown = json.dumps(problem.document)
    assert not any(part in shown for part in token.split(".") if len(part) > 8)
    return str(problem.document["detail"]).removeprefix("the token can't be believed: ")


def test_valid_token_identifies_its_caller(issuer: TestIssuer) -> None:
    (caller,) = checked(issuer.settings(), issuer.token(roles=["consumer", "provider", "police"]))
    assert caller == Caller(
        f"{issuer.url}#alice",
        "alice",
        "provider",
        None,
        frozenset({"consumer", "provider", "police"}),
        caller.expires_at,
    )
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


@pytest.mark.parametrize("alg", ALGORITHMS)
def test_every_algorithm_verifies_with_its_key(issuer: TestIssuer, alg: str) -> None:
    issuer.add(alg, key_of(alg))
    (caller,) = checked(issuer.settings(jwks_url=f"{issuer.url}/keys"), issuer.token(alg, alg))
    assert caller.name == "alice"
    assert issuer.asked == ["/keys"]


@pytest.mark.parametrize(
    ("claims", "settings", "expected"),
    [
        ({"roles": "admin other"}, {}, ("admin", None)),
        (
            {"roles": None, "realm_access": {"roles": ["provider"]}},
            {"roles_claim": "realm_access.roles"},
            ("provider", None),
        ),
        ({"https://city.org/roles": ["admin"]}, {"roles_claim": "https://city.org/roles"}, ("admin", None)),
        ({"services": ["gps", "fast"]}, {"services_claim": "services"}, ("consumer", ("gps", "fast"))),
        ({"services": "*"}, {"services_claim": "services"}, ("consumer", None)),
        ({}, {"services_claim": "services"}, ("consumer", ())),
        ({"services": ["gps"]}, {}, ("consumer", None)),
    ],
)
def test_roles_and_services_come_from_the_configured_claims(
    issuer: TestIssuer, claims: dict[str, Any], settings: dict[str, Any], expected: tuple[str, Any]
) -> None:
    (caller,) = checked(issuer.settings(**settings), issuer.token(**claims))
    assert (caller.role, caller.services) == expected


@pytest.mark.parametrize("roles", [None, [], ["police"], 7, {"admin": True}, [["admin"]]])
def test_token_without_a_role_is_refused_with_403(issuer: TestIssuer, roles: Any) -> None:
    (problem,) = checked(issuer.settings(), issuer.token(roles=roles))
    assert (problem.status, problem.document["detail"]) == (
        403,
        "the token of 'alice' has no role here: expected one of consumer, publisher, provider, admin in roles",
    )


NOW = int(time.time())


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": NOW - 400}, "it expired at 20"),
        ({"exp": None}, "it has no exp"),
        ({"exp": None, "aud": None}, "it has no aud, exp"),
        ({"exp": "never"}, "Claim 'exp' must be a NumericDate value"),
        ({"exp": float("nan")}, "its payload is not JSON"),
        ({"nbf": NOW + 40_000}, "The token is not yet valid"),
        ({"iat": NOW + 40_000}, "The token was issued in the future"),
        ({"iss": "https://evil.example.org"}, "iss: expected 'http://127.0.0.1:"),
        ({"aud": "another"}, "aud: expected 'tidegate', not 'another'"),
        ({"aud": ["a", "b"]}, "aud: expected 'tidegate', not ['a', 'b']"),
        ({"aud": {"tidegate": 1}}, "aud: expected 'tidegate', not {'tidegate': 1}"),
        ({"sub": None}, "it has no sub"),
        ({"sub": 7}, "Claim 'sub' must be a StringOrURI value"),
    ],
)
def test_token_with_wrong_claims_is_refused(issuer: TestIssuer, claims: dict[str, Any], why: str) -> None:
    assert why in refusal(issuer, issuer.token(**claims))


def test_expiry_allows_a_small_clock_difference(issuer: TestIssuer) -> None:
    now = int(time.time())
    tokens = [issuer.token(exp=now - 30), issuer.token(nbf=now + 30, iat=now + 30), issuer.token(aud=["x", "tidegate"])]
    assert [each.name for each in checked(issuer.settings(), *tokens)] == ["alice"] * 3
    assert "it expired" in refusal(issuer, tokens[0], leeway_s=5)


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_token_not_signed_by_the_issuer_is_refused(issuer: TestIssuer) -> None:
    good = issuer.token()
    header, claims, signature = good.split(".")
    forged = encoded({**json.loads(base64.urlsafe_b64decode(claims + "==")), "roles": ["admin"]})
    assert refusal(issuer, f"{header}.{forged}.{signature}") == "the signature is not the issuer's"
    other = ECKey.generate_key("P-256", {"kid": "first"})
    stolen = jwt.encode({"alg": "ES256", "kid": "first"}, {"sub": "alice"}, other)
    assert refusal(issuer, stolen) == "the signature is not the issuer's"
    assert refusal(issuer, f"{header}.{claims}.") == "the signature is not the issuer's"


def test_unsigned_and_symmetric_tokens_are_refused(issuer: TestIssuer) -> None:
    claims = issuer.token().split(".")[1]
    expected = f"and not by {', '.join(ALGORITHMS)}"
    none = encoded({"alg": "none"})
    assert refusal(issuer, f"{none}.{claims}.") == f"it is signed by 'none', {expected}"
    # The issuer's public key, taken for a secret: whoever knows it could sign.
    public = OctKey.import_key(json.dumps(issuer.keys["first"].as_dict(private=False)))
    confused = jwt.encode({"alg": "HS256", "kid": "first"}, {"sub": "alice"}, public)
    assert refusal(issuer, confused) == f"it is signed by 'HS256', {expected}"
    for alg in (None, ["ES256"], {"a": 1}, "es256"):
        assert "it is signed by" in refusal(issuer, f"{encoded({'alg': alg, 'kid': 'first'})}.{claims}.AAAA")
    assert refusal(issuer, issuer.token(), algorithms=("RS256",)) == "it is signed by 'ES256', and not by RS256"


def test_key_of_another_algorithm_does_not_verify(issuer: TestIssuer) -> None:
    issuer.add("RS256", key_of("RS256"))
    claims = issuer.token().split(".")[1]
    assert "No key for kid" in refusal(issuer, f"{encoded({'alg': 'PS256', 'kid': 'RS256'})}.{claims}.AAAA")
    assert "requires 'RSA' key" in refusal(issuer, f"{encoded({'alg': 'RS256', 'kid': 'first'})}.{claims}.AAAA")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("a.b.c", "its header is not JSON in base64url"),
        (f"{encoded([1])}.b.c", "its header is not a JSON object"),
        (f"{encoded({'alg': 'ES256', 'crit': ['exp']})}.b.c", "its header asks for extensions (crit, b64)"),
        (f"{encoded({'alg': 'ES256', 'b64': False})}.b.c", "its header asks for extensions (crit, b64)"),
        (f"{encoded({'alg': 'ES256', 'kid': 7})}.e30.AAAA", "must be a str"),
        (base64.urlsafe_b64encode(b"[" * 3000).decode() + ".b.c", "its header is not JSON in base64url"),
    ],
)
def test_malformed_token_is_refused(issuer: TestIssuer, token: str, why: str) -> None:
    assert why in refusal(issuer, token)


@pytest.mark.parametrize("text", ["", "hello", "a.b", "ä.b.c", "a.b." + "c" * MAX_TOKEN_BYTES])
def test_text_that_is_not_a_jwt_is_refused(issuer: TestIssuer, text: str) -> None:
    (problem,) = checked(issuer.settings(), text)
    assert problem.document["detail"] == "expected an API key (tg_...) or a JWT of at most 16,384 bytes"
    assert issuer.asked == []


# Keys ---------------------------------------------------------------------------------------


def test_issuer_keys_are_fetched_once(issuer: TestIssuer) -> None:
    assert len(checked(issuer.settings(), *[issuer.token()] * 5)) == 5
    assert issuer.asked.count("/keys") == 1


def test_new_key_is_fetched_and_unknown_keys_do_not_flood_the_issuer(issuer: TestIssuer) -> None:
    unknown = f"{encoded({'alg': 'ES256', 'kid': 'nobody'})}.b.c"
    first = issuer.token()
    issuer.keys["second"] = ECKey.generate_key("P-256", {"kid": "second"})
    second = issuer.token("second")
    published = dict(issuer.keys)
    del issuer.keys["second"]

    def before(n: int) -> None:
        if n == 1:
            issuer.keys.update(published)  # the issuer changes its keys

    some = checked(issuer.settings(pause_s=0.0), first, second, before=before)
    assert [each.name for each in some] == ["alice", "alice"]
    assert issuer.asked.count("/keys") == 2
    some = checked(issuer.settings(), first, *[unknown] * 20)
    assert [each.document["detail"] for each in some[1:]] == [
        "the token can't be believed: the issuer has no such key: 'nobody'"
    ] * 20
    assert issuer.asked.count("/keys") == 3


def test_concurrent_tokens_share_one_fetch_of_keys(issuer: TestIssuer) -> None:
    async def check() -> int:
        made, token = Issuer(issuer.settings()), issuer.token()
        found = await asyncio.gather(*(made.caller(token) for _ in range(50)))
        await made.close()
        return len(found)

    assert asyncio.run(check()) == 50
    assert issuer.asked.count("/keys") == 1


def test_withdrawn_issuer_key_is_refused(issuer: TestIssuer) -> None:
    token = issuer.token()

    def before(n: int) -> None:
        if n == 1:
            issuer.keys = {"new": ECKey.generate_key("P-256", {"kid": "new"})}

    _, problem = checked(issuer.settings(fresh_s=0.0, pause_s=0.0), token, token, before=before)
    assert problem.document["detail"] == "the token can't be believed: the issuer has no such key: 'first'"


def test_cached_keys_are_used_while_the_issuer_is_down(issuer: TestIssuer) -> None:
    token = issuer.token()

    def before(n: int) -> None:
        issuer.is_down = n > 0

    _, second = checked(issuer.settings(fresh_s=0.0, pause_s=0.0), token, token, before=before)
    assert isinstance(second, Caller)
    _, third = checked(issuer.settings(fresh_s=0.0, pause_s=0.0, stale_s=0.0), token, token, before=before)
    assert third.status == 503


def served(issuer: TestIssuer, path: str, said: Any) -> str:
    issuer.answers[path] = said if isinstance(said, bytes) else json.dumps(said).encode()
    (problem,) = checked(issuer.settings(), issuer.token())
    assert (problem.status, problem.headers["retry-after"]) == (503, "10")
    assert problem.document["type"] == "urn:tidegate:problem:issuer-unreachable"
    return str(problem.document["detail"]).removeprefix("tokens can't be checked now: ").replace(issuer.url, "URL")


DISCOVERY = "/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("path", "said", "why"),
    [
        (
            DISCOVERY,
            {"issuer": "https://other", "jwks_uri": "x"},
            f"URL{DISCOVERY} is of another issuer: expected 'URL', not",
        ),
        (DISCOVERY, [1], f"URL{DISCOVERY} gave no JSON object"),
        (DISCOVERY, b"<html>", f"URL{DISCOVERY} gave no JSON"),
        ("/keys", {"keys": 7}, "URL/keys gave no keys"),
        ("/keys", b"x" * 1_100_000, "URL/keys gave more than 1,048,576 bytes"),
    ],
)
def test_invalid_answer_of_the_issuer_is_reported(issuer: TestIssuer, path: str, said: Any, why: str) -> None:
    assert why in served(issuer, path, said)


def test_discovery_without_jwks_uri_is_reported(issuer: TestIssuer) -> None:
    assert served(issuer, DISCOVERY, {"issuer": issuer.url}) == f"URL{DISCOVERY} names no jwks_uri"


def test_unreachable_issuer_returns_503(issuer: TestIssuer) -> None:
    issuer.is_down = True
    (problem,) = checked(issuer.settings(), issuer.token())
    assert (problem.status, problem.document["detail"]) == (
        503,
        f"tokens can't be checked now: {issuer.url}{DISCOVERY} answered with 503",
    )
    nobody = OidcSettings("http://127.0.0.1:9", "tidegate")
    (problem,) = checked(nobody, issuer.token())
    assert "http://127.0.0.1:9/.well-known/openid-configuration can't be reached" in problem.document["detail"]


def test_unusable_issuer_keys_are_ignored(issuer: TestIssuer) -> None:
    good = issuer.keys["first"].as_dict(private=False)
    small = {"kty": "RSA", "kid": "small", "n": "A" * 170, "e": "AQAB"}
    strange = [7, {"kty": "AKP", "kid": "pq"}, {"kty": "oct", "kid": "o", "k": "AAAA"}, {"kty": "EC", "kid": "first"}]
    issuer.answers["/keys"] = json.dumps({"keys": [*strange, small, good]}).encode()
    (caller,) = checked(issuer.settings(), issuer.token())
    assert caller.name == "alice"
    claims = issuer.token().split(".")[1]
    for kid in ("pq", "o", "small"):
        assert "no such key" in refusal(issuer, f"{encoded({'alg': 'RS256', 'kid': kid})}.{claims}.AAAA")


def test_token_without_kid_needs_a_single_issuer_key(issuer: TestIssuer) -> None:
    nameless = jwt.encode({"alg": "ES256"}, json.loads(_claims(issuer.token())), issuer.keys["first"])
    (caller,) = checked(issuer.settings(), nameless)
    assert caller.name == "alice"
    issuer.add("RS256", RSAKey.generate_key(2048, {"kid": "RS256"}))
    assert refusal(issuer, nameless) == "it names no key (kid), and the issuer has several"


def _claims(token: str) -> bytes:
    return base64.urlsafe_b64decode(token.split(".")[1] + "==")


# Over HTTP ------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path, issuer: TestIssuer) -> Iterator[World]:
    """A gateway that takes keys, and tokens of the issuer."""
    world = World(tmp_path)
    world.needs_keys, world.access = True, AccessSettings(issuer.settings(services_claim="services"))
    with world.running():
        yield world


def test_tokens_and_api_keys_work_over_http(guarded: World, issuer: TestIssuer) -> None:
    _, secret = guarded.registry.create_key("mine", "consumer")
    token = issuer.token(services=["gps"])
    with guarded.client() as http:

        def ask(shown: str, path: str = "/v1/services/gps", how: str = "get") -> Any:
            return http.request(how, path, headers={"authorization": f"Bearer {shown}"})

        assert ask(secret).status_code == ask(token).status_code == ask(token).status_code == 200
        assert http.get("/v1/services/gps", params={"access_token": token}).status_code == 200
        answer = ask(token, "/v1/services/fast")
        assert (answer.status_code, answer.json()["detail"]) == (403, "the token of 'alice' is for gps, not for 'fast'")
        answer = ask(token, how="delete")
        assert "expected the role provider or admin" in answer.json()["detail"]
        answer = ask(issuer.token(exp=NOW - 400))
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
        assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        made = http.post("/v1/services/gps/subscriptions", json={}, headers={"authorization": f"Bearer {token}"}).json()
        other = issuer.token(sub="bob", services=["gps"])
        assert ask(token, f"/v1/subscriptions/{made['id']}").status_code == 200
        assert ask(other, f"/v1/subscriptions/{made['id']}").status_code == 404
        assert ask("tg_nonsense").json()["detail"] == "the API key is not known here"
