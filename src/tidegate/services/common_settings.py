"""Reads the settings that streams and services share: retention, audience, themes and description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.services.definitions import Retention
from tidegate.services.findings import Spot

CALLERS = "a list of callers: names of keys, subjects of tokens, or role:NAME"


def read_age(spot: Spot) -> float | None:
    """Read how long events are kept; None: `forever`."""
    return None if spot.value == "forever" else spot.seconds()


def read_retention(spot: Spot) -> Retention:
    """Read the retention of a stream."""
    if not isinstance(spot.value, Mapping):
        return Retention(read_age(spot))
    settings = spot.entries(("age", "size"), "a retention, such as 24h or {age: 24h, size: 1GB}")
    return Retention(
        read_age(settings["age"]) if "age" in settings else Retention().age_s,
        settings["size"].size() if "size" in settings else None,
    )


def read_audience(spot: Spot) -> Any:
    """Read who sees a stream or service: `public`, `keys`, or a list of callers."""
    if not isinstance(spot.value, str):
        names = spot.texts(f"public, keys, or {CALLERS}")
        if not names and spot.value == []:
            spot.refuse("at least one caller")
        return names
    return spot.choice(("public", "keys"))


def read_themes(settings: Mapping[str, Spot]) -> tuple[str, ...]:
    """Read the themes of a stream or service."""
    return settings["themes"].texts("a theme, or a list of themes") if "themes" in settings else ()


def read_description(settings: Mapping[str, Spot]) -> str:
    """Read the description of a stream or service; empty if there is none."""
    return (
        settings["description"].text("text")
        if "description" in settings and settings["description"].value != ""
        else ""
    )
