"""Membership functions: how much a number belongs to a shape, 0 to 1.

`membership` returns the function of a shape, `cut` the interval of numbers whose membership is at least a value. An
index and `covers` use cuts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

MembershipFunction = Callable[[float], float]
Interval = tuple[float, float]

INFINITY = math.inf
SLACK = 1e-9
"""A degree reaches a threshold if it is at most this far below it: means are rounded, and 0.7, 0.8 and 0.9 must have a
mean of 0.8. Cuts are widened by the same amount, relative to their size: a bound that rounds inward would lose events.
"""


def problem(name: str, numbers: tuple[float, ...]) -> str | None:
    """Return why these numbers make no shape; None if they do.

    >>> problem("TRIANGLE", (1, 3, 2))
    'a <= b <= c in TRIANGLE(a, b, c)'
    """
    if not all(map(math.isfinite, numbers)):
        return f"finite numbers in {name}(...)"
    match name:
        case "TRAPEZOID" | "TRIANGLE" | "RECTANGLE" | "S" | "Z":
            if list(numbers) != sorted(numbers):
                letters = "abcd"[: len(numbers)]
                return f"{' <= '.join(letters)} in {name}({', '.join(letters)})"
            if numbers[-1] - numbers[0] == INFINITY:
                return f"a width in {name}(...) that a float can hold"
        case "BELL":
            if numbers[0] == 0 or numbers[1] <= 0:
                return "a other than 0 and b > 0 in BELL(a, b, c)"
        case "GAUSS":
            if numbers[1] == 0:
                return "sigma other than 0 in GAUSS(mean, sigma)"
    return None


def membership(name: str, numbers: tuple[float, ...]) -> MembershipFunction:
    """Return the membership function of a shape.

    >>> warm = membership("TRAPEZOID", (15, 20, 25, 30))
    >>> warm(17.5), warm(20), warm(31)
    (0.5, 1.0, 0.0)
    """
    make = _FUNCTIONS[name]
    return make(*numbers)


def trapezoid(a: float, b: float, c: float, d: float) -> MembershipFunction:
    """Rise from a to b, stay 1 to c, fall to d."""

    def mu(x: float) -> float:
        if b <= x <= c:
            return 1.0
        if x <= a or x >= d:
            return 0.0
        return (x - a) / (b - a) if x < b else (d - x) / (d - c)

    return mu


def bell(a: float, b: float, c: float) -> MembershipFunction:
    """1 / (1 + |(x - c) / a| ^ 2b)."""

    def mu(x: float) -> float:
        try:
            power: float = abs((x - c) / a) ** (2 * b)
            return 1.0 / (1.0 + power)
        except OverflowError:
            return 0.0

    return mu


def s_curve(a: float, b: float) -> MembershipFunction:
    """Rise from 0 at a to 1 at b in two parabolas."""

    def mu(x: float) -> float:
        if x >= b:
            return 1.0
        if x <= a:
            return 0.0
        t = (x - a) / (b - a)
        return 2 * t * t if t <= 0.5 else 1 - 2 * (1 - t) * (1 - t)

    return mu


def z_curve(a: float, b: float) -> MembershipFunction:
    """Fall from 1 at a to 0 at b: an S mirrored."""

    def mu(x: float) -> float:
        if x <= a:
            return 1.0
        if x >= b:
            return 0.0
        t = (x - a) / (b - a)
        return 1 - 2 * t * t if t <= 0.5 else 2 * (1 - t) * (1 - t)

    return mu


def gauss(mean: float, sigma: float) -> MembershipFunction:
    """exp(-(x - mean)^2 / 2 sigma^2)."""

    def mu(x: float) -> float:
        t = (x - mean) / sigma
        return math.exp(-0.5 * t * t)

    return mu


_FUNCTIONS: dict[str, Callable[..., MembershipFunction]] = {
    "TRAPEZOID": trapezoid,
    "TRIANGLE": lambda a, b, c: trapezoid(a, b, b, c),
    "RECTANGLE": lambda a, b: trapezoid(a, a, b, b),
    "BELL": bell,
    "S": s_curve,
    "Z": z_curve,
    "GAUSS": gauss,
}


def cut(name: str, numbers: tuple[float, ...], gamma: float) -> Interval | None:
    """Return the interval where membership is at least `gamma`; None if there is none.

    Widened outward (see `SLACK`); for a gamma of 0 it is every number.

    >>> low, high = cut("TRIANGLE", (0, 10, 20), 0.5)
    >>> round(low, 6), round(high, 6)
    (5.0, 15.0)
    """
    gamma -= SLACK
    if gamma <= 0:
        return -INFINITY, INFINITY
    if gamma > 1:
        return None
    low, high = _exact_cut(name, numbers, gamma)
    return low - _margin(low, numbers), high + _margin(high, numbers)


def cut_outside(name: str, numbers: tuple[float, ...], gamma: float) -> tuple[Interval, ...]:
    """Return the intervals where 1 - membership is at least `gamma`: up to two rays, widened."""
    gamma -= SLACK
    if gamma <= 0:
        return ((-INFINITY, INFINITY),)
    if gamma > 1:
        return ()
    level = 1 - gamma
    if level <= 0:
        low, high = _support(name, numbers)
    else:
        low, high = _exact_cut(name, numbers, level)
    rays = (-INFINITY, low + _margin(low, numbers)), (high - _margin(high, numbers), INFINITY)
    return tuple((a, b) for a, b in rays if a != b)


def _support(name: str, numbers: tuple[float, ...]) -> Interval:
    """Return the interval where membership is above 0."""
    match name:
        case "BELL" | "GAUSS":
            return -INFINITY, INFINITY
        case "S":
            return numbers[0], INFINITY
        case "Z":
            return -INFINITY, numbers[1]
    return numbers[0], numbers[-1]


def _exact_cut(name: str, numbers: tuple[float, ...], gamma: float) -> Interval:
    match name, numbers:
        case "TRAPEZOID", (a, b, c, d):
            return a + gamma * (b - a), d - gamma * (d - c)
        case "TRIANGLE", (a, b, c):
            return a + gamma * (b - a), c - gamma * (c - b)
        case "RECTANGLE", (a, b):
            return a, b
        case "BELL", (a, b, c):
            try:
                reach = abs(a) * (1 / gamma - 1) ** (1 / (2 * b))
            except OverflowError:
                reach = INFINITY
            return c - reach, c + reach
        case "GAUSS", (mean, sigma):
            reach = abs(sigma) * math.sqrt(-2 * math.log(gamma))
            return mean - reach, mean + reach
        case "S", (a, b):
            return a + (b - a) * _s_inverse(gamma), INFINITY
        case "Z", (a, b):
            return -INFINITY, b - (b - a) * _s_inverse(gamma)
    raise AssertionError(name)


def _s_inverse(gamma: float) -> float:
    """Return where a unit S curve reaches `gamma`."""
    return math.sqrt(gamma / 2) if gamma <= 0.5 else 1 - math.sqrt((1 - gamma) / 2)


def _margin(edge: float, numbers: tuple[float, ...]) -> float:
    """Return how far a cut is widened at `edge`; 0 if the edge is infinite."""
    if not math.isfinite(edge):
        return 0.0
    return SLACK * max(1.0, abs(edge), *map(abs, numbers))


def dominates(name: str, numbers: tuple[float, ...], other: str, others: tuple[float, ...]) -> bool:
    """Return True if one shape is at least as high as another at every number.

    Sound, not complete: shapes of different families are compared only if both consist of straight lines.
    """
    if (name, numbers) == (other, others):
        return True
    ours, theirs = _corners(name, numbers), _corners(other, others)
    if ours and theirs:
        (a, b, c, d), (e, f, g, h) = ours, theirs
        return a <= e and b <= f and c >= g and d >= h
    if name != other:
        return False
    match name:
        case "GAUSS":
            return numbers[0] == others[0] and abs(numbers[1]) >= abs(others[1])
        case "BELL":
            return numbers[1:] == others[1:] and abs(numbers[0]) >= abs(others[0])
        case "S":
            return numbers[0] <= others[0] and numbers[1] <= others[1]
        case "Z":
            return numbers[0] >= others[0] and numbers[1] >= others[1]
    return False


def _corners(name: str, numbers: tuple[float, ...]) -> tuple[float, float, float, float] | None:
    match name, numbers:
        case "TRAPEZOID", (a, b, c, d):
            return a, b, c, d
        case "TRIANGLE", (a, b, c):
            return a, b, b, c
        case "RECTANGLE", (a, b):
            return a, a, b, b
    return None
