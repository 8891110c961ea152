"""Keys of origins, and what they sign."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import FederationError
from tidegate.federation.link.bounds import Bounds
from tidegate.federation.link.keys import (
    KeyFile,
    OriginKey,
    create_key_file,
    key_set,
    new_key,
    read_key_file,
    read_key_set,
    rotate_key_file,
)
from tidegate.federation.link.offers import within_bounds
from tidegate.federation.link.signing import Signer, Verifier, sign_offer, sign_records, split, time_of
from tidegate.federation.routes.topology import MAX_HOPS, MAX_PATHS, paths_for
from tidegate.logs.gap_records import GapRecord

KEY, OTHER = new_key(), new_key()
NOW = 1_000_000.0


def record(n: int) -> bytes:
    return b'{"_id":"%d","_src":"gps@a/g1/p0:%d","speed":1.0}' % (n, n * 10)


def accepted(verifier: Verifier, record: bytes) -> bool:
    return verifier.signed_at(record) is not None


@given(st.integers(1, 70), st.integers(1, 33))
def test_every_record_of_every_tree_verifies_alone(count: int, leaves: int) -> None:
    records = [record(n) for n in range(count)]
    signed = sign_records(records, KEY, NOW, leaves)
    assert [split(each)[0] for each in signed] == records
    assert all(Verifier([KEY]).signed_at(each) == NOW * 1e6 == time_of(each) for each in signed)
    assert not any(accepted(Verifier([OTHER]), each) for each in signed)


@given(st.integers(1, 20), st.data())
def test_record_with_any_changed_byte_does_not_verify(count: int, data: st.DataObject) -> None:
    signed = data.draw(st.sampled_from(sign_records([record(n) for n in range(count)], KEY, NOW)))
    at = data.draw(st.integers(0, len(signed) - 1))
    changed = (
        signed[:at] + bytes([data.draw(st.integers(0, 255).filter(lambda byte: byte != signed[at]))]) + signed[at + 1 :]
    )
    is_same = split(changed)[0] == split(signed)[0]  # else the unused bits at the end of a base64 text were changed
    assert is_same or not accepted(Verifier([KEY]), changed)


def test_gap_record_is_signed_like_an_event() -> None:
    (signed,) = sign_records([GapRecord("gps@a/g1/p0", 3, 9).encode()], KEY, NOW)
    assert accepted(Verifier([KEY]), signed)
    assert not accepted(Verifier([KEY]), signed.replace(b"3,9", b"3,99"))


def test_public_key_does_not_sign() -> None:
    (public,) = read_key_set(key_set([KEY]), "x", private=False)
    with pytest.raises(FederationError, match="is public, and can't sign"):
        sign_records([record(1)], public, NOW)


def test_expired_key_is_not_accepted() -> None:
    key = OriginKey(KEY.id, KEY.public, KEY.private, expires=round(NOW))
    (signed,) = sign_records([record(1)], key, NOW - 10)
    assert accepted(Verifier([key], lambda: NOW - 1), signed)
    assert not accepted(Verifier([key], lambda: NOW), signed)


def test_same_offer_is_signed_once(tmp_path: Path) -> None:
    create_key_file(tmp_path / "keys")
    signer = Signer(KeyFile(tmp_path / "keys"))
    offer = {"name": "gps@a"}
    assert signer.offers([offer]) == signer.offers([offer])
    assert signer.offers([offer])[0]["jws"].count(".") == 2
    assert Signer(None).offers([offer]) == [offer]
    assert Signer(KeyFile(tmp_path / "none")).records([record(1)]) == [record(1)]
    assert sign_offer(offer, KEY, NOW) != sign_offer(offer, KEY, NOW + 1)


def test_rotated_key_takes_over_and_the_old_one_ends_later(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    old = create_key_file(path)
    new = rotate_key_file(path, NOW, after_s=100, keep_s=50)
    clock = [NOW]

    def signs() -> str | None:
        found = KeyFile(path, lambda: clock[0]).signing()
        return None if found is None else found.id

    assert signs() == old.id
    clock[0] = NOW + 100
    assert signs() == new.id
    ends = {each.id: each.expires for each in read_key_file(path)}
    assert ends == {old.id: NOW + 150, new.id: None}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    rotate_key_file(path, NOW + 151, after_s=0, keep_s=0)
    assert next(each.id for each in read_key_file(path)) == new.id, "an expired key is let go of"


def jwk(**changes: Any) -> str:
    return json.dumps({"keys": [{**KEY.jwk(), **changes}]})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "here: expected a JWK set in JSON, as `tidegate link key show` prints it"),
        ("[]", "here: expected a JWK set with 1 to 16 keys"),
        (json.dumps({"keys": [KEY.jwk()] * 17}), "here: expected a JWK set with 1 to 16 keys"),
        ("[" + " " * 70_000 + "]", "here: expected a JWK set of at most 65,536 bytes, not 70,002"),
        (jwk(kty="RSA"), "here: key 1: expected a JWK with kty OKP and crv Ed25519"),
        (jwk(crv="X25519"), "here: key 1: expected a JWK with kty OKP and crv Ed25519"),
        (jwk(x="AAAA"), "here: key 1: expected x, and d if it is private, of 32 bytes in base64url"),
        (jwk(exp="soon"), "here: key 1: exp: expected seconds since 1970, not 'soon'"),
        (key_set([KEY], with_private=True), "here: key 1: expected a public key, and this one is private"),
    ],
    ids=["no JSON", "no keys", "many keys", "size", "kty", "crv", "x", "exp", "private"],
)
def test_malformed_public_key_set_is_refused(text: str, problem: str) -> None:
    with pytest.raises(FederationError) as error:
        read_key_set(text, "here", private=False)
    assert problem in str(error.value)


def test_key_id_is_always_the_thumbprint() -> None:
    (found,) = read_key_set(jwk(kid="of-my-choice"), "here", private=False)
    assert found.id == KEY.id


def test_private_keys_that_others_can_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with pytest.raises(FederationError, match="make one with `tidegate link key create`"):
        read_key_file(path)
    create_key_file(path)
    with pytest.raises(FederationError, match="has keys already: use `tidegate link key rotate`"):
        create_key_file(path)
    path.chmod(0o640)
    with pytest.raises(FederationError, match="can be read by others than its owner: chmod 600"):
        read_key_file(path)
    path.chmod(0o600)
    path.write_text(key_set([KEY]))
    with pytest.raises(FederationError, match="expected a private key, and this one has no member d"):
        read_key_file(path)


def test_offers_of_all_links_share_the_limits() -> None:
    own = [{"name": f"o{n}"} for n in range(3)]
    greedy, modest = ([{"name": f"{name}{n}"} for n in range(count)] for name, count in (("g", 50), ("m", 2)))
    found = [each["name"] for each in within_bounds(own, [greedy, modest], Bounds(services=10))]
    assert found == ["o0", "o1", "o2", "m0", "m1", "g0", "g1", "g2", "g3", "g4"]
    small = within_bounds(own, [greedy], Bounds(offer_values=8))
    assert [each["name"] for each in small] == ["o0", "o1", "o2", "g0"], "an object and a text are two values"


def test_paths_of_all_links_share_the_limit() -> None:
    greedy = [("g",), *(("g", f"x{n}") for n in range(MAX_PATHS - 1))]
    deep = [("d", *(f"y{n}" for n in range(MAX_HOPS - 1)))]
    found = paths_for("me", {"g": greedy, "m": [("m",), ("m", "n")], "d": deep}, "other")
    assert len(found) <= MAX_PATHS
    assert {("me", "m"), ("me", "m", "n"), ("me", "g")} <= set(found)
    assert max(map(len, found)) <= MAX_HOPS
