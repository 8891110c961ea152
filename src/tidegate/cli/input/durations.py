"""Lengths of time as options of commands: `500ms`, `30s`, `2m`, `24h`, `7d`."""

from __future__ import annotations

import typer

from tidegate.model import units


def seconds(text: str) -> float:
    """Read a length of time; a bare number is seconds.

    >>> seconds("30s"), seconds("2m"), seconds("1.5")
    (30.0, 120.0, 1.5)
    """
    found = units.seconds_or_bare(text)
    if found is None:
        raise typer.BadParameter(f"expected a length of time such as 30s or 2m, not {text!r}")
    return found
