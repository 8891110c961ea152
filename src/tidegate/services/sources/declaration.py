"""The parts that the declaration of each source has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.services.findings import Spot

T = TypeVar("T")

ConnectionKind = str
"""The kind of a connection of the profile, such as `mqtt`: its key there."""
CONNECTION = "the name of a connection of the profile"


@dataclass(frozen=True)
class SourceDeclaration(Generic[T]):
    """One kind of source. `sources/registry.py` lists all of them."""

    name: str
    """The key in a service file, and the kind of its connections."""
    type: type[T]
    read: Callable[[Spot], T]
    """Reads the settings. Reports problems at the spot, and then returns a placeholder."""
    main_field: str
    """The field that is written alone if all others have their defaults."""
    has_connection: bool = False
    """True if `type` has a field `connection`. Definitions that are not trusted must name one."""
    address_fields: tuple[str, ...] = ()
    """The fields with addresses, paths and topics, in which a password must not stand."""


def refuse_beside_connection(settings: Mapping[str, Spot], keys: Iterable[str]) -> None:
    """Report settings that the named connection has already."""
    for key in keys:
        if key in settings:
            settings[key].report(f"expected {key} or a connection, which has it already, not both")
