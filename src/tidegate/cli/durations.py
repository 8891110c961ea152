"""Lengths of time as people write them: `500ms`, `30s`, `2m`, `24h`, `7d`."""

from __future__ import annotations

import re

import typer

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """Read a length of time; a bare number is seconds.

    >>> seconds("30s"), seconds("2m"), seconds("1.5")
    (30.0, 120.0, 1.5)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", text.strip())
    if found is None:
        raise typer.BadParameter(f"expected a length of time such as 30s or 2m, not {text!r}")
    return float(found[1]) * _SECONDS[found[2] or "s"]
