"""Lengths of time and sizes as people write them: `500ms`, `30s`, `2m`, `24h`, `7d`; `10MB`, `1GiB`."""

from __future__ import annotations

import re
from decimal import Decimal

_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_BYTES = {
    "TiB": 2**40,
    "TB": 10**12,
    "GiB": 2**30,
    "GB": 10**9,
    "MiB": 2**20,
    "MB": 10**6,
    "KiB": 2**10,
    "KB": 10**3,
    "B": 1,
}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)", re.ASCII)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?B|B)", re.ASCII | re.IGNORECASE)
_BY_LOWER = {unit.lower(): size for unit, size in _BYTES.items()}


def seconds(text: str) -> float | None:
    """Read a length of time; None if it is none, or too long for a number.

    >>> seconds("50ms"), seconds("30s"), seconds("2 m"), seconds("30")
    (0.05, 30.0, 120.0, None)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    number = float(found[1])
    # A division, not a factor of 0.001: 50ms are the float nearest to 0.05.
    read = number / 1_000 if found[2] == "ms" else number * _SECONDS[found[2]]
    return read if read != float("inf") else None


def seconds_or_bare(text: str) -> float | None:
    """Read a length of time; a bare number is seconds.

    >>> seconds_or_bare("50ms"), seconds_or_bare("1.5"), seconds_or_bare("soon")
    (0.05, 1.5, None)
    """
    found = seconds(text)
    return seconds(f"{text}s") if found is None else found


def duration_text(length_s: float) -> str:
    """Write a length of time; `seconds` reads the same number back.

    >>> duration_text(86400.0), duration_text(90.0), duration_text(0.05), duration_text(0.0)
    ('1d', '90s', '50ms', '0s')
    """
    for unit, size in _SECONDS.items():
        if length_s >= size and length_s % size == 0 and length_s / size < 1_000:
            return f"{int(length_s / size)}{unit}"
    thousandths = round(min(length_s, 10) * 1_000)
    if 0 < thousandths and thousandths / 1_000 == length_s:
        return f"{thousandths}ms"
    # repr is the shortest text of a float; the rest makes 1e-07 a plain number.
    return f"{Decimal(repr(float(length_s))):f}s".replace(".0s", "s")


def size_bytes(text: str) -> int | None:
    """Read a size in bytes; None if it is none. `KB` is a thousand, `KiB` 1,024.

    >>> size_bytes("10MB"), size_bytes("1.5 GiB"), size_bytes("many")
    (10000000, 1610612736, None)
    """
    found = _SIZE.fullmatch(text.strip())
    return None if found is None else int(Decimal(found[1]) * _BY_LOWER[found[2].lower()])


def size_text(size: int) -> str:
    """Write a size; `size_bytes` reads the same number back.

    >>> size_text(1_000_000_000), size_text(2**20), size_text(1_234)
    ('1GB', '1MiB', '1234B')
    """
    for unit, bytes_ in _BYTES.items():
        if size >= bytes_ and size % bytes_ == 0:
            return f"{size // bytes_}{unit}"
    return f"{size}B"
