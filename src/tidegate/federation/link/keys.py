"""Ed25519 keys of origins, as JWK sets (RFC 7517, RFC 8037): a broker's own private keys, and pinned public keys.

A key has two more members than usual: the origin does not sign with it before `nbf`, and no broker accepts it after
`exp`; both in seconds since 1970. A key id is the beginning of the key's thumbprint (RFC 7638), so it can't be chosen.
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
"""Keys in one set: two during a rotation, and some older ones that only verify."""
MAX_SET_BYTES = 64 * 1024
KEY_ID_CHARS = 16
"""Characters of the thumbprint in a key id: 96 bits."""
RELOAD_INTERVAL_S = 1.0
"""How often the key file is checked for changes, at most."""

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
        """True if the key is no longer accepted."""
        return self.expires is not None and self.expires <= now

    def may_sign(self, now: float) -> bool:
        """True if the origin may sign with the key at this time."""
        has_begun = self.not_before is None or self.not_before <= now
        return self.private is not None and has_begun and not self.is_expired(now)

    def jwk(self, *, with_private: bool = False) -> dict[str, Any]:
        """Return the key as a JWK, with its private half only if `with_private` is set."""
        jwk: dict[str, Any] = {"kty": "OKP", "crv": CURVE, "x": encoded(self.public.public_bytes_raw())}
        if with_private and self.private is not None:
            jwk["d"] = encoded(self.private.private_bytes_raw())
        jwk |= {"kid": self.id, "use": "sig", "alg": CURVE}
        times = {"nbf": self.not_before, "exp": self.expires}
        return jwk | {name: value for name, value in times.items() if value is not None}


def new_key(not_before: int | None = None) -> OriginKey:
    """Generate a key pair."""
    private = Ed25519PrivateKey.generate()
    return OriginKey(_key_id(private.public_key()), private.public_key(), private, not_before)


def read_key_set(text: str | bytes, where: str, *, private: bool) -> tuple[OriginKey, ...]:
    """Read a JWK set or a single JWK. `where` names its source in error messages, which never show a key.

    With `private` every key must have its private half, otherwise none may. Raises a `FederationError` if it is
    malformed.
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
    return tuple(_read_key(jwk, f"{where}: key {n}", private=private) for n, jwk in enumerate(keys, 1))


def _read_key(jwk: Any, where: str, *, private: bool) -> OriginKey:
    if not isinstance(jwk, Mapping) or jwk.get("kty") != "OKP" or jwk.get("crv") != CURVE:
        raise FederationError(f"{where}: expected a JWK with kty OKP and crv {CURVE}")
    if private and "d" not in jwk:
        raise FederationError(f"{where}: expected a private key, and this one has no member d")
    if not private and "d" in jwk:
        raise FederationError(
            f"{where}: expected a public key, and this one is private: pass what `tidegate link key show` prints"
        )
    times = {}
    for name in ("nbf", "exp"):
        value = jwk.get(name)
        if value is not None and type(value) is not int:
            raise FederationError(f"{where}: {name}: expected seconds since 1970, not {value!r:.40}")
        times[name] = value
    try:
        key = OKPKey.import_key({name: jwk[name] for name in ("kty", "crv", "x", "d") if name in jwk})
        public, secret = key.public_key, key.private_key if private else None
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
    """Return a JWK set as text, with private halves only if `with_private` is set."""
    document = {"keys": [key.jwk(with_private=with_private) for key in keys]}
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"


# The file with a broker's own keys ----------------------------------------------------------


def create_key_file(path: Path) -> OriginKey:
    """Create a key file with a first key, readable by its owner only. Raises a `FederationError` if it exists."""
    key = new_key()
    if path.exists():
        raise FederationError(f"{path} has keys already: use `tidegate link key rotate` to replace the one that signs")
    _write(path, [key])
    return key


def rotate_key_file(path: Path, now: float, after_s: float, keep_s: float) -> OriginKey:
    """Add a key that starts to sign in `after_s` seconds. The older keys expire `keep_s` seconds after that.

    Operators of brokers that pinned the old keys have `after_s` seconds to pin the new one as well.
    """
    begin = round(now + after_s)
    end = round(begin + keep_s)
    valid = [key for key in read_key_file(path) if not key.is_expired(now)]
    old = [key if key.expires is not None and key.expires < end else replace(key, expires=end) for key in valid]
    key = new_key(begin)
    _write(path, [*old[-(MAX_KEYS - 1) :], key])
    return key


def read_key_file(path: Path) -> tuple[OriginKey, ...]:
    """Read a broker's own keys. Raises a `FederationError` if the file is missing, malformed or readable by others."""
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
    """Replace a key file atomically. Only its owner can read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(key_set(keys, with_private=True))
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


class KeyFile:
    """The keys that a broker signs with, read again when their file changes. Thread-safe."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._keys: tuple[OriginKey, ...] = ()
        self._stamp: tuple[int, int] | None = None
        self._checked_at: float | None = None
        self._lock = Lock()

    def signing(self) -> OriginKey | None:
        """Return the newest key that may sign now. None: there is none, and nothing is signed."""
        now = self._clock()
        usable = [key for key in self._read() if key.may_sign(now)]
        return max(usable, key=lambda key: key.not_before or 0, default=None)

    def _read(self) -> tuple[OriginKey, ...]:
        with self._lock:
            now = time.monotonic()
            if self._checked_at is not None and now - self._checked_at < RELOAD_INTERVAL_S:
                return self._keys
            self._checked_at = now
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
                except FederationError as problem:  # the keys that were read before stay in use
                    _log.warning("can't read the signing keys", problem=str(problem))
            return self._keys
