"""Names of services in a federation: `gps` at its own broker, `gps@city` everywhere else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceName:
    """The name of a service, with the broker that it comes from.

    >>> ServiceName.parse("gps@city")
    ServiceName(name='gps', origin='city')
    >>> ServiceName.parse("gps").is_remote
    False
    >>> str(ServiceName("gps", "city"))
    'gps@city'
    """

    name: str
    """The name at the origin."""
    origin: str | None = None
    """The broker that runs the service. None: this broker."""

    @classmethod
    def parse(cls, text: str) -> ServiceName:
        """Split a name at its first `@`. Neither part is validated."""
        name, at, origin = text.partition("@")
        return cls(name, origin if at else None)

    @property
    def is_remote(self) -> bool:
        """True if the name has an origin: the service belongs to another broker, and its local stream is a mirror."""
        return self.origin is not None

    def __str__(self) -> str:
        return self.name if self.origin is None else f"{self.name}@{self.origin}"
