"""The key `secrets` of a profile: the keys that encrypt the registry's secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.cli.profile.secret_reference import SecretReference, read_secret
from tidegate.errors import EnvironmentProblem, RegistryError

if TYPE_CHECKING:
    from tidegate.registry.secrets import Keyring, SecretKey

_EXPECTED = "expected {key: 'file:PATH' or 'env:NAME', previous: [...]}"


@dataclass(frozen=True, slots=True)
class SecretsSettings:
    """References to the keys that encrypt the secrets of webhooks and links."""

    key: SecretReference
    previous: tuple[SecretReference, ...] = ()
    """Older keys that decrypt secrets until `tidegate secrets rotate` has encrypted them again."""

    def keyring(self, own: Path | None) -> Keyring:
        """Read the keys. `own` is the file of the key that the data folder created before the profile named one."""
        from tidegate.registry.secrets import Keyring

        keys = [_key(reference.reveal(), reference.where) for reference in (self.key, *self.previous)]
        if own is not None and own.exists():
            keys.append(_key(own.read_text(encoding="utf-8").strip(), str(own)))
        return Keyring(tuple(keys), self.key.where)


def keyring_of_file(path: Path) -> Keyring:
    """Return a keyring with the key that a data folder created. Raises an `EnvironmentProblem` for a bad key."""
    from tidegate.registry.secrets import Keyring

    return Keyring((_key(path.read_text(encoding="utf-8").strip(), str(path)),), str(path))


def _key(text: str, where: str) -> SecretKey:
    from tidegate.registry.secrets import SecretKey

    try:
        return SecretKey(text)
    except RegistryError as error:
        raise EnvironmentProblem(f"{where}: {error}") from None


def read_secrets(document: Any, path: str) -> SecretsSettings | None:
    """Read `secrets` of the profile at `path`. Error messages show no values, as one may be the key."""
    if document is None:
        return None
    folder, where = Path(path).parent, f"{path}: secrets"
    if not isinstance(document, Mapping) or not set(document) <= {"key", "previous"} or "key" not in document:
        raise EnvironmentProblem(f"{where}: {_EXPECTED}")
    previous = document.get("previous") or []
    if not isinstance(previous, list):
        raise EnvironmentProblem(f"{where}.previous: expected a list of references, file:PATH or env:NAME")
    return SecretsSettings(
        read_secret(document["key"], f"{where}.key", folder),
        tuple(read_secret(key, f"{where}.previous[{n}]", folder) for n, key in enumerate(previous)),
    )
