"""Secrets at rest: what webhooks and links are signed with, encrypted with a key that is not in the database.

AES-256-GCM. The associated data names the table, the row and the column, so that a ciphertext that is moved to another
row does not open. A registry names the one key that all its secrets are encrypted with; `reseal` changes it. Whoever
has that key, as the first or as a previous one, can read and write.
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
"""The start of every encrypted value; then the id of its key, and nonce and ciphertext in base64."""
MIN_KEY_CHARACTERS = 32
"""Of a key's text: `openssl rand -base64 32` gives 44."""
_NONCE_BYTES = 12


@dataclass(frozen=True)
class SecretKey:
    """One key, made from a text of any form that is long enough."""

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.text) < MIN_KEY_CHARACTERS:
            raise RegistryError(
                f"expected a key of at least {MIN_KEY_CHARACTERS} characters for the registry's secrets, not "
                f"{len(self.text)}; make one with: openssl rand -base64 32"
            )

    @cached_property
    def id(self) -> str:
        """Tells keys apart without telling the key."""
        return self._derived(b"tidegate registry secrets: id", 8).hex()

    def seal(self, secret: str, place: Sequence[str]) -> str:
        """Encrypt a secret for a table, a row and a column."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, secret.encode(), _bound(place))
        return f"{SEALED}{self.id}:{base64.b64encode(sealed).decode()}"

    def open(self, sealed: str, place: Sequence[str]) -> str:
        """Decrypt what was sealed for the same place."""
        try:
            data = base64.b64decode(sealed.removeprefix(SEALED).partition(":")[2], validate=True)
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _bound(place)).decode()
        except (InvalidTag, ValueError) as error:
            raise RegistryError(
                f"the secret of {' '.join(place[:2])!r} can't be decrypted: it was changed, or moved from another row"
            ) from error

    @cached_property
    def _cipher(self) -> AESGCM:
        return AESGCM(self._derived(b"tidegate registry secrets: AES-256-GCM", 32))

    def _derived(self, purpose: bytes, length: int) -> bytes:
        # A salt would have to be stored with the key; the text is random, not a password.
        return HKDF(SHA256(), length, salt=None, info=purpose).derive(self.text.encode())


@dataclass(frozen=True)
class Keyring:
    """The key that new secrets should be encrypted with, and those that older ones may still be."""

    keys: tuple[SecretKey, ...]
    """The first is the one for new secrets."""
    source: str
    """Where they come from, for messages: `city.yaml: secrets.key`."""

    @property
    def first(self) -> SecretKey:
        """The key for new secrets."""
        return self.keys[0]

    def need(self, id_: str) -> SecretKey:
        """Return the key with an id, which a registry names."""
        for key in self.keys:
            if key.id == id_:
                return key
        known = ", ".join(each.id for each in self.keys)
        raise RegistryError(
            f"the registry's secrets are encrypted with the key {id_}, and {self.source} gives {known}: name the key "
            "that they were encrypted with, as secrets.key or among secrets.previous; nothing was changed"
        )


def no_keyring(id_: str) -> RegistryError:
    """Return what is wrong where a registry's secrets are encrypted and no key was given."""
    return RegistryError(
        f"the registry's secrets are encrypted with the key {id_}, and the profile names none: set secrets: "
        "{key: 'file:PATH'} or {key: 'env:NAME'} in it"
    )


def _bound(place: Sequence[str]) -> bytes:
    return "\0".join(place).encode("utf-8", "surrogatepass")
