"""Parts of a timestamp in a time zone, in Spark SQL and in Python.

Within two days of the first and the last year that a timestamp can hold, the result is null: the local time may lie
outside of the calendar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.expressions.casts import INT
from tidegate.expressions.overloads import Overload
from tidegate.model import timestamps

_NAME = re.compile(r"UTC|[A-Z][A-Za-z_]+(/[A-Z][A-Za-z0-9_+-]+)+")
"""Names that Python and Java have in common."""
_FIRST = datetime.min.replace(tzinfo=UTC) + timedelta(days=2)
_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(days=2)


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo | None:
    """Return a time zone by name; None if there is none."""
    if _NAME.fullmatch(name) is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError):
        return None


def in_zone(sql: str, read: Callable[[datetime], int]) -> Overload:
    """Return the overload that reads a part of a timestamp in a time zone."""

    def part(moment: datetime, name: str) -> int | None:
        if not _FIRST <= moment <= _LAST:
            return None
        return read(moment.astimezone(zone(name)))

    bounds = f"{timestamps.from_datetime(_FIRST)}L AND {timestamps.from_datetime(_LAST)}L"
    local = f"CAST({sql}(from_utc_timestamp({{0}}, {{1}})) AS BIGINT)"
    return Overload(("time", "zone"), INT, f"IF(unix_micros({{0}}) BETWEEN {bounds}, {local}, NULL)", part)
