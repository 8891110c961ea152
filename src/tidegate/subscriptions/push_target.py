"""What the record of a subscription says about where the gateway sends its events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self


class BadValue(Exception):  # noqa: N818 - it becomes a problem of a `SubscriptionError`
    """A value of a document that can't be used, and its path inside the field."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message, self.path = message, path


class PushTarget(ABC):
    """Where and how the gateway sends the events of a subscription: a frozen dataclass, without I/O.

    The registry stores its fields, with the secrets encrypted. A `PushTransport` of the same kind sends.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """The name in documents and in the registry, and of the module in `tidegate.gateway.transports` that sends."""
    fields: ClassVar[Mapping[str, Mapping[str, Any]]]
    """The fields that a document may set, with their JSON schemas. OpenAPI shows them."""
    required_fields: ClassVar[tuple[str, ...]]
    """Those of `fields` that a new target needs; a change may leave out any."""
    shown_fields: ClassVar[Mapping[str, Mapping[str, Any]]]
    """The fields of `describe`, with their JSON schemas, without `secret`."""
    batch: int
    """The maximum number of events in one message."""
    secrets: tuple[str, ...]
    """The secrets that messages are signed with, the newest first; empty if there are none."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Where messages go. The transport validates the target again when it changes."""

    @abstractmethod
    def with_secrets(self, secrets: tuple[str, ...]) -> Self:
        """Return the target with other secrets."""

    @classmethod
    @abstractmethod
    def parse(cls, value: Any, previous: PushTarget | None) -> Self:
        """Return the target that a document describes. Missing fields are those of `previous`, if that is of this kind.

        Raises `BadValue`.
        """

    @classmethod
    def shorthand(cls, value: Any) -> Mapping[str, Any] | None:  # noqa: ARG003 - most have none
        """Return the fields for a short notation of `deliver`, such as a URL; None if this kind does not accept it."""
        return None

    @abstractmethod
    def describe(self, *, show_secret: bool = False, show_address: bool = True) -> dict[str, Any]:
        """Return the target as JSON values for the API. Secrets are counted; only `show_secret` shows the newest.

        Without `show_address` the result says nothing about who receives the events.
        """
