"""Search for the largest number that still passes: doubling, then bisecting, within a time limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search."""

    most: int
    """The largest number that passed; 0 if none did."""
    least_bad: int | None
    """The smallest number that failed; None if none did."""
    tried: int

    @property
    def is_sharp(self) -> bool:
        """True if the remaining interval is at most a tenth."""
        return self.least_bad is not None and self.least_bad - self.most <= max(1, self.most // 10)


def largest(goes: Callable[[int], bool], first: int, limit: int, has_time: Callable[[], bool]) -> Found:
    """Search for the largest number up to a limit that passes; `has_time` is called before each try but the first.

    Nothing is tried twice. Between a number that goes and one that does not it
    ends when they are a tenth apart.

    >>> largest(lambda n: n <= 2_697, 100, 100_000, lambda: True)
    Found(most=2600, least_bad=2800, tried=9)
    """
    good, bad, tried = 0, None, 0
    candidate = min(first, limit)
    while tried == 0 or has_time():
        tried += 1
        if goes(candidate):
            good = candidate
        else:
            bad = candidate
        found = Found(good, bad, tried)
        if found.is_sharp or good >= limit:
            break
        candidate = min(2 * good, limit) if bad is None else (good + bad) // 2
        if candidate == good:
            break
    return Found(good, bad, tried)
