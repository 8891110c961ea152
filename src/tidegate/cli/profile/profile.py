"""A profile: what an installation runs on. Service files do not depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tidegate.cli.profile.access import read_access
from tidegate.cli.profile.checkpoints import read_checkpoints
from tidegate.cli.profile.connections import ProfileConnection, read_connections
from tidegate.cli.profile.functions import read_functions
from tidegate.cli.profile.limits import read_limits
from tidegate.cli.profile.links import LinkProfile, read_links
from tidegate.cli.profile.log import read_log
from tidegate.cli.profile.metrics import read_metrics
from tidegate.cli.profile.registry import Database, read_database
from tidegate.cli.profile.roots import read_roots
from tidegate.cli.profile.secrets import SecretsSettings, read_secrets
from tidegate.cli.profile.spark import SparkSettings, read_spark
from tidegate.cli.profile.tls import TlsProfile, read_tls
from tidegate.cli.profile.webhooks import WebhookProfile, read_webhooks
from tidegate.errors import EnvironmentProblem, did_you_mean
from tidegate.gateway.settings import AccessSettings, LimitSettings, MetricsSettings
from tidegate.logs.factory import FileLogSettings, LogSettings
from tidegate.services.trust import Root

EMBEDDED = "embedded"
_KEYS = (
    *("master", "spark", "log", "shared", "registry", "webhooks", "access", "semantics"),
    *("functions", "roots", "connections", "limits", "tls", "secrets", "links", "metrics", "checkpoints"),
)


@dataclass(frozen=True)
class Profile:
    """The Spark master, log, registry, access and resources of an installation."""

    master: str = "local"
    """`local` for Spark inside this process, or a master's URL: `spark://host:7077`, `yarn`, `k8s://...`."""
    spark: SparkSettings = field(default_factory=SparkSettings)
    log: LogSettings = field(default_factory=FileLogSettings)
    """The backend of the log: segment files in the data folder, or Kafka."""
    shared: bool = False
    """True if the data folder is the same on every machine of the cluster."""
    database: Database | None = None
    """The registry's PostgreSQL database; None for a SQLite file in the data folder."""
    webhooks: WebhookProfile = field(default_factory=WebhookProfile)
    """Which addresses webhooks may have, and how failed messages are retried."""
    access: AccessSettings = field(default_factory=AccessSettings)
    """How callers of the gateway authenticate, and their quotas."""
    semantics: str | None = None
    """The folder of a semantic space, for filters with ~."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """Limits of connections and requests to the gateway."""
    tls: TlsProfile = field(default_factory=TlsProfile)
    """The TLS files of the gateway, and of its connections to other brokers."""
    metrics: MetricsSettings | None = None
    """The address that serves metrics without a key; None for no such address."""
    path: Path | None = field(default=None, compare=False)
    """The file of the profile; None for the embedded profile."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """Functions that definitions may name: `module:function` by name."""
    roots: tuple[Root, ...] = ()
    """Folders that definitions from the network may read."""
    connections: Mapping[str, ProfileConnection] = field(default_factory=dict)
    """Databases and brokers that definitions may name."""
    secrets: SecretsSettings | None = None
    """The keys that encrypt the registry's secrets; None for a key that the data folder creates."""
    links: LinkProfile = field(default_factory=LinkProfile)
    """The signing keys of this broker, and the pinned keys of others."""
    checkpoints: str | None = None
    """A folder or URI for the states of services that all machines reach; None: the data folder."""

    def __post_init__(self) -> None:
        if not self.is_local and isinstance(self.log, FileLogSettings) and not self.shared:
            raise EnvironmentProblem(
                f"master {self.master!r} runs tasks on other machines, but the log is files in a folder of this one: "
                "use Kafka for the log (log: {kafka: 'host:9092'}), or a folder that all machines share (shared: true)"
            )
        if not self.is_local and self.checkpoints is None and not self.shared:
            raise EnvironmentProblem(
                f"master {self.master!r} runs tasks on other machines, but the states of services would be kept in a "
                "folder of this one: name a place that all machines reach (checkpoints: hdfs://..., s3a://... or the "
                "path of a mounted folder), or share the data folder (shared: true)"
            )

    @property
    def is_local(self) -> bool:
        """True if all Spark tasks run in this process."""
        return self.master.startswith("local")


def load_profile(name: str) -> Profile:
    """Return the embedded profile, or read one from a YAML file: its path, or `NAME` for `NAME.yaml`.

    Raises an `EnvironmentProblem` that names the file and the key. Reads no secrets: profiles refer to them.
    """
    if name == EMBEDDED:
        return Profile()
    path = next((path for path in (Path(name), Path(f"{name}.yaml")) if path.is_file()), None)
    if path is None:
        raise EnvironmentProblem(f"no profile {name!r}; expected {EMBEDDED!r}, or the path of a YAML file")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise EnvironmentProblem(f"{path}: expected a profile in YAML: {_reason(error)}") from None
    return _profile(document, str(path))


def _profile(document: Any, path: str) -> Profile:
    if not isinstance(document, Mapping):
        raise EnvironmentProblem(f"{path}: expected a map with {', '.join(_KEYS)}, not {document!r}")
    for key in document:
        if key not in _KEYS:
            hint = did_you_mean(str(key), _KEYS) or f"; expected {', '.join(_KEYS)}"
            raise EnvironmentProblem(f"{path}: unknown key {key!r}{hint}")
    master = document.get("master", "local")
    if not isinstance(master, str):
        raise EnvironmentProblem(f"{path}: master: expected text such as 'spark://host:7077', not {master!r}")
    spark = read_spark(document.get("spark"), path)
    log = read_log(document.get("log", "files"), path)
    shared = document.get("shared", False)
    if not isinstance(shared, bool):
        raise EnvironmentProblem(f"{path}: shared: expected true or false, not {shared!r}")
    database = read_database(document["registry"], path) if document.get("registry") is not None else None
    access = read_access(document.get("access"), path)
    semantics = document.get("semantics")
    if not isinstance(semantics, str | None):
        raise EnvironmentProblem(f"{path}: semantics: expected the folder of a space, not {semantics!r}")
    profile = Profile(
        master,
        spark,
        log,
        shared,
        database,
        read_webhooks(document.get("webhooks"), path),
        access,
        semantics,
        limits=read_limits(document.get("limits"), path),
        tls=read_tls(document.get("tls"), path),
        metrics=read_metrics(document.get("metrics"), path),
        path=Path(path),
        functions=read_functions(document.get("functions"), path),
        roots=read_roots(document.get("roots"), path),
        connections=read_connections(document.get("connections"), path),
        secrets=read_secrets(document.get("secrets"), path),
        checkpoints=read_checkpoints(document.get("checkpoints"), path),
        links=read_links(document.get("links"), path),
    )
    spark.need_secret(master, path)
    return profile


def _reason(error: Exception) -> str:
    """Say why a file can't be read, without its text, which may hold a password."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__
