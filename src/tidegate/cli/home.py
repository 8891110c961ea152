"""The folder that a Tidegate lives in, and what its profile makes of it: log, registry, checkpoints and secret."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tidegate.cli.keyring import keyring_of_file
from tidegate.cli.logging import logger
from tidegate.cli.permissions import mask, tighten
from tidegate.cli.profile import Profile
from tidegate.errors import EnvironmentProblem
from tidegate.logs import KafkaLog
from tidegate.logs.factory import FileLogSettings, KafkaLogSettings, has_shared_writers, open_log

if TYPE_CHECKING:  # each takes its time to import, and no command needs all
    from pyspark.sql import SparkSession

    from tidegate.filters.meaning import Semantics
    from tidegate.logs import EventLog
    from tidegate.pipelines.resources import RunnerResources
    from tidegate.pipelines.streams import Streams
    from tidegate.registry import PostgresRegistry, SqliteRegistry
    from tidegate.registry.secrets import Keyring
    from tidegate.services.trust import Resources

MASK_KEY = "TIDEGATE_MASK_KEY"
"""The environment variable that holds the secret of `mask: hmac`, where it is not the folder's own."""


@dataclass(frozen=True, slots=True)
class Running:
    """A Tidegate that runs in a folder."""

    process: str
    has_gateway: bool
    """Whether it writes to raw streams."""
    url: str | None
    """Of its gateway, once that takes requests."""
    certificate: Path | None = None
    """The file with the certificate that the gateway shows, where it listens with TLS."""


class Lock:
    """The folder is ours, and others may read in its lock how to reach us."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._write()

    def announce(self, url: str | None, certificate: Path | None = None) -> None:
        """Say that a gateway runs here: before it starts with no URL, then with the one it listens on.

        `certificate` is the file with the one that it shows, so that who owns the folder can verify the gateway.
        """
        self._write(url or "-", *([] if certificate is None else [str(certificate.absolute())]))

    def _write(self, *more: str) -> None:
        self._file.seek(0)
        self._file.truncate(0)
        self._file.write("\n".join([str(os.getpid()), *more]))
        self._file.flush()


@dataclass(frozen=True)
class Home:
    """Where everything is."""

    folder: Path
    profile: Profile = field(default_factory=Profile)

    @property
    def log_folder(self) -> Path:
        """Streams, as files."""
        return self.folder / "log"

    @property
    def checkpoints(self) -> Path:
        """Where services go on after a restart."""
        return self.folder / "checkpoints"

    @property
    def positions(self) -> Path:
        """Where sources go on after a restart."""
        return self.folder / "sources"

    @property
    def signing_keys(self) -> Path:
        """The keys that this broker signs its events with: the profile's file, or one in the folder."""
        return self.profile.links.signing_keys or self.folder / "signing.jwks"

    def space(self, named: str | None = None) -> Path | None:
        """The semantic space: the one that is named, the profile's, or `space` in the folder; None: there is none."""
        own = self.folder / "space"
        place = named or self.profile.semantics or (own if own.is_dir() else None)
        return None if place is None else Path(place)

    def semantics(self, named: str | None = None) -> Semantics | None:
        """What knows words: a space, an installed embedding, or both; None: neither is there."""
        from tidegate.semantics.default import default_semantics
        from tidegate.semantics.embedding import Embedding

        space = self.space(named)
        return default_semantics(space) if space is not None or Embedding.installed() else None

    @property
    def sole(self) -> Path | None:
        """The lock of whoever appends to raw streams; None: in Kafka all may."""
        return None if has_shared_writers(self.profile.log) else self.folder / "ingest.lock"

    @property
    def audit_locks(self) -> Path | None:
        """Where processes agree on who writes which part of the audit log; None: in Kafka all may write."""
        return None if has_shared_writers(self.profile.log) else self.folder / "audit"

    def log(self) -> EventLog:
        """Open the log."""
        return open_log(self.profile.log, self.log_folder)

    @cached_property
    def obstacle(self) -> str:
        """Why services run without the connector, in micro-batches; empty where they run with it.

        Only this machine's own Spark over files can do without.
        """
        from tidegate.pipelines.connector import build

        return build.obstacle() if self.profile.is_local and isinstance(self.profile.log, FileLogSettings) else ""

    def need_connector(self) -> None:
        """Compile the connector where services can't run without it; raise if that fails, before a change."""
        from tidegate.pipelines.connector import build

        if not (self.profile.is_local and isinstance(self.profile.log, FileLogSettings)):
            build.jar()

    def session(self, app: str) -> SparkSession:
        """Start Spark, or reach the cluster's."""
        from tidegate.pipelines.session import service_session

        profile, kafka = self.profile, isinstance(self.profile.log, KafkaLogSettings)
        # Hadoop's files, the checkpoints among them, have permissions of their own, whatever the umask is.
        umask = {"spark.hadoop.fs.permissions.umask-mode": f"{mask(shared=profile.shared):03o}"}
        settings = {**umask, **profile.spark.reveal()}
        if not profile.is_local:
            logger("tidegate.home").warning(
                "Spark's streaming shuffle knows neither authentication nor encryption, and listens on all addresses",
                remedy="let only the cluster's own machines reach the ports of executors: docs/cluster.md",
            )
        return service_session(app, settings, master=profile.master, connector=not self.obstacle, kafka=kafka)

    def streams(self, spark: SparkSession, log: EventLog) -> Streams:
        """The log as Spark reads and writes it."""
        settings = self.profile.log
        if isinstance(settings, KafkaLogSettings):
            from tidegate.pipelines.kafka import KafkaStreams

            assert isinstance(log, KafkaLog)
            return KafkaStreams(spark, log, settings.brokers, client_settings=settings.security.java_settings())
        if self.obstacle:
            from tidegate.pipelines.plain.log import PlainLog

            logger("tidegate.home").warning("services run in micro-batches only", reason=self.obstacle)
            return PlainLog(spark, self.log_folder, self.obstacle)
        from tidegate.pipelines.embedded import EmbeddedLog

        return EmbeddedLog(spark, self.log_folder)

    def resources(self) -> Resources:
        """What definitions may name, without hosts and secrets: for whoever checks them."""
        from tidegate.cli.functions import registered_functions
        from tidegate.services.trust import Resources

        profile = self.profile
        connections = {name: each.named for name, each in profile.connections.items()}
        functions = frozenset(registered_functions(profile.functions))
        return Resources(functions, profile.roots, connections, self._private())

    def runner_resources(self) -> RunnerResources:
        """What definitions may name, with hosts and references to secrets: for whoever runs them."""
        from tidegate.cli.functions import registered_functions
        from tidegate.pipelines.resources import RunnerResources
        from tidegate.services.roots import Confinement

        profile = self.profile
        connections = {name: each.connection for name, each in profile.connections.items()}
        files = Confinement(tuple(each.path for each in profile.roots), self._private())
        return RunnerResources(registered_functions(profile.functions), connections, files)

    def _private(self) -> tuple[Path, ...]:
        """What no root opens: the data folder, the profile, and files with secrets."""
        from tidegate.cli.private_files import private_files

        return (self.folder.absolute(), *private_files(self.profile))

    def registry(self) -> SqliteRegistry | PostgresRegistry:
        """Open the registry, which is made where there is none."""
        from tidegate.registry import open_registry

        database, keyring = self.profile.database, self.keyring()
        place = self.folder / "registry.sqlite" if database is None else database.address()
        return open_registry(place, keyring=keyring, ends=self._ends)

    def _ends(self, streams: Collection[str]) -> Mapping[str, str]:
        from tidegate.logs import ends_of

        return ends_of(self.log, streams)

    def keyring(self) -> Keyring | None:
        """Return what the registry's secrets are encrypted with; None: a shared database and no key in the profile.

        Such a database keeps its secrets plain: a key of one machine would lock the others out.
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
        """Say at start that a shared database holds secrets as they are."""
        if registry.has_plain_secrets:
            logger("tidegate.home").warning(
                "secrets of webhooks and links are not encrypted in the registry",
                remedy="name a key in the profile: secrets: {key: 'file:PATH'}",
            )

    def existing_registry(self) -> SqliteRegistry | PostgresRegistry:
        """Open a registry that must be there."""
        if self.profile.database is None and not (self.folder / "registry.sqlite").exists():
            raise EnvironmentProblem(
                f"there is no Tidegate in {str(self.folder)!r}: start one with `tidegate up FILE... --data "
                f"{self.folder}`, or name its folder with --data"
            )
        return self.registry()

    @contextmanager
    def locked(self) -> Iterator[Lock]:
        """Run alone: every partition has one writer. Let go of when the process ends, however it does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.protect()
        with (self.folder / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EnvironmentProblem(
                    f"a Tidegate runs in {str(self.folder)!r} already (process {_running(file).process}): "
                    "change it with `tidegate apply`, or choose another folder with --data"
                ) from None
            yield Lock(file)

    def protect(self) -> None:
        """Keep other users of this machine out of what is in the folder."""
        tighten(self.folder, shared=self.profile.shared)

    def running(self) -> Running | None:
        """What runs in this folder now; None: nothing does."""
        try:
            file = (self.folder / "lock").open()
        except FileNotFoundError:
            return None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _running(file)
            return None

    def mask_key(self) -> bytes:
        """The secret of masks: the environment's, else the folder's, made once."""
        given = os.environ.get(MASK_KEY)
        if given:
            return given.encode()
        path = self.folder / "mask.key"
        self.folder.mkdir(parents=True, exist_ok=True)
        _create_key(path)
        return path.read_bytes()


def _create_key(path: Path) -> None:
    """Create a file with a random key that only its owner can read, unless there is one."""
    if path.exists():
        return
    new = path.with_suffix(f".{os.getpid()}")
    new.touch(mode=0o600)
    new.write_text(secrets.token_hex(32))
    try:
        os.link(new, path)  # whoever is first has made it
    except FileExistsError:
        pass
    finally:
        new.unlink()


def _running(file: TextIO) -> Running:
    file.seek(0)
    process, url, certificate, *_ = [*file.read().strip().split("\n"), "", ""]
    shown = Path(certificate) if certificate else None
    return Running(process or "unknown", bool(url), url if url not in ("", "-") else None, shown)
