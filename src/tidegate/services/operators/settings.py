"""Shared by the operators' readers and writers: names of attributes, required settings, durations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.model.units import duration_text
from tidegate.services.findings import Spot

Settings = dict[str, Any]
"""The settings of an operator in a service file, as JSON values."""


def required_setting(settings: Mapping[str, Spot], key: str, spot: Spot) -> Spot:
    """Return the spot of a setting. If it is missing, the spot holds None, so that reading it reports the problem."""
    return settings[key] if key in settings else spot.at(key, None)


def read_names(spot: Spot | None) -> tuple[str, ...]:
    """Return the names of attributes: one, or a list; none without a spot."""
    return () if spot is None else spot.texts("an attribute, or a list of attributes")


def read_seconds(settings: Mapping[str, Spot], key: str) -> float:
    """Return a duration in seconds, 0 or more; 0 if the setting is missing."""
    return settings[key].seconds(zero=True) if key in settings else 0.0


def without_empty(**entries: Any) -> Settings:
    """Return the entries that are neither None nor empty."""
    return {name: value for name, value in entries.items() if value is not None and value not in ({}, [], "")}


def write_seconds(length_s: float | None) -> str | None:
    """Return the text of a duration; None for None and 0."""
    return duration_text(length_s) if length_s else None


def write_names(names: tuple[str, ...]) -> str | list[str]:
    """Return one name alone, and several as a list."""
    return names[0] if len(names) == 1 else list(names)
