"""References to secrets in a profile: `env:NAME` or `file:PATH`, never the secret itself."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tidegate.errors import EnvironmentProblem

MAX_SECRET_BYTES = 64 * 1024
"""Larger files are refused: a reference to a wrong file must not fill the memory."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is stored. `reveal` reads the value and does not keep it, so `repr` shows the reference only."""

    kind: Literal["env", "file"]
    place: str
    """The name of an environment variable, or the absolute path of a file."""
    where: str
    """The setting, for error messages: `city.yaml: connections.plant.mqtt.password`."""

    def reveal(self) -> str:
        """Read the secret at each call, so that a rotated file or variable is used at once.

        Raises an `EnvironmentProblem` that names the setting and the place, never the value.
        """
        return self._from_environment() if self.kind == "env" else self._from_file()

    def _from_environment(self) -> str:
        value = os.environ.get(self.place)
        if not value:
            state = "not set" if value is None else "empty"
            raise EnvironmentProblem(f"{self.where}: the environment variable {self.place!r} is {state}; set it")
        return value

    def _from_file(self) -> str:
        try:
            with Path(self.place).open("rb") as file:
                content = file.read(MAX_SECRET_BYTES + 1)
            value = content.decode("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise EnvironmentProblem(f"{self.where}: can't read the file {self.place!r}: {reason}") from None
        if len(content) > MAX_SECRET_BYTES:
            raise EnvironmentProblem(
                f"{self.where}: the file {self.place!r} has more than {MAX_SECRET_BYTES} bytes; expected a secret"
            )
        if not value:
            raise EnvironmentProblem(f"{self.where}: the file {self.place!r} is empty; write the secret into it")
        return value


def read_secret(reference: Any, where: str, folder: Path) -> SecretReference:
    """Parse a reference to a secret. `where` is the setting, and paths are relative to `folder`.

    Raises an `EnvironmentProblem` without the value, which may be the secret itself.

    >>> read_secret("env:PLANT", "p.yaml: password", Path("/etc")).place
    'PLANT'
    """
    if isinstance(reference, str):
        kind, _, place = reference.partition(":")
        if kind == "env" and _NAME.fullmatch(place):
            return SecretReference("env", place, where)
        if kind == "file" and place and "\0" not in place:
            return SecretReference("file", str(folder.absolute() / place), where)
    raise EnvironmentProblem(f"{where}: expected a reference to a secret, env:NAME or file:PATH, not the secret itself")
