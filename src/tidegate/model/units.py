"""Durations and sizes as people write them: `500ms`, `30s`, `2m`, `24h`, `7d`; `10MB`, `1GiB`."""

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
    """Return a duration in seconds; None if the text is none, or too long for a float.

    >>> seconds("50ms"), seconds("30s"), seconds("2 m"), seconds("30")
    (0.05, 30.0, 120.0, None)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    number = float(match[1])
    # Divide by 1000 rather than multiply by 0.001, so that 50ms is the float nearest to 0.05.
    length_s = number / 1_000 if match[2] == "ms" else number * _SECONDS[match[2]]
    return length_s if length_s != float("inf") else None


def seconds_or_bare(text: str) -> float | None:
    """Return a duration in seconds; a number without a unit is in seconds.

    >>> seconds_or_bare("50ms"), seconds_or_bare("1.5"), seconds_or_bare("soon")
    (0.05, 1.5, None)
    """
    length_s = seconds(text)
    return seconds(f"{text}s") if length_s is None else length_s


def duration_text(length_s: float) -> str:
    """Return the text of a duration; `seconds` reads the same number back.

    >>> duration_text(86400.0), duration_text(90.0), duration_text(0.05), duration_text(0.0)
    ('1d', '90s', '50ms', '0s')
    """
    for unit, size in _SECONDS.items():
        if length_s >= size and length_s % size == 0 and length_s / size < 1_000:
            return f"{int(length_s / size)}{unit}"
    thousandths = round(min(length_s, 10) * 1_000)
    if 0 < thousandths and thousandths / 1_000 == length_s:
        return f"{thousandths}ms"
    # repr is the shortest text of a float; Decimal writes 1e-07 without an exponent.
    return f"{Decimal(repr(float(length_s))):f}s".replace(".0s", "s")


def size_bytes(text: str) -> int | None:
    """Return a size in bytes; None if the text is none. `KB` is 1,000 bytes, `KiB` 1,024.

    >>> size_bytes("10MB"), size_bytes("1.5 GiB"), size_bytes("many")
    (10000000, 1610612736, None)
    """
    match = _SIZE.fullmatch(text.strip())
    return None if match is None else int(Decimal(match[1]) * _BY_LOWER[match[2].lower()])


def size_text(size: int) -> str:
    """Return the text of a size; `size_bytes` reads the same number back.

    >>> size_text(1_000_000_000), size_text(2**20), size_text(1_234)
    ('1GB', '1MiB', '1234B')
    """
    for unit, bytes_ in _BYTES.items():
        if size >= bytes_ and size % bytes_ == 0:
            return f"{size // bytes_}{unit}"
    return f"{size}B"
