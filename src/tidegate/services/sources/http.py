"""Events that producers send."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.services.findings import Spot
from tidegate.services.sources.declaration import SourceDeclaration


@dataclass(frozen=True)
class Http:
    """Producers send events over HTTP, or append them to the log."""


def _read(spot: Spot) -> Http:
    spot.entries((), "nothing: {http: {}}")
    return Http()


DECLARATION = SourceDeclaration("http", Http, _read, "")
