"""Events of a built-in generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.services.findings import Spot
from tidegate.services.sources.declaration import SourceDeclaration

DEMOS = ("anpr", "gps")
"""The built-in generators."""


@dataclass(frozen=True)
class Demo:
    """Events of a built-in generator. The same seed gives the same events."""

    kind: str
    rate: float = 1_000.0
    """Events a second."""
    seed: int = 7


def _read(spot: Spot) -> Demo:
    if not isinstance(spot.value, Mapping):
        return Demo(spot.choice(DEMOS))
    settings = spot.entries(("kind", "rate", "seed"), "a demo")
    kind = settings.get("kind", spot.at("kind", None)).choice(DEMOS)
    defaults = Demo(kind)
    return Demo(
        kind,
        settings["rate"].number("events a second, above 0", 0, 1e9, above=True)
        if "rate" in settings
        else defaults.rate,
        settings["seed"].whole("a whole number, 0 or more", 0) if "seed" in settings else defaults.seed,
    )


DECLARATION = SourceDeclaration("demo", Demo, _read, "kind")
