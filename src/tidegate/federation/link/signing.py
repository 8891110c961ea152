"""Events and offers signed at their origin, so that no broker on the way can forge or alter them.

The records of a batch are the leaves of Merkle trees (RFC 9162) of at most `TREE_LEAVES` each, and the origin signs the
root of each tree with Ed25519. Every record carries the signature and its path to the root, so a broker on the way may
pass on some and leave out others:

    {"_id":"7","_src":"gps@city/1f2e3d4c/0:42","_sig":"<key>.<index>.<leaves>.<time>.<signature>.<path>", ...}

The leaf is the whole record without `_sig`, byte by byte: its id, its time, its values, and in `_src` its service,
origin, generation, partition and offset. So a record can't be moved to another service or position. A repeated record,
or one out of order, has a lower offset than the last record of its source in the mirror, and is dropped. `time` is when
the origin signed it, in microseconds since 1970; by it, events of an old generation are refused after those of a newer
one. One signature per record would take 100 µs to verify, a tree of 16 takes a tenth of that
(`docs/adr/0019-limit-what-is-believed-of-a-neighbour.md`).

An offer carries a JWS (RFC 7515, alg Ed25519) of itself with the time at which it was issued.
"""

from __future__ import annotations

import re
import time
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from cachetools import LRUCache
from cryptography.exceptions import InvalidSignature
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from tidegate.errors import FederationError
from tidegate.federation.link.keys import CURVE, KeyFile, OriginKey, encoded
from tidegate.logs.gap_records import is_gap_record

TREE_LEAVES = 16
"""Records under one signature: each carries 4 hashes, and verifying takes a sixteenth of a signature more."""
MAX_TREE_LEAVES = 1024
"""Leaves of a tree that another broker has signed."""
MAX_SIGNATURE_CHARS = 1_024
"""Length of a record's `_sig`. The path of the largest tree has 10 hashes, which are 430 characters."""
MAX_ROOTS = 256
"""Recently verified roots that are kept: further records of their trees only need hashing."""
OFFER_TYPE = "tidegate-offer"

_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_EVENT = re.compile(rb'(\{"_id":(?:%s|null),"_src":"[^"\\]*")(?:,"_sig":"([\w.-]*)")?(?=[,}])' % _TEXT)
_GAP = re.compile(rb'(\{"_gap":\[[^\]]*\])(?:,"_sig":"([\w.-]*)")?\}')
_DOMAIN = b"tidegate.events.v1\0"


class Signature(NamedTuple):
    """The parsed `_sig` of a record."""

    key: str
    leaf: int
    """Index of the record among the leaves."""
    leaves: int
    time: int
    """Time of the signature, in microseconds since 1970."""
    signature: bytes
    """Signature of the root."""
    path: bytes
    """Sibling hashes from the leaf to the root."""


# Records --------------------------------------------------------------------------------------


def split(record: bytes) -> tuple[bytes, bytes | None]:
    """Return the signed part of a record, and the text of its `_sig`. None: it has none.

    >>> split(b'{"_id":"7","_src":"gps@city/1f/0:42","_sig":"k.0.1.9.x.","speed":61.5}')
    (b'{"_id":"7","_src":"gps@city/1f/0:42","speed":61.5}', b'k.0.1.9.x.')
    """
    front = (_GAP.fullmatch if is_gap_record(record) else _EVENT.match)(record)
    if front is None:
        return record, None
    return front[1] + record[front.end() :] if not is_gap_record(record) else front[1] + b"}", front[2]


def _joined(record: bytes, signature: bytes) -> bytes:
    front = (_GAP.fullmatch if is_gap_record(record) else _EVENT.match)(record)
    if front is None:
        raise FederationError(f"expected a record that begins with its id and place, not {record[:80]!r}")
    rest = b"}" if is_gap_record(record) else record[front.end() :]
    return b'%s,"_sig":"%s"%s' % (front[1], signature, rest)


def sign_records(records: Sequence[bytes], key: OriginKey, now: float, leaves: int = TREE_LEAVES) -> list[bytes]:
    """Return records with signatures, in trees of `leaves` records; `now` is in seconds since 1970."""
    signed: list[bytes] = []
    for at in range(0, len(records), leaves):
        signed += _sign_tree(records[at : at + leaves], key, round(now * 1e6))
    return signed


def _sign_tree(records: Sequence[bytes], key: OriginKey, time_us: int) -> list[bytes]:
    if key.private is None:
        raise FederationError(f"the key {key.id} is public, and can't sign")
    levels = _levels([sha256(b"\0" + record).digest() for record in records])
    root = encoded(key.private.sign(_signed(levels[-1][0], len(records), time_us)))
    return [
        _joined(record, f"{key.id}.{n}.{len(records)}.{time_us}.{root}.{encoded(_path(n, levels))}".encode())
        for n, record in enumerate(records)
    ]


def _signed(root: bytes, leaves: int, time_us: int) -> bytes:
    return _DOMAIN + leaves.to_bytes(4, "big") + time_us.to_bytes(8, "big") + root


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()


def _levels(hashes: list[bytes]) -> list[list[bytes]]:
    """Return the levels of a tree, from its leaves to its root. The last node of an odd level moves up unchanged."""
    levels = [hashes]
    while len(level := levels[-1]) > 1:
        above = [_node(level[n], level[n + 1]) for n in range(0, len(level) - 1, 2)]
        levels.append(above + level[len(above) * 2 :])
    return levels


def _path(index: int, levels: Sequence[Sequence[bytes]]) -> bytes:
    """Return the sibling hashes on the path from a leaf to the root."""
    siblings = []
    for level in levels[:-1]:
        if index ^ 1 < len(level):
            siblings.append(level[index ^ 1])
        index >>= 1
    return b"".join(siblings)


def _root_of(leaf: bytes, index: int, leaves: int, path: bytes) -> bytes | None:
    """Return the root for a leaf and its path. None: the path has the wrong length (RFC 9162, 2.1.3.2)."""
    at, last, node = index, leaves - 1, leaf
    for start in range(0, len(path), 32):
        if last == 0:
            return None
        sibling = path[start : start + 32]
        if at & 1 or at == last:
            node = _node(sibling, node)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            node = _node(node, sibling)
        at, last = at >> 1, last >> 1
    return node if last == 0 else None


def _read_signature(text: bytes) -> Signature | None:
    try:
        if len(text) > MAX_SIGNATURE_CHARS:
            return None
        key, index, leaves, time_us, signature, path = text.decode("ascii").split(".")
        parsed = Signature(key, int(index), int(leaves), int(time_us), _decoded(signature), _decoded(path))
    except (ValueError, NotBase64):
        return None
    is_placed = 0 <= parsed.leaf < parsed.leaves <= MAX_TREE_LEAVES and 0 <= parsed.time < 2**63
    return parsed if is_placed and len(parsed.signature) == 64 and len(parsed.path) % 32 == 0 else None


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def time_of(record: bytes) -> int | None:
    """Return the time in a record's signature, in microseconds, without verifying it. None: it has no signature."""
    text = split(record)[1]
    signature = None if text is None else _read_signature(text)
    return None if signature is None else signature.time


class Verifier:
    """Verifies records with the pinned keys of their origin. Not thread-safe, but threads may use it in turn."""

    def __init__(self, keys: Sequence[OriginKey], clock: Callable[[], float] = time.time) -> None:
        self._keys = {key.id: key for key in keys}
        self._clock = clock
        self._roots: LRUCache[tuple[str, bytes, bytes], bool] = LRUCache(MAX_ROOTS)
        self.forged = 0
        """Number of invalid signatures that name an accepted key. Each of them costs a verification."""

    def signed_at(self, record: bytes) -> int | None:
        """Return the time of a record's signature, in microseconds. None: no currently accepted key has signed it."""
        core, text = split(record)
        signature = None if text is None else _read_signature(text)
        if signature is None:
            return None
        key = self._keys.get(signature.key)
        if key is None or key.is_expired(self._clock()):
            return None
        root = _root_of(sha256(b"\0" + core).digest(), signature.leaf, signature.leaves, signature.path)
        is_valid = root is not None and self._is_root(key, signature, root)
        return signature.time if is_valid else None

    def _is_root(self, key: OriginKey, signature: Signature, root: bytes) -> bool:
        signed = _signed(root, signature.leaves, signature.time)
        cache_key = key.id, signature.signature, signed
        if self._roots.get(cache_key):
            return True
        try:
            key.public.verify(signature.signature, signed)
        except InvalidSignature:
            self.forged += 1
            return False
        self._roots[cache_key] = True
        return True


# Offers ---------------------------------------------------------------------------------------


class Signer:
    """Signs the records and offers of this broker, if it has a key. Any thread may use it."""

    def __init__(self, keys: KeyFile | None, clock: Callable[[], float] = time.time) -> None:
        """Without `keys` nothing is signed."""
        self._keys, self._clock = keys, clock
        self._offers: dict[tuple[str, bytes], dict[str, Any]] = {}

    def records(self, records: Sequence[bytes]) -> Sequence[bytes]:
        """Return records with signatures, or unchanged if there is no key."""
        key = None if self._keys is None else self._keys.signing()
        return records if key is None or not records else sign_records(records, key, self._clock())

    def offers(self, offers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return offers with signatures. An unchanged offer keeps its signature as long as the key is the same."""
        key = None if self._keys is None else self._keys.signing()
        if key is None:
            return [dict(offer) for offer in offers]
        earlier = self._offers
        self._offers = {}
        for offer in offers:
            cache_key = key.id, orjson.dumps(offer, option=orjson.OPT_SORT_KEYS)
            self._offers[cache_key] = earlier.get(cache_key) or {**offer, "jws": sign_offer(offer, key, self._clock())}
        signed = list(self._offers.values())
        self._offers = {**dict(list(earlier.items())[-MAX_ROOTS:]), **self._offers}
        return signed


def sign_offer(offer: Mapping[str, Any], key: OriginKey, now: float) -> str:
    """Sign an offer with the time at which it is issued."""
    payload = orjson.dumps({"offer": dict(offer), "issued": round(now * 1e6)})
    protected = {"alg": CURVE, "kid": key.id, "typ": OFFER_TYPE}
    return jws.serialize_compact(protected, payload, OKPKey.import_key(key.jwk(with_private=True)), algorithms=[CURVE])


def read_signed_offer(document: Mapping[str, Any], keys: Sequence[OriginKey], now: float) -> tuple[dict[str, Any], int]:
    """Return the signed content of an offer and its time, in microseconds. Unsigned members of the offer are ignored.

    Raises a `FederationError` if the signature is missing or invalid, or its key is not pinned or has expired.
    """
    text = document.get("jws")
    if not isinstance(text, str):
        raise FederationError("the offer is not signed")
    usable = {key.id: key for key in keys if not key.is_expired(now)}
    try:
        header = jws.extract_compact(text.encode()).headers()
        key = usable.get(str(header.get("kid")))
        if key is None or header.get("typ") != OFFER_TYPE:
            raise FederationError("the offer is signed with a key that is not pinned, or has expired")
        verified = jws.deserialize_compact(text, OKPKey.import_key(key.jwk()), algorithms=[CURVE])
        payload = orjson.loads(verified.payload)
        offer, issued = payload["offer"], payload["issued"]
    except (JoseError, ValueError, KeyError, TypeError):
        raise FederationError("the signature of the offer is not valid") from None
    if not isinstance(offer, dict) or type(issued) is not int:
        raise FederationError("the signature of the offer is not valid")
    return offer, issued
