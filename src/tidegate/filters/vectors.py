"""Membership functions and areas over numpy arrays: the formulas of `membership` and `areas`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tidegate.filters import areas

NumpyArray = np.ndarray[Any, np.dtype[Any]]
FloatArray = np.ndarray[Any, np.dtype[np.float64]]
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]


def membership(name: str, numbers: tuple[float, ...], x: FloatArray) -> FloatArray:
    """Return the membership of each number in a shape."""
    with np.errstate(all="ignore"):
        match name, numbers:
            case "TRAPEZOID", (a, b, c, d):
                return _trapezoid(a, b, c, d, x)
            case "TRIANGLE", (a, b, c):
                return _trapezoid(a, b, b, c, x)
            case "RECTANGLE", (a, b):
                return _trapezoid(a, a, b, b, x)
            case "BELL", (a, b, c):
                return np.asarray(1.0 / (1.0 + np.abs((x - c) / a) ** (2 * b)))
            case "GAUSS", (mean, sigma):
                t = (x - mean) / sigma
                return np.asarray(np.exp(-0.5 * t * t))
            case "S", (a, b):
                return _s_curve(a, b, x)
            case "Z", (a, b):
                return _z_curve(a, b, x)
    raise AssertionError(name)


def _trapezoid(a: float, b: float, c: float, d: float, x: FloatArray) -> FloatArray:
    mu = np.where(x < b, (x - a) / (b - a) if b > a else 0.0, (d - x) / (d - c) if d > c else 0.0)
    mu = np.where((x <= a) | (x >= d), 0.0, mu)
    return np.where((b <= x) & (x <= c), 1.0, mu)


def _s_curve(a: float, b: float, x: FloatArray) -> FloatArray:
    t = (x - a) / (b - a) if b > a else x
    mu = np.where(t <= 0.5, 2 * t * t, 1 - 2 * (1 - t) * (1 - t))
    return np.where(x >= b, 1.0, np.where(x <= a, 0.0, mu))


def _z_curve(a: float, b: float, x: FloatArray) -> FloatArray:
    t = (x - a) / (b - a) if b > a else x
    mu = np.where(t <= 0.5, 1 - 2 * t * t, 2 * (1 - t) * (1 - t))
    return np.where(x <= a, 1.0, np.where(x >= b, 0.0, mu))


def inside(name: str, numbers: tuple[float, ...], x: FloatArray, y: FloatArray) -> BoolArray:
    """Return which points are inside an area."""
    with np.errstate(all="ignore"):
        match name, numbers:
            case "BOX", (west, south, east, north):
                within = (south <= y) & (y <= north)
                if west <= east:
                    return (west <= x) & (x <= east) & within
                return (((west <= x) & (x <= 180)) | ((-180 <= x) & (x <= east))) & within
            case "CIRCLE", (longitude, latitude, metres):
                return _circle(longitude, latitude, metres, x, y)
        return _polygon(areas.corners(numbers), x, y)


def _circle(longitude: float, latitude: float, metres: float, x: FloatArray, y: FloatArray) -> BoolArray:
    x0, y0 = np.radians(longitude), np.radians(latitude)
    lon, lat = np.radians(x), np.radians(y)
    a = np.sin((lat - y0) / 2) ** 2 + np.cos(y0) * np.cos(lat) * np.sin((lon - x0) / 2) ** 2
    valid = (-180 <= x) & (x <= 180) & (-90 <= y) & (y <= 90)
    return np.asarray((a <= areas.circle_threshold(metres)) & valid)


def _polygon(ring: list[tuple[float, float]], x: FloatArray, y: FloatArray) -> BoolArray:
    within = np.zeros(len(x), dtype=bool)
    on_edge = np.zeros(len(x), dtype=bool)
    for (x1, y1), (x2, y2) in pairwise(ring):
        side = (x2 - x1) * (y - y1) - (x - x1) * (y2 - y1)
        between = (min(x1, x2) <= x) & (x <= max(x1, x2)) & (min(y1, y2) <= y) & (y <= max(y1, y2))
        on_edge |= (side == 0) & between
        within ^= ((y1 > y) != (y2 > y)) & ((side < 0) != (y2 > y1))
    return within | on_edge
