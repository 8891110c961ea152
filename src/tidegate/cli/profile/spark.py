"""The key `spark` of a profile: settings of Spark, and the secret that its processes authenticate each other with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.cli.profile.secret_reference import SecretReference, read_secret
from tidegate.errors import EnvironmentProblem

SECRET = "spark.authenticate.secret"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of Spark that override our defaults."""

    public: Mapping[str, str] = field(default_factory=dict)
    """All settings that the profile states itself, by name."""
    secret: SecretReference | None = None
    """The secret that the master, the workers and this process share."""
    variables: Mapping[str, SecretReference] = field(default_factory=dict)
    """Settings that differ between processes with the same profile: `env:NAME` in the profile, by setting."""

    def need_secret(self, master: str, path: str) -> None:
        """Raise an `EnvironmentProblem` if the processes need a shared secret and the profile at `path` has none.

        YARN and Kubernetes give each application a secret of its own. A standalone master can't.
        """
        is_off = self.public.get("spark.authenticate", "true").lower() == "false"
        if master.startswith("spark://") and self.secret is None and not is_off:
            raise EnvironmentProblem(
                f"{path}: spark: {master} and this process authenticate each other with a secret, but the profile "
                f"has none: add {SECRET}: env:NAME or file:PATH, with the value that the master and its workers have "
                "(docs/cluster.md), or spark.authenticate: false on a network that you trust"
            )

    def reveal(self) -> dict[str, str]:
        """Return all settings with the secret and the environment variables, which are read at each call."""
        references = {**self.variables, **({} if self.secret is None else {SECRET: self.secret})}
        return {**self.public, **{key: reference.reveal() for key, reference in references.items()}}


def read_spark(settings: Any, path: str) -> SparkSettings:
    """Read `spark` of the profile at `path`."""
    if not isinstance(settings, Mapping | None):
        raise EnvironmentProblem(f"{path}: spark: expected settings by name, not {settings!r}")
    entries = dict(settings or {})
    secret = None
    if SECRET in entries:
        secret = read_secret(entries.pop(SECRET), f"{path}: spark.{SECRET}", Path(path).parent)
    variables = {
        str(key): read_secret(value, f"{path}: spark.{key}", Path(path).parent)
        for key, value in entries.items()
        if isinstance(value, str) and value.startswith("env:")
    }
    public = {str(key): _text(value) for key, value in entries.items() if str(key) not in variables}
    return SparkSettings(public, secret, variables)


def _text(value: Any) -> str:
    """Return a value in the notation of Spark's settings.

    >>> _text(True), _text(8)
    ('true', '8')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
