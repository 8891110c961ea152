"""The fuzzy matching algorithm of the paper (Zhu, figure 1), for comparison.

For each service the memberships of its attributes are summed up one by one, and the loop ends as soon as one is below
beta. As printed, `Break` leaves the inner loop only, so the sum so far decides: a service whose first membership is 0
gets a degree of 1. With `corrected`, such a service does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.filters import Filter, evaluate
from tidegate.filters.nodes import Group

ALPHA, BETA = 0.8, 0.5
"""The paper's thresholds: minimum degree, and minimum membership of one attribute."""

MembershipReader = Callable[[Mapping[str, Any]], float | None]


@dataclass(frozen=True, slots=True)
class PaperMatching:
    """A subscription as in figure 1: memberships and two thresholds."""

    memberships: Sequence[MembershipReader]
    """Membership functions of the attributes; a missing attribute has membership 0."""
    alpha: float = ALPHA
    beta: float = BETA
    corrected: bool = True

    @classmethod
    def of(cls, filter_: Filter, *, corrected: bool = True) -> PaperMatching:
        """Return the paper's subscription for a filter that is one fuzzy group, with the paper's thresholds.

        Raises `ValueError` for any other filter.
        """
        group = filter_.tree.root
        if not isinstance(group, Group) or group.negated:
            raise ValueError(f"expected one fuzzy group, such as FUZZY(price IS Z(0, 10)), not {filter_.text}")
        return cls([evaluate.item_grade(item) for item in group.items], corrected=corrected)

    def degree(self, service: Mapping[str, Any]) -> float | None:
        """Return 1 minus the mean distance from full membership; None if a membership is below beta."""
        distance = 0.0
        for membership in self.memberships:
            mu = membership(service) or 0.0
            if mu < self.beta:
                if self.corrected:
                    return None
                break
            distance += abs(1.0 - mu)
        return 1.0 - distance / len(self.memberships)

    def matches(self, service: Mapping[str, Any]) -> bool:
        """Return True if a service reaches both thresholds."""
        degree = self.degree(service)
        return degree is not None and degree >= self.alpha

    def match(self, services: Iterable[Mapping[str, Any]]) -> list[int]:
        """Return the indices of the services that match."""
        return [n for n, service in enumerate(services) if self.matches(service)]
