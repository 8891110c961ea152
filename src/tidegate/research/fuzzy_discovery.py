"""The fuzzy paper's algorithm (Zhu, figure 1), to read and to compare with.

For each published service the memberships of its attributes are summed up, attribute
by attribute, and a service is left as soon as one is under beta. As it is printed the
`Break` leaves the inner loop only: what was summed up till then decides, and a service
whose first membership is 0 ends with a matching degree of 1. `mended` rejects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.filters import Filter, evaluate
from tidegate.filters.nodes import Group

ALPHA, BETA = 0.8, 0.5
"""The paper's thresholds: of the whole, and of one attribute."""

Membership = Callable[[Mapping[str, Any]], float | None]


@dataclass(frozen=True, slots=True)
class PaperMatching:
    """A subscription as figure 1 has it: memberships, and the two thresholds."""

    memberships: Sequence[Membership]
    """Of each attribute; an attribute that is not there is not a member at all."""
    alpha: float = ALPHA
    beta: float = BETA
    mended: bool = True

    @classmethod
    def of(cls, filter_: Filter, *, mended: bool = True) -> PaperMatching:
        """Make the paper's subscription of a filter that is one fuzzy group; weights and thresholds are the paper's."""
        group = filter_.tree.root
        if not isinstance(group, Group) or group.negated:
            raise ValueError(f"expected one fuzzy group, such as FUZZY(price IS Z(0, 10)), not {filter_.text}")
        return cls([evaluate.item_grade(item) for item in group.items], mended=mended)

    def degree(self, service: Mapping[str, Any]) -> float | None:
        """One service: 1 minus the mean distance from a full membership; None: left half-way."""
        distance = 0.0
        for membership in self.memberships:
            mu = membership(service) or 0.0
            if mu < self.beta:
                if self.mended:
                    return None
                break
            distance += abs(1.0 - mu)
        return 1.0 - distance / len(self.memberships)

    def matches(self, service: Mapping[str, Any]) -> bool:
        """Whether a service reaches both thresholds."""
        degree = self.degree(service)
        return degree is not None and degree >= self.alpha

    def match(self, services: Iterable[Mapping[str, Any]]) -> list[int]:
        """The numbers of the services that match."""
        return [n for n, service in enumerate(services) if self.matches(service)]
