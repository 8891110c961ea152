"""Rounds numbers to floats."""

from __future__ import annotations

import math
from ctypes import c_float


def nearest_float(value: int | float) -> float:
    """Return the float nearest to a number; infinite if the number is beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def nearest_float32(value: int | float) -> float:
    """Return the float32 nearest to a number."""
    return c_float(nearest_float(value)).value
