"""The most of something that still goes: doubling, then bisecting, for as long as there is time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """Where a search ended."""

    most: int
    """The largest that went; 0: not even the first did."""
    least_bad: int | None
    """The smallest that did not; None: none was found."""
    tried: int

    @property
    def is_sharp(self) -> bool:
        """Whether what lies between is no more than a tenth."""
        return self.least_bad is not None and self.least_bad - self.most <= max(1, self.most // 10)


def largest(goes: Callable[[int], bool], first: int, limit: int, has_time: Callable[[], bool]) -> Found:
    """Search for the largest number up to a limit that goes; `has_time` is asked before each try but the first.

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
