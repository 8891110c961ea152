"""Areas on the map: boxes, circles and polygons of longitude and latitude.

A point beyond 180 degrees of longitude or 90 of latitude is in no area.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from tidegate.expressions.geo import EARTH_M

Contains = Callable[[float, float], bool]


def problem(name: str, numbers: tuple[float, ...]) -> str | None:
    """Return why these numbers make no area; None if they do.

    >>> problem("BOX", (39.9, 116.3, 40.0, 116.4))
    'a latitude from -90 to 90, not 116.3 (longitude comes first)'
    """
    if not all(map(math.isfinite, numbers)):
        return f"finite numbers in {name}(...)"
    places = numbers[:2] if name == "CIRCLE" else numbers
    for longitude, latitude in zip(places[::2], places[1::2], strict=True):
        if not -180 <= longitude <= 180:
            return f"a longitude from -180 to 180, not {longitude:g}"
        if not -90 <= latitude <= 90:
            return f"a latitude from -90 to 90, not {latitude:g} (longitude comes first)"
    if name == "BOX" and numbers[1] > numbers[3]:
        return "BOX(west, south, east, north) with south <= north"
    if name == "CIRCLE" and numbers[2] < 0:
        return f"a radius of 0 metres or more, not {numbers[2]:g}"
    return None


def contains(name: str, numbers: tuple[float, ...]) -> Contains:
    """Return the test whether a point is inside an area; the edge is inside.

    >>> tiananmen = contains("CIRCLE", (116.3975, 39.9087, 500))
    >>> tiananmen(116.3970, 39.9100), tiananmen(116.42, 39.91)
    (True, False)
    """
    match name:
        case "BOX":
            return _box(*numbers)
        case "CIRCLE":
            return _circle(*numbers)
    return _polygon(corners(numbers))


def _box(west: float, south: float, east: float, north: float) -> Contains:
    """Return the test of a box; if its west is beyond its east, it crosses the date line."""
    if west <= east:
        return lambda x, y: west <= x <= east and south <= y <= north
    return lambda x, y: (west <= x <= 180 or -180 <= x <= east) and south <= y <= north


def _circle(longitude: float, latitude: float, metres: float) -> Contains:
    threshold = circle_threshold(metres)
    x0, y0 = math.radians(longitude), math.radians(latitude)
    cos_y0 = math.cos(y0)

    def test(x: float, y: float) -> bool:
        if not (-180 <= x <= 180 and -90 <= y <= 90):
            return False
        lon, lat = math.radians(x), math.radians(y)
        a = math.sin((lat - y0) / 2) ** 2 + cos_y0 * math.cos(lat) * math.sin((lon - x0) / 2) ** 2
        return a <= threshold

    return test


def circle_threshold(metres: float) -> float:
    """Return the haversine of a radius, widened by one part in a billion."""
    angle = min(metres / EARTH_M * (1 + 1e-9), math.pi)
    haversine: float = math.sin(angle / 2) ** 2
    return haversine


def corners(numbers: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return the corners of a polygon; the first is repeated at the end."""
    places = list(zip(numbers[::2], numbers[1::2], strict=True))
    return places if places[0] == places[-1] else [*places, places[0]]


def _polygon(ring: list[tuple[float, float]]) -> Contains:
    """Return the test of a polygon: planar, in degrees, even-odd rule; a point on an edge is inside."""
    edges = list(pairwise(ring))

    def test(x: float, y: float) -> bool:
        inside = False
        for (x1, y1), (x2, y2) in edges:
            side = (x2 - x1) * (y - y1) - (x - x1) * (y2 - y1)
            if side == 0 and min(x1, x2) <= x <= max(x1, x2) and min(y1, y2) <= y <= max(y1, y2):
                return True
            if (y1 > y) != (y2 > y) and (side < 0) != (y2 > y1):
                inside = not inside
        return inside

    return test


def bounding_box(name: str, numbers: tuple[float, ...]) -> tuple[list[tuple[float, float]], tuple[float, float]]:
    """Return longitude ranges and a latitude range that contain all of an area."""
    match name:
        case "BOX":
            west, south, east, north = numbers
            longitudes = [(west, east)] if west <= east else [(-180.0, east), (west, 180.0)]
            return longitudes, (south, north)
        case "CIRCLE":
            return _circle_box(*numbers)
    xs, ys = numbers[::2], numbers[1::2]
    return [(min(xs), max(xs))], (min(ys), max(ys))


def _circle_box(
    longitude: float, latitude: float, metres: float
) -> tuple[list[tuple[float, float]], tuple[float, float]]:
    """Return the bounding box of a circle; one that contains a pole or meets the date line spans all longitudes."""
    angle = metres / EARTH_M * (1 + 1e-9) + 1e-12
    reach = math.degrees(angle)
    south, north = max(latitude - reach, -90.0), min(latitude + reach, 90.0)
    if south == -90 or north == 90:
        return [(-180.0, 180.0)], (south, north)
    spread = math.degrees(math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(latitude)))))
    if longitude - spread < -180 or longitude + spread > 180:
        return [(-180.0, 180.0)], (south, north)
    return [(longitude - spread, longitude + spread)], (south, north)


def holds(name: str, numbers: tuple[float, ...], other: str, others: tuple[float, ...]) -> bool:
    """Return True if an area contains all of another. Sound, not complete: False may mean unknown."""
    if (name, numbers) == (other, others):
        return True
    if name == "BOX":
        ours, (low, high) = bounding_box(name, numbers)
        theirs, (south, north) = bounding_box(other, others)
        return all(any(w <= a and b <= e for w, e in ours) for a, b in theirs) and low <= south and north <= high
    if name == other == "CIRCLE":
        return distance(numbers[:2], others[:2]) + others[2] <= numbers[2]
    return False


def distance(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Return the great-circle distance of two points in metres."""
    (x1, y1), (x2, y2) = map(math.radians, one), map(math.radians, other)
    a = math.sin((y2 - y1) / 2) ** 2 + math.cos(y1) * math.cos(y2) * math.sin((x2 - x1) / 2) ** 2
    return 2 * EARTH_M * math.asin(min(1.0, math.sqrt(a)))
