"""Functions of positions on the Earth, in Spark SQL and in Python: distance, bearing and geohash.

The Earth is a sphere of its mean radius, as in `CIRCLE` areas of filters. A position beyond 180 degrees of longitude or
90 of latitude has no result.
"""

from __future__ import annotations

import math

from tidegate.expressions.casts import FLOAT, STRING
from tidegate.expressions.overloads import Overload

EARTH_M = 6_371_008.8
"""Mean radius of the Earth in metres."""

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
_BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"
"""The digits of base 32 as Spark writes them, and as a geohash does."""


def is_position(longitude: float, latitude: float) -> bool:
    """Return True if a point is on the Earth."""
    return -180 <= longitude <= 180 and -90 <= latitude <= 90


def distance(longitude: float, latitude: float, longitude2: float, latitude2: float) -> float | None:
    """Return the great-circle distance of two positions in metres (haversine); None if one is not on the Earth.

    >>> round(distance(13.40, 52.52, 11.58, 48.14))
    503833
    """
    if not (is_position(longitude, latitude) and is_position(longitude2, latitude2)):
        return None
    y, y2 = math.radians(latitude), math.radians(latitude2)
    half = math.sin((y2 - y) / 2.0), math.sin(math.radians(longitude2 - longitude) / 2.0)
    square = half[0] * half[0] + math.cos(y) * math.cos(y2) * half[1] * half[1]
    return 2.0 * EARTH_M * math.asin(min(1.0, math.sqrt(square)))


def bearing(longitude: float, latitude: float, longitude2: float, latitude2: float) -> float | None:
    """Return the initial direction from one position to another, in degrees clockwise from north, 0 to 360.

    None if a position is not on the Earth, or if both are the same.
    """
    if not (is_position(longitude, latitude) and is_position(longitude2, latitude2)):
        return None
    if (longitude, latitude) == (longitude2, latitude2):
        return None
    y, y2, x = math.radians(latitude), math.radians(latitude2), math.radians(longitude2 - longitude)
    east = math.sin(x) * math.cos(y2)
    north = math.cos(y) * math.sin(y2) - math.sin(y) * math.cos(y2) * math.cos(x)
    return (math.degrees(math.atan2(east, north)) + 360.0) % 360.0


def geohash(longitude: float, latitude: float, length: int) -> str | None:
    """Return the geohash of a position; None if it is not on the Earth.

    >>> geohash(13.3777, 52.5163, 7)
    'u33db2m'
    """
    if not is_position(longitude, latitude):
        return None
    bits = _bits(length)
    x, y = _cell((longitude + 180.0) / 360.0, bits[0]), _cell((latitude + 90.0) / 180.0, bits[1])
    spread = int(bin(x)[2:], 4), int(bin(y)[2:], 4)
    code = 2 * spread[0] + spread[1] if bits[0] == bits[1] else spread[0] + 2 * spread[1]
    return "".join(_BASE32[code >> 5 * n & 31] for n in reversed(range(length)))


def _bits(length: int) -> tuple[int, int]:
    """Return how many bits of a geohash are of the longitude and of the latitude."""
    return (5 * length + 1) // 2, 5 * length // 2


def _cell(share: float, bits: int) -> int:
    return min(math.floor(share * 2.0**bits), (1 << bits) - 1)


_ON_EARTH = "{0} BETWEEN -180D AND 180D AND {1} BETWEEN -90D AND 90D"
_BOTH = f"{_ON_EARTH} AND {{2}} BETWEEN -180D AND 180D AND {{3}} BETWEEN -90D AND 90D"
_SQUARE = (
    "power(sin((radians({3}) - radians({1})) / 2D), 2) + cos(radians({1})) * cos(radians({3}))"
    " * power(sin(radians({2} - {0}) / 2D), 2)"
)
_EAST = "sin(radians({2} - {0})) * cos(radians({3}))"
_NORTH = "cos(radians({1})) * sin(radians({3})) - sin(radians({1})) * cos(radians({3})) * cos(radians({2} - {0}))"


def _geohash_sql(_longitude: str, _latitude: str, length: str) -> str:
    """Return the SQL of a geohash. Reading binary digits in base 4 puts a zero before each bit."""
    bits = _bits(int(length))
    x = _spread_sql("({0} + 180D) / 360D", bits[0])
    y = _spread_sql("({1} + 90D) / 180D", bits[1])
    code = f"2L * {x} + {y}" if bits[0] == bits[1] else f"{x} + 2L * {y}"
    digits = f"lpad(conv(CAST({code} AS STRING), 10, 32), {length}, '0')"
    return f"IF({_ON_EARTH}, translate({digits}, '{_DIGITS}', '{_BASE32}'), NULL)"


def _spread_sql(share: str, bits: int) -> str:
    cell = f"least(floor({share} * {2.0**bits!r}D), {2**bits - 1}L)"
    return f"CAST(conv(bin({cell}), 4, 10) AS BIGINT)"


GEO: dict[str, list[Overload]] = {
    "distance": [
        Overload(
            ("number",) * 4,
            FLOAT,
            f"IF({_BOTH}, 2D * {EARTH_M!r}D * asin(least(1D, sqrt({_SQUARE}))), NULL)",
            distance,
        )
    ],
    "bearing": [
        Overload(
            ("number",) * 4,
            FLOAT,
            f"IF({_BOTH} AND NOT ({{0}} = {{2}} AND {{1}} = {{3}}), "
            f"pmod(degrees(atan2({_EAST}, {_NORTH})) + 360D, 360D), NULL)",
            bearing,
        )
    ],
    "geohash": [
        Overload(("number", "number", "length"), STRING, _geohash_sql, geohash),
    ],
}
