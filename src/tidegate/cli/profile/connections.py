"""The key `connections` of a profile: databases and brokers with their secrets, which definitions refer to by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidegate.cli.profile.entries import read_entries
from tidegate.cli.profile.roots import read_audience
from tidegate.cli.profile.secret_reference import SecretReference, read_secret
from tidegate.errors import EnvironmentProblem
from tidegate.ingress.connections import HttpConnection, KafkaConnection, MqttConnection
from tidegate.logs.kafka_security import MECHANISMS, KafkaSecurity, Sasl, Tls
from tidegate.pipelines.resources import Connection, JdbcConnection
from tidegate.services.operators.custom import FUNCTION_NAME
from tidegate.services.redaction import has_secret
from tidegate.services.trust import Audience, ConnectionKind, NamedConnection
from tidegate.subscriptions import PUSH_TARGETS


@dataclass(frozen=True, slots=True)
class ProfileConnection:
    """A connection of a profile, and the callers that may use it in addition to admins."""

    kind: ConnectionKind
    connection: Connection
    audience: Audience = ()
    push: tuple[str, ...] = ()
    """Topics that subscriptions may deliver to: names, or prefixes that end in *."""

    @property
    def named(self) -> NamedConnection:
        """The connection without host and secrets, for the checks of the gateway."""
        return NamedConnection(self.kind, self.audience, self.push)


def read_connections(document: Any, path: str) -> dict[str, ProfileConnection]:
    """Read `connections: {NAME: {jdbc|mqtt|kafka: {...}, for: [...], push: [...]}}` of the profile at `path`.

    Error messages show no values, as they may be secrets; secrets are not read yet.
    """
    if document is None:
        return {}
    where = f"{path}: connections"
    if not isinstance(document, Mapping):
        raise EnvironmentProblem(f"{where}: expected connections by name, such as {{plant: {{mqtt: {{...}}}}}}")
    return {_name(name, where): _connection(entry, f"{where}.{name}", path) for name, entry in document.items()}


def _name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not FUNCTION_NAME.fullmatch(name):
        raise EnvironmentProblem(
            f"{where}: expected a name of letters, digits, _ . and -, the first a letter, not {name!r}"
        )
    return name


def _connection(document: Any, where: str, path: str) -> ProfileConnection:
    entries = read_entries(document, (*_READERS, "for", "push"), where, has_secrets=True)
    kinds = [kind for kind in _READERS if kind in entries]
    if len(kinds) != 1:
        raise EnvironmentProblem(f"{where}: expected one of {', '.join(_READERS)}, as in {{mqtt: {{broker: ...}}}}")
    (kind,) = kinds
    reader = _Reader(f"{where}.{kind}", Path(path).absolute().parent)
    audience = read_audience(entries.get("for"), f"{where}.for")
    return ProfileConnection(
        kind, _READERS[kind](entries[kind], reader), audience, _topics(entries.get("push"), kind, f"{where}.push")
    )


def _topics(document: Any, kind: ConnectionKind, where: str) -> tuple[str, ...]:
    """Read the topics that are open for subscriptions."""
    if document is None:
        return ()
    if kind not in PUSH_TARGETS:
        raise EnvironmentProblem(
            f"{where}: expected none: subscriptions deliver to {', '.join(PUSH_TARGETS)}, not {kind}"
        )
    if not isinstance(document, list) or not all(isinstance(topic, str) and topic for topic in document):
        raise EnvironmentProblem(f"{where}: expected a list of topics, such as [alerts, city/*], not {document!r:.60}")
    return tuple(document)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the settings of one connection; its errors start with `where`."""

    where: str
    folder: Path
    """The folder of the profile: paths are relative to it."""

    def entries(self, document: Any, known: Collection[str]) -> Mapping[str, Any]:
        return read_entries(document, known, self.where, has_secrets=True)

    def text(self, entries: Mapping[str, Any], key: str, expected: str) -> str:
        value = entries.get(key)
        if not isinstance(value, str) or not value:
            raise EnvironmentProblem(f"{self.where}.{key}: expected {expected}")
        if has_secret(value) or (key in ("broker", "brokers") and "@" in value):
            raise EnvironmentProblem(
                f"{self.where}.{key}: expected no password in it: put it under password, as env:NAME or file:PATH"
            )
        return value

    def optional_text(self, entries: Mapping[str, Any], key: str, expected: str) -> str | None:
        return self.text(entries, key, expected) if key in entries else None

    def secret(self, entries: Mapping[str, Any], key: str) -> SecretReference | None:
        return read_secret(entries[key], f"{self.where}.{key}", self.folder) if key in entries else None

    def tls(self, document: Any) -> Tls | None:
        if document is None or document is False:
            return None
        if document is True:
            return Tls()
        where = f"{self.where}.tls"
        entries = read_entries(document, ("ca", "cert", "key"), where, has_secrets=True)
        for key, value in entries.items():
            if not isinstance(value, str) or not value:
                raise EnvironmentProblem(f"{where}.{key}: expected the path of a PEM file, not {value!r}")
        if ("cert" in entries) != ("key" in entries):
            raise EnvironmentProblem(f"{where}: expected cert and key together")
        return Tls(*(str(self.folder / entries[key]) if key in entries else None for key in ("ca", "cert", "key")))


def _jdbc(document: Any, reader: _Reader) -> Connection:
    entries = reader.entries(document, ("url", "driver", "user", "password"))
    url = reader.text(entries, "url", "a URL such as jdbc:postgresql://db/city")
    if not url.startswith("jdbc:"):
        raise EnvironmentProblem(f"{reader.where}.url: expected a URL that begins with jdbc:, not {url!r}")
    driver = reader.text(entries, "driver", "the class of a JDBC driver, such as org.postgresql.Driver")
    user = reader.optional_text(entries, "user", "the name of a user")
    return JdbcConnection(url, driver, user, reader.secret(entries, "password"))


def _mqtt(document: Any, reader: _Reader) -> Connection:
    entries = reader.entries(document, ("broker", "username", "password", "tls"))
    broker = reader.text(entries, "broker", "host or host:port")
    username = reader.optional_text(entries, "username", "the name of a user")
    if "password" in entries and username is None:
        raise EnvironmentProblem(f"{reader.where}.password: expected a username too")
    return MqttConnection(broker, username, reader.secret(entries, "password"), reader.tls(entries.get("tls")))


def _kafka(document: Any, reader: _Reader) -> Connection:
    entries = reader.entries(document, ("brokers", "sasl", "tls"))
    brokers = reader.text(entries, "brokers", "host:port, or several with commas")
    security = read_kafka_security(entries, reader.where, reader.folder)
    return KafkaConnection(brokers, security)


def read_kafka_security(entries: Mapping[str, Any], where: str, folder: Path) -> KafkaSecurity:
    """Read `sasl` and `tls` of a Kafka client; errors start with `where`, and paths are relative to `folder`."""
    tls = _Reader(where, folder).tls(entries.get("tls"))
    if entries.get("sasl") is None:
        return KafkaSecurity(tls=tls)
    reader = _Reader(f"{where}.sasl", folder)
    sasl = reader.entries(entries["sasl"], ("mechanism", "username", "password"))
    mechanism = sasl.get("mechanism")
    if mechanism not in MECHANISMS:
        raise EnvironmentProblem(f"{reader.where}.mechanism: expected {', '.join(MECHANISMS)}, not {mechanism!r}")
    password = read_secret(sasl.get("password"), f"{reader.where}.password", folder)
    return KafkaSecurity(Sasl(mechanism, reader.text(sasl, "username", "the name of a user"), password), tls)


def _poll(document: Any, reader: _Reader) -> Connection:
    entries = reader.entries(document, ("url", "token"))
    url = reader.text(entries, "url", "a URL such as https://example.com/v1")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise EnvironmentProblem(f"{reader.where}.url: expected a URL such as https://example.com/v1")
    return HttpConnection(url, reader.secret(entries, "token"))


_READERS: dict[ConnectionKind, Callable[[Any, _Reader], Connection]] = {
    "jdbc": _jdbc,
    "mqtt": _mqtt,
    "kafka": _kafka,
    "poll": _poll,
}
