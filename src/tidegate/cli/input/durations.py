"""Durations as options of commands: `500ms`, `30s`, `2m`, `24h`, `7d`."""

from __future__ import annotations

import typer

from tidegate.model import units


def seconds(text: str) -> float:
    """Parse a duration; a bare number is seconds. Raises a `BadParameter` for other text.

    >>> seconds("30s"), seconds("2m"), seconds("1.5")
    (30.0, 120.0, 1.5)
    """
    duration_s = units.seconds_or_bare(text)
    if duration_s is None:
        raise typer.BadParameter(f"expected a length of time such as 30s or 2m, not {text!r}")
    return duration_s
