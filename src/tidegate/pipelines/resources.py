"""What services and sources use beside the log: functions, connections and folders that the profile lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tidegate.errors import ServiceError, SourceError, did_you_mean
from tidegate.logs.kafka_security import KafkaSecurity, Tls
from tidegate.model.secrets import Secret
from tidegate.services.definitions import NONE, Origin
from tidegate.services.roots import Confinement, Opener, open_any


@dataclass(frozen=True, slots=True)
class JdbcConnection:
    """A database."""

    url: str
    driver: str
    """The class of its JDBC driver, which is on Spark's class path."""
    user: str | None = None
    password: Secret | None = field(default=None, repr=False)

    def options(self) -> dict[str, str]:
        """Options for Spark's JDBC reader. Reads the password now."""
        options = {"url": self.url, "driver": self.driver}
        if self.user is not None:
            options["user"] = self.user
        if self.password is not None:
            options["password"] = self.password.reveal()
        return options


@dataclass(frozen=True, slots=True)
class MqttConnection:
    """An MQTT broker."""

    broker: str
    """`host` or `host:port`."""
    username: str | None = None
    password: Secret | None = field(default=None, repr=False)
    tls: Tls | None = None
    """None: the connection is not encrypted."""


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """A Kafka cluster."""

    brokers: str
    """`host:port`, several with commas."""
    security: KafkaSecurity = field(default_factory=KafkaSecurity)


OR_STATE_AGAIN = "or state the definition in a file of the operator: tidegate apply FILE"
"""What else helps where a definition is not trusted, for messages."""

Connection = JdbcConnection | MqttConnection | KafkaConnection


@dataclass(frozen=True)
class RunnerResources:
    """Functions, connections and folders, as the process that runs services knows them."""

    functions: Mapping[str, str] = field(default_factory=lambda: NONE)
    """By name: `module:function`."""
    connections: Mapping[str, Connection] = field(default_factory=lambda: NONE)
    files: Confinement = field(default_factory=lambda: Confinement(()))

    def function(self, name: str, origin: Origin) -> str:
        """Give the import path of a function. Raises a `ServiceError` where a definition may not name it."""
        if ":" not in name:
            target = self.functions.get(name)
            if target is None:
                hint = did_you_mean(name, self.functions)
                raise ServiceError(
                    f"no function {name!r} is registered{hint}; add it to the profile: "
                    f"functions: {{{name}: 'module:function'}}"
                )
            return target
        if origin != "operator":
            raise ServiceError(
                f"custom function {name!r} is an import path in a definition that came over the network, and is not "
                f"imported; register a function in the profile under functions, and name that, {OR_STATE_AGAIN}"
            )
        return name

    def jdbc(self, name: str) -> JdbcConnection:
        """Give a connection to a database."""
        found = self.connections.get(name)
        if not isinstance(found, JdbcConnection):
            raise ServiceError(self._unknown(name, "jdbc"))
        return found

    def mqtt(self, name: str) -> MqttConnection:
        """Give a connection to an MQTT broker."""
        found = self.connections.get(name)
        if not isinstance(found, MqttConnection):
            raise SourceError(self._unknown(name, "mqtt"))
        return found

    def kafka(self, name: str) -> KafkaConnection:
        """Give a connection to Kafka."""
        found = self.connections.get(name)
        if not isinstance(found, KafkaConnection):
            raise SourceError(self._unknown(name, "kafka"))
        return found

    def _unknown(self, name: str, kind: str) -> str:
        return (
            f"the profile has no {kind} connection {name!r}{did_you_mean(name, self.connections)}; add it: "
            f"connections: {{{name}: {{{kind}: {{...}}}}}}"
        )

    def opener(self, path: str, origin: Origin) -> Opener:
        """Give what opens the files of a definition: any for the operator's, else just those below the roots."""
        return open_any if origin == "operator" else self.files.opener(path)


def import_function(target: str, name: str) -> Any:
    """Import `module:function`; `name` is what the definition calls it. Raises a `ServiceError`."""
    module, _, path = target.partition(":")
    told = repr(name) if name == target else f"{name!r} ({target})"
    try:
        found = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as exc:  # whatever the code of others raises while it is imported
        raise ServiceError(f"custom function {told} can't be imported: {type(exc).__name__}: {exc}") from exc
    if not callable(found):
        raise ServiceError(f"custom function {told} is no function but {type(found).__name__}")
    return found
