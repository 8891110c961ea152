"""Ed25519 keys of origins, as JWK sets (RFC 7517, RFC 8037): a broker's own private keys, and pinned public keys.

A key has two members beside the usual ones: `nbf`, before which the origin does not sign with it, and `exp`, after
which nobody accepts it; both in seconds since 1970. A key id is the beginning of the key's thumbprint (RFC 7638), so
nobody can choose one.
"""

from __future__ import annotations

import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

import orjson
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from tidegate.errors import FederationError

CURVE = "Ed25519"
MAX_KEYS = 16
"""Keys of one set: two while a key is rotated, and some that only verify what was signed before."""
MAX_SET_BYTES = 64 * 1024
KEY_ID_CHARS = 16
"""Of the thumbprint: 96 bits."""
RELOAD_INTERVAL_S = 1.0
"""Between two looks whether the file of keys has changed."""

_log = structlog.get_logger("tidegate.link")


@dataclass(frozen=True, slots=True)
class OriginKey:
    """A key that an origin signs with, or the public half of one."""

    id: str
    public: Ed25519PublicKey = field(repr=False, compare=False)
    private: Ed25519PrivateKey | None = field(default=None, repr=False, compare=False)
    not_before: int | None = None
    expires: int | None = None

    def is_expired(self, now: float) -> bool:
        """Say whether nobody accepts the key any more."""
        return self.expires is not None and self.expires <= now

    def may_sign(self, now: float) -> bool:
        """Say whether the origin signs with the key at this time."""
        has_begun = self.not_before is None or self.not_before <= now
        return self.private is not None and has_begun and not self.is_expired(now)

    def jwk(self, *, with_private: bool = False) -> dict[str, Any]:
        """Return the key as JSON has it; without its private half unless that is asked for."""
        said: dict[str, Any] = {"kty": "OKP", "crv": CURVE, "x": encoded(self.public.public_bytes_raw())}
        if with_private and self.private is not None:
            said["d"] = encoded(self.private.private_bytes_raw())
        said |= {"kid": self.id, "use": "sig", "alg": CURVE}
        times = {"nbf": self.not_before, "exp": self.expires}
        return said | {name: value for name, value in times.items() if value is not None}


def new_key(not_before: int | None = None) -> OriginKey:
    """Make a key."""
    private = Ed25519PrivateKey.generate()
    return OriginKey(_key_id(private.public_key()), private.public_key(), private, not_before)


def read_key_set(text: str | bytes, where: str, *, private: bool) -> tuple[OriginKey, ...]:
    """Read a JWK set, or a single JWK; `where` it comes from, for messages, which never show a key.

    With `private` every key must have its private half; without, none may have it.
    """
    if len(text) > MAX_SET_BYTES:
        raise FederationError(f"{where}: expected a JWK set of at most {MAX_SET_BYTES:,} bytes, not {len(text):,}")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise FederationError(f"{where}: expected a JWK set in JSON, as `tidegate link key show` prints it") from None
    keys = document.get("keys", [document]) if isinstance(document, dict) else document
    if not isinstance(keys, list) or not 0 < len(keys) <= MAX_KEYS:
        raise FederationError(
            f"{where}: expected a JWK set with 1 to {MAX_KEYS} keys, as `tidegate link key show` prints"
        )
    return tuple(_read_key(each, f"{where}: key {n}", private=private) for n, each in enumerate(keys, 1))


def _read_key(said: Any, where: str, *, private: bool) -> OriginKey:
    if not isinstance(said, Mapping) or said.get("kty") != "OKP" or said.get("crv") != CURVE:
        raise FederationError(f"{where}: expected a JWK with kty OKP and crv {CURVE}")
    if private and "d" not in said:
        raise FederationError(f"{where}: expected a private key, and this one has no member d")
    if not private and "d" in said:
        raise FederationError(
            f"{where}: expected a public key, and this one is private: pass what `tidegate link key show` prints"
        )
    times = {}
    for name in ("nbf", "exp"):
        value = said.get(name)
        if value is not None and type(value) is not int:
            raise FederationError(f"{where}: {name}: expected seconds since 1970, not {value!r:.40}")
        times[name] = value
    try:
        found = OKPKey.import_key({name: said[name] for name in ("kty", "crv", "x", "d") if name in said})
        public, secret = found.public_key, found.private_key if private else None
    except (JoseError, KeyError, TypeError, ValueError):
        raise FederationError(f"{where}: expected x, and d if it is private, of 32 bytes in base64url") from None
    if not isinstance(public, Ed25519PublicKey) or not isinstance(secret, Ed25519PrivateKey | None):
        raise FederationError(f"{where}: expected a key of the curve {CURVE}")
    return OriginKey(_key_id(public), public, secret, times["nbf"], times["exp"])


def _key_id(public: Ed25519PublicKey) -> str:
    jwk: dict[str, str | list[str]] = {"kty": "OKP", "crv": CURVE, "x": encoded(public.public_bytes_raw())}
    return OKPKey.import_key(jwk).thumbprint()[:KEY_ID_CHARS]


def encoded(raw: bytes) -> str:
    """Encode bytes as base64url without padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def key_set(keys: Sequence[OriginKey], *, with_private: bool = False) -> str:
    """Write a JWK set; without private halves unless they are asked for."""
    said = {"keys": [each.jwk(with_private=with_private) for each in keys]}
    return orjson.dumps(said, option=orjson.OPT_INDENT_2).decode() + "\n"


# The file with a broker's own keys ----------------------------------------------------------


def create_key_file(path: Path) -> OriginKey:
    """Write a first key to a file that only its owner can read; refused where there is one."""
    key = new_key()
    if path.exists():
        raise FederationError(f"{path} has keys already: use `tidegate link key rotate` to replace the one that signs")
    _write(path, [key])
    return key


def rotate_key_file(path: Path, now: float, after_s: float, keep_s: float) -> OriginKey:
    """Add a key that signs from `after_s` seconds on; those before it end `keep_s` seconds later.

    Whoever has pinned the old keys gets the time until then to pin the new one, too.
    """
    begin = round(now + after_s)
    end = round(begin + keep_s)
    old = [each for each in read_key_file(path) if not each.is_expired(now)]
    kept = [each if each.expires is not None and each.expires < end else replace(each, expires=end) for each in old]
    key = new_key(begin)
    _write(path, [*kept[-(MAX_KEYS - 1) :], key])
    return key


def read_key_file(path: Path) -> tuple[OriginKey, ...]:
    """Read a broker's own keys; refused where others than their owner can read them."""
    try:
        mode = path.stat().st_mode
        text = path.read_bytes()
    except FileNotFoundError:
        raise FederationError(f"there is no key in {path}: make one with `tidegate link key create`") from None
    except OSError as exc:
        raise FederationError(f"can't read the signing keys in {path}: {exc.strerror}") from None
    if mode & 0o077:
        raise FederationError(f"{path} can be read by others than its owner: chmod 600 {path}, and rotate the key")
    return read_key_set(text, str(path), private=True)


def _write(path: Path, keys: Sequence[OriginKey]) -> None:
    """Write keys in place of what was there: all or nothing, readable by their owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(key_set(keys, with_private=True))
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


class KeyFile:
    """The keys that a broker signs with, read again when their file changes. Any thread may ask."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._keys: tuple[OriginKey, ...] = ()
        self._stamp: tuple[int, int] | None = None
        self._looked_at: float | None = None
        self._lock = Lock()

    def signing(self) -> OriginKey | None:
        """Return the newest key that may sign now; None: there is none, and nothing is signed."""
        now = self._clock()
        usable = [each for each in self._read() if each.may_sign(now)]
        return max(usable, key=lambda each: each.not_before or 0, default=None)

    def _read(self) -> tuple[OriginKey, ...]:
        with self._lock:
            now = time.monotonic()
            if self._looked_at is not None and now - self._looked_at < RELOAD_INTERVAL_S:
                return self._keys
            self._looked_at = now
            try:
                stat = self._path.stat()
            except OSError:
                self._keys, self._stamp = (), None
                return self._keys
            stamp = stat.st_mtime_ns, stat.st_ino
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._keys = read_key_file(self._path)
                except FederationError as problem:  # what was read before goes on to sign
                    _log.warning("can't read the signing keys", problem=str(problem))
            return self._keys
