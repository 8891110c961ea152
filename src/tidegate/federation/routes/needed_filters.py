"""The filters that a broker needs events for: of its own subscriptions and of its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

from tidegate.errors import FederationError, did_you_mean
from tidegate.filters import Filter


class NeededFilters:
    """Needed filters under numbers that this broker never uses twice."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._by_number: dict[int, Filter] = {}
        self._local: dict[str, dict[str, int]] = {}
        """By service and subscription, the number of its filter."""

    def next_number(self) -> int:
        """Return an unused number."""
        return next(self._numbers)

    def apply(self, put: Mapping[int, Filter], drop: Iterable[int]) -> None:
        """Add filters by number, then remove others."""
        self._by_number.update(put)
        for number in drop:
            del self._by_number[number]

    def select(self, numbers: Iterable[int]) -> dict[int, Filter]:
        """Return the filters with these numbers, in the order of the numbers; unknown numbers are skipped."""
        return {number: self._by_number[number] for number in sorted(numbers) if number in self._by_number}

    # Own subscriptions ---------------------------------------------------------------

    def set_local(self, service: str, filters: Mapping[str, Filter | None]) -> tuple[dict[int, Filter], list[int]]:
        """Assign numbers to subscriptions that are added, changed or, by None, removed.

        Returns the filters to put and the numbers to drop. Call `apply` once the outgoing tables have them.
        """
        local = self._local.setdefault(service, {})
        drop = [local.pop(subscription) for subscription in filters if subscription in local]
        put: dict[int, Filter] = {}
        for subscription, filter_ in filters.items():
            if filter_ is not None:
                local[subscription] = number = self.next_number()
                put[number] = filter_
        return put, drop

    def require_absent(self, service: str, subscription: str) -> None:
        """Raise a `FederationError` if the subscription exists."""
        if subscription in self._local.get(service, ()):
            raise FederationError(f"subscription {subscription!r} of {service!r} is there already; change it")

    def require_present(self, service: str, subscription: str) -> None:
        """Raise a `FederationError` if the subscription does not exist."""
        local = self._local.get(service, {})
        if subscription not in local:
            raise FederationError(f"no subscription {subscription!r} of {service!r}{did_you_mean(subscription, local)}")

    def local(self, service: str) -> dict[str, Filter]:
        """Return this broker's own subscriptions to a service."""
        return {name: self._by_number[number] for name, number in self._local.get(service, {}).items()}

    def local_numbers(self, service: str) -> Iterable[int]:
        """Return the numbers of this broker's own filters of a service."""
        return self._local.get(service, {}).values()

    def local_services(self) -> Iterable[str]:
        """Return the services that this broker has or had subscriptions to."""
        return self._local
