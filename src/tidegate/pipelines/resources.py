"""Functions, connections and folders that the profile lists for services and sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

from tidegate.errors import ServiceError, did_you_mean
from tidegate.ingress.connections import FeedConnection, FeedResources, unknown_connection
from tidegate.model.secrets import Secret
from tidegate.services.definitions import NONE, Origin
from tidegate.services.roots import Confinement, Opener, open_any
from tidegate.services.trust import OR_STATE_AGAIN as OR_STATE_AGAIN


@dataclass(frozen=True, slots=True)
class JdbcConnection:
    """A database."""

    kind: ClassVar[str] = "jdbc"

    url: str
    driver: str
    """The class of its JDBC driver, which is on Spark's class path."""
    user: str | None = None
    password: Secret | None = field(default=None, repr=False)

    def options(self) -> dict[str, str]:
        """Return options for Spark's JDBC reader. Reads the password now."""
        options = {"url": self.url, "driver": self.driver}
        if self.user is not None:
            options["user"] = self.user
        if self.password is not None:
            options["password"] = self.password.reveal()
        return options


Connection = JdbcConnection | FeedConnection


@dataclass(frozen=True)
class RunnerResources:
    """Functions, connections and folders for the process that runs services."""

    functions: Mapping[str, str] = field(default_factory=lambda: NONE)
    """By name: `module:function`."""
    connections: Mapping[str, Connection] = field(default_factory=lambda: NONE)
    files: Confinement = field(default_factory=lambda: Confinement(()))
    default_retention_s: float | None = None
    """Retention of streams without a definition, such as `_status`; None: 24 hours."""

    def for_feeds(self) -> FeedResources:
        """Return what feeds may use of it."""
        return FeedResources(self.connections, self.files)

    def function(self, name: str, origin: Origin) -> str:
        """Return the import path of a function. Raises ServiceError if a definition may not name it."""
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
        """Return the database connection with this name. Raises ServiceError if the profile has none."""
        connection = self.connections.get(name)
        if not isinstance(connection, JdbcConnection):
            raise ServiceError(unknown_connection(name, "jdbc", self.connections))
        return connection

    def opener(self, path: str, origin: Origin) -> Opener:
        """Return the function that opens the files of a definition: any file for the operator, else below the roots."""
        return open_any if origin == "operator" else self.files.opener(path)


def import_function(target: str, name: str) -> Any:
    """Import `module:function`; `name` is how the definition calls it. Raises ServiceError."""
    module, _, path = target.partition(":")
    shown = repr(name) if name == target else f"{name!r} ({target})"
    try:
        function = import_module(module)
        for part in path.split("."):
            function = getattr(function, part)
    except (Exception, SystemExit) as exc:  # the imported code may raise anything
        raise ServiceError(f"custom function {shown} can't be imported: {type(exc).__name__}: {exc}") from exc
    if not callable(function):
        raise ServiceError(f"custom function {shown} is no function but {type(function).__name__}")
    return function
