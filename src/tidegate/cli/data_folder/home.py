"""A data folder with its profile: opens the log, the registry, Spark and the keys that they describe."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.cli.data_folder.lock import FolderLock, RunningProcess, hold_lock, lock_holder
from tidegate.cli.data_folder.permissions import mask, tighten
from tidegate.cli.output.logging import logger
from tidegate.cli.profile import Profile
from tidegate.cli.profile.secrets import keyring_of_file
from tidegate.errors import EnvironmentProblem
from tidegate.logs import KafkaLog, ends_of
from tidegate.logs.factory import FileLogSettings, KafkaLogSettings, has_shared_writers, open_log

if TYPE_CHECKING:  # slow imports, and no command needs all of them
    from pyspark.sql import SparkSession

    from tidegate.filters.meaning import Semantics
    from tidegate.logs import EventLog
    from tidegate.pipelines.checkpoint_files import CheckpointFiles
    from tidegate.pipelines.resources import RunnerResources
    from tidegate.pipelines.streams import Streams
    from tidegate.registry import PostgresRegistry, SqliteRegistry
    from tidegate.registry.secrets import Keyring
    from tidegate.services.trust import Resources

_STANDBY = {"spark.executor.heartbeatInterval": "2s", "spark.executor.heartbeat.maxFailures": "3"}
"""Executors end when their driver does not answer: another one may take over when its lease has ended."""
MASK_KEY = "TIDEGATE_MASK_KEY"
"""The environment variable with the secret of `mask: hmac`; without it the folder has one of its own."""


@dataclass(frozen=True)
class Home:
    """A data folder and its profile. The constructor opens nothing; each method opens the part that it names."""

    folder: Path
    profile: Profile = field(default_factory=Profile)

    @property
    def log_folder(self) -> Path:
        """The folder with the streams, if the log is files."""
        return self.folder / "log"

    @property
    def checkpoints(self) -> Path:
        """The folder of Spark's checkpoints, from which services resume after a restart.

        Raises an `EnvironmentProblem` if the profile names a URI for them.
        """
        named = self.profile.checkpoints
        if named is not None and not named.startswith("/"):
            raise EnvironmentProblem(f"the states of services are in {named}, which this command can't read")
        return self.folder / "checkpoints" if named is None else Path(named)

    def checkpoint_files(self, spark: SparkSession) -> CheckpointFiles:
        """Return the place of Spark's checkpoints, for the process that runs the services."""
        from tidegate.pipelines.checkpoint_files import HadoopFiles, LocalFiles

        named = self.profile.checkpoints
        if named is not None and not named.startswith("/"):
            return HadoopFiles(spark, named)
        return LocalFiles(self.checkpoints, is_shared=named is not None or self.profile.shared)

    @property
    def positions(self) -> Path:
        """The positions from which sources resume after a restart."""
        return self.folder / "sources"

    @property
    def signing_keys(self) -> Path:
        """The file with the keys that this broker signs its events with: the profile's, or one in the folder."""
        return self.profile.links.signing_keys or self.folder / "signing.jwks"

    def space(self, named: str | None = None) -> Path | None:
        """Return the folder of the semantic space: `named`, the profile's, or `space` in the data folder, or None."""
        default = self.folder / "space"
        path = named or self.profile.semantics or (default if default.is_dir() else None)
        return None if path is None else Path(path)

    def semantics(self, named: str | None = None) -> Semantics | None:
        """Load what relates words: a space, an installed embedding, or both; returns None if there is neither.

        `named` is the folder of a space. Raises a `SpaceError` if it can't be used.
        """
        from tidegate.semantics.default import default_semantics
        from tidegate.semantics.embedding import Embedding

        space = self.space(named)
        return default_semantics(space) if space is not None or Embedding.installed() else None

    @property
    def writer_lock(self) -> Path | None:
        """The lock file of the one process that appends to raw streams; None for Kafka, where any process may."""
        return None if has_shared_writers(self.profile.log) else self.folder / "ingest.lock"

    @property
    def audit_locks(self) -> Path | None:
        """The folder with the locks of the audit log's partitions; None for Kafka, where any process may write."""
        return None if has_shared_writers(self.profile.log) else self.folder / "audit"

    def log(self) -> EventLog:
        """Open the log; the caller closes it."""
        return open_log(self.profile.log, self.log_folder)

    @cached_property
    def micro_batch_reason(self) -> str:
        """Why services run in micro-batches only, without the connector; empty if they use the connector.

        Only a local Spark with a log of files can run without the connector.
        """
        from tidegate.pipelines.connector import build

        return build.obstacle() if self.profile.is_local and isinstance(self.profile.log, FileLogSettings) else ""

    def need_connector(self) -> None:
        """Compile the connector if services can't run without it. Raises if that fails; call it before changes."""
        from tidegate.pipelines.connector import build

        if not (self.profile.is_local and isinstance(self.profile.log, FileLogSettings)):
            build.jar()

    def session(self, app: str) -> SparkSession:
        """Start a Spark session, locally or on the profile's cluster; takes seconds. `app` is its name."""
        from tidegate.pipelines.session import service_session

        profile, kafka = self.profile, isinstance(self.profile.log, KafkaLogSettings)
        # Hadoop ignores the process's umask for the files that it writes, such as checkpoints.
        umask = {"spark.hadoop.fs.permissions.umask-mode": f"{mask(shared=profile.shared):03o}"}
        standby = {} if profile.is_local or profile.database is None else _STANDBY
        settings = {**umask, **standby, **profile.spark.reveal()}
        if not profile.is_local:
            logger("tidegate.home").warning(
                "Spark's streaming shuffle has neither authentication nor encryption, and listens on all addresses",
                remedy="allow only the cluster's own machines to reach the ports of executors: docs/cluster.md",
            )
        return service_session(app, settings, master=profile.master, connector=not self.micro_batch_reason, kafka=kafka)

    def streams(self, spark: SparkSession, log: EventLog) -> Streams:
        """Return the log as Spark reads and writes it. Logs a warning if services run in micro-batches only."""
        match self.profile.log:
            case KafkaLogSettings() as settings:
                from tidegate.pipelines.kafka import KafkaStreams

                assert isinstance(log, KafkaLog)
                return KafkaStreams(spark, log, settings.brokers, client_settings=settings.security.java_settings())
            case FileLogSettings() if self.micro_batch_reason:
                from tidegate.pipelines.plain.log import PlainLog

                logger("tidegate.home").warning("services run in micro-batches only", reason=self.micro_batch_reason)
                return PlainLog(spark, self.log_folder, self.micro_batch_reason)
            case FileLogSettings():
                from tidegate.pipelines.embedded import EmbeddedLog

                return EmbeddedLog(spark, self.log_folder)

    def resources(self) -> Resources:
        """Return the functions, folders and connections that definitions may name, without hosts and secrets.

        The gateway and the commands check definitions with it.
        """
        from tidegate.cli.profile.functions import registered_functions
        from tidegate.services.trust import Resources

        profile = self.profile
        connections = {name: entry.named for name, entry in profile.connections.items()}
        functions = frozenset(registered_functions(profile.functions))
        return Resources(functions, profile.roots, connections, self._private())

    def runner_resources(self) -> RunnerResources:
        """Return the same with hosts and references to secrets, for the process that runs the services."""
        from tidegate.cli.profile.functions import registered_functions
        from tidegate.pipelines.resources import RunnerResources
        from tidegate.services.roots import Confinement

        profile = self.profile
        connections = {name: entry.connection for name, entry in profile.connections.items()}
        files = Confinement(tuple(root.path for root in profile.roots), self._private())
        retention_s = profile.log.retention_s if isinstance(profile.log, KafkaLogSettings) else None
        return RunnerResources(registered_functions(profile.functions), connections, files, retention_s)

    def _private(self) -> tuple[Path, ...]:
        """Files that no definition may read, even below a root: the data folder, the profile, files with secrets."""
        from tidegate.cli.profile.private_files import private_files

        return (self.folder.absolute(), *private_files(self.profile))

    def registry(self) -> SqliteRegistry | PostgresRegistry:
        """Open the registry and migrate it; creates it if there is none. The caller closes it."""
        from tidegate.registry import open_registry

        database, keyring = self.profile.database, self.keyring()
        address = self.folder / "registry.sqlite" if database is None else database.address()
        return open_registry(address, keyring=keyring, read_ends=partial(ends_of, self.log))

    def keyring(self) -> Keyring | None:
        """Return the keys that encrypt the registry's secrets; creates the folder's own key if it has none.

        Returns None for a shared database without a key in the profile. Such a database stores its secrets in plain
        text: with the key of one machine the others could not read them.
        """
        own = self.folder / "secrets.key"
        if self.profile.secrets is not None:
            return self.profile.secrets.keyring(own)
        if self.profile.database is not None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        _create_key(own)
        return keyring_of_file(own)

    def warn_of_plain_secrets(self, registry: SqliteRegistry | PostgresRegistry) -> None:
        """Log a warning at start-up if the registry stores secrets in plain text."""
        if registry.has_plain_secrets:
            logger("tidegate.home").warning(
                "secrets of webhooks and links are not encrypted in the registry",
                remedy="name a key in the profile: secrets: {key: 'file:PATH'}",
            )

    def existing_registry(self) -> SqliteRegistry | PostgresRegistry:
        """Open a registry. Raises an `EnvironmentProblem` if the folder has none."""
        if self.profile.database is None and not (self.folder / "registry.sqlite").exists():
            raise EnvironmentProblem(
                f"there is no Tidegate in {str(self.folder)!r}: start one with `tidegate up FILE... --data "
                f"{self.folder}`, or name its folder with --data"
            )
        return self.registry()

    @contextmanager
    def locked(self, *, may_wait: bool = False) -> Iterator[FolderLock]:
        """Hold the folder's lock, so that every partition of a log of files has one writer; creates the folder.

        Raises an `EnvironmentProblem` at once if another process holds it. `may_wait`: the block may take it later.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.protect()
        with hold_lock(self.folder, may_wait=may_wait) as lock:
            yield lock

    def protect(self) -> None:
        """Remove the access of other users of this machine to the folder's files."""
        tighten(self.folder, shared=self.profile.shared)

    def running(self) -> RunningProcess | None:
        """Return the process that holds the folder's lock now; None if there is none."""
        return lock_holder(self.folder)

    def mask_key(self) -> bytes:
        """Return the secret of `mask: hmac`: the environment's, or the folder's, which is created once."""
        secret = os.environ.get(MASK_KEY)
        if secret:
            return secret.encode()
        path = self.folder / "mask.key"
        self.folder.mkdir(parents=True, exist_ok=True)
        _create_key(path)
        return path.read_bytes()


def _create_key(path: Path) -> None:
    """Create a file with a random key that only its owner can read; keeps one that exists. Atomic between processes."""
    if path.exists():
        return
    new = path.with_suffix(f".{os.getpid()}")
    new.touch(mode=0o600)
    new.write_text(secrets.token_hex(32))
    try:
        os.link(new, path)  # fails if another process was first
    except FileExistsError:
        pass
    finally:
        new.unlink()
