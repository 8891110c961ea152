"""Secrets of a profile, which names where each one is and never holds it: `env:NAME` or `file:PATH`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tidegate.errors import EnvironmentProblem


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is. Its `repr` shows the reference, never the secret."""

    kind: Literal["env", "file"]
    name: str
    """The environment variable, or the path of the file."""
    where: str
    """The place in the profile, for messages."""

    def reveal(self) -> str:
        """Read the secret now. A trailing line break of a file is not part of it."""
        if self.kind == "env":
            value = os.environ.get(self.name)
            if not value:
                raise EnvironmentProblem(
                    f"{self.where}: the environment has no {self.name!r}; set it for the process that needs the secret"
                )
            return value
        try:
            value = Path(self.name).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise EnvironmentProblem(f"{self.where}: can't read the file {self.name!r}: {reason}") from error
        if not value:
            raise EnvironmentProblem(f"{self.where}: the file {self.name!r} is empty; write the secret into it")
        return value


def read_secret(reference: Any, where: str, folder: Path) -> SecretReference:
    """Read `env:NAME` or `file:PATH`, the path relative to `folder`. `where` is its place, for messages.

    A value that is no reference is not shown: it may be the secret itself.
    """
    kind, _, name = reference.partition(":") if isinstance(reference, str) else ("", "", "")
    if kind == "env" and name:
        return SecretReference("env", name, where)
    if kind == "file" and name:
        return SecretReference("file", str(folder / name), where)
    raise EnvironmentProblem(f"{where}: expected env:NAME or file:PATH; a profile names a secret and never holds it")
