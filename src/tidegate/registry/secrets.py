"""Encryption of stored secrets: those of webhooks and links, with a key that is not in the database.

The cipher is AES-256-GCM. Its associated data is the table, row and column, so a ciphertext that is moved to another
row does not decrypt. A registry stores the id of the one key that all its secrets are encrypted with; `reseal` changes
it. A process can read and write secrets if its keyring contains that key, as the first or as a previous one.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tidegate.errors import RegistryError

SEALED = "sealed:1:"
"""The prefix of every encrypted value. The key id follows, then nonce and ciphertext in base64."""
MIN_KEY_CHARACTERS = 32
"""The shortest text of a key; `openssl rand -base64 32` prints 44 characters."""
_NONCE_BYTES = 12


@dataclass(frozen=True)
class SecretKey:
    """An encryption key, derived from a random text. Raises `RegistryError` if the text is too short."""

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.text) < MIN_KEY_CHARACTERS:
            raise RegistryError(
                f"expected a key of at least {MIN_KEY_CHARACTERS} characters for the registry's secrets, not "
                f"{len(self.text)}; make one with: openssl rand -base64 32"
            )

    @cached_property
    def id(self) -> str:
        """Identifies the key without revealing it."""
        return self._derived(b"tidegate registry secrets: id", 8).hex()

    def seal(self, secret: str, location: Sequence[str]) -> str:
        """Encrypt a secret; `location` is the table, row and column where it is stored."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, secret.encode(), _associated_data(location))
        return f"{SEALED}{self.id}:{base64.b64encode(sealed).decode()}"

    def open(self, sealed: str, location: Sequence[str]) -> str:
        """Decrypt a secret. Raises `RegistryError` if it was changed or sealed for another location."""
        try:
            data = base64.b64decode(sealed.removeprefix(SEALED).partition(":")[2], validate=True)
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _associated_data(location)).decode()
        except (InvalidTag, ValueError) as error:
            raise RegistryError(
                f"the secret of {' '.join(location[:2])!r} can't be decrypted: it was changed, or moved from another "
                "row"
            ) from error

    @cached_property
    def _cipher(self) -> AESGCM:
        return AESGCM(self._derived(b"tidegate registry secrets: AES-256-GCM", 32))

    def _derived(self, purpose: bytes, length: int) -> bytes:
        # No salt: it would have to be stored with the key, and the text is random, not a password.
        return HKDF(SHA256(), length, salt=None, info=purpose).derive(self.text.encode())


@dataclass(frozen=True)
class Keyring:
    """The key for new secrets, and previous keys that stored secrets may still be encrypted with."""

    keys: tuple[SecretKey, ...]
    """The first one encrypts new secrets."""
    source: str
    """Where the keys come from, for error messages: `city.yaml: secrets.key`."""

    @property
    def first(self) -> SecretKey:
        """The key for new secrets."""
        return self.keys[0]

    def need(self, id_: str) -> SecretKey:
        """Return the key with an id. Raises `RegistryError` if the keyring does not contain it."""
        for key in self.keys:
            if key.id == id_:
                return key
        key_ids = ", ".join(key.id for key in self.keys)
        raise RegistryError(
            f"the registry's secrets are encrypted with the key {id_}, and {self.source} gives {key_ids}: name the key "
            "that they were encrypted with, as secrets.key or among secrets.previous; nothing was changed"
        )


def no_keyring(id_: str) -> RegistryError:
    """Return the error for a registry with encrypted secrets that is opened without a keyring."""
    return RegistryError(
        f"the registry's secrets are encrypted with the key {id_}, and the profile names none: set secrets: "
        "{key: 'file:PATH'} or {key: 'env:NAME'} in it"
    )


def _associated_data(location: Sequence[str]) -> bytes:
    return "\0".join(location).encode("utf-8", "surrogatepass")
