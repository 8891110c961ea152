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
    """Settings for Spark, over ours."""

    public: Mapping[str, str] = field(default_factory=dict)
    """By name; all but the secret."""
    secret: SecretReference | None = None
    """What the master, the workers and this process share."""

    def need_secret(self, master: str, path: str) -> None:
        """Raise an `EnvironmentProblem` if processes must share a secret, and the profile names none.

        YARN and Kubernetes give each application a secret of its own. A standalone master can't.
        """
        is_off = self.public.get("spark.authenticate", "true").lower() == "false"
        if master.startswith("spark://") and self.secret is None and not is_off:
            raise EnvironmentProblem(
                f"{path}: spark: {master} and this process authenticate each other with a secret, and the profile "
                f"names none: add {SECRET}: env:NAME or file:PATH, with the value that the master and its workers have "
                "(docs/cluster.md), or spark.authenticate: false on a network that you trust"
            )

    def reveal(self) -> dict[str, str]:
        """All settings; reads the secret now."""
        return {**self.public, **({} if self.secret is None else {SECRET: self.secret.reveal()})}


def read_spark(settings: Any, path: str) -> SparkSettings:
    """Read the key `spark` of the profile at a path."""
    if not isinstance(settings, Mapping | None):
        raise EnvironmentProblem(f"{path}: spark: expected settings by name, not {settings!r}")
    given = dict(settings or {})
    secret = None
    if SECRET in given:
        secret = read_secret(given.pop(SECRET), f"{path}: spark.{SECRET}", Path(path).parent)
    return SparkSettings({str(key): _text(value) for key, value in given.items()}, secret)


def _text(value: Any) -> str:
    """As Spark writes a setting's value.

    >>> _text(True), _text(8)
    ('true', '8')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
