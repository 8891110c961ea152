"""What one neighbour may make a broker keep or compute, and what happens to one that exceeds it.

A neighbour has proved who it is, and may still be hostile or broken. Its messages are bounded in size, number and rate
before anything is done with them. One that sends faster than it may is read more slowly; one that keeps doing so, or
sends what no broker sends, is disconnected and must wait before it may come back, longer each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.errors import FederationError
from tidegate.logs.log import is_name
from tidegate.registry import need_broker_name

MAX_PARTITIONS = 1_024
MAX_TEXT = 300
"""Characters of a text of a neighbour that is shown to an operator."""


class NeighbourFault(FederationError):  # noqa: N818 - says whose mistake it is
    """A neighbour has sent what it must not: its session ends, and it has to wait before it may come back."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits for each neighbour."""

    control_bytes: int = 32 * 1024 * 1024
    """Of one control message: a table of 200,000 filters, or the offers of 5,000 services."""
    event_bytes: int = 32 * 1024 * 1024
    """Of one message with events: four times what a page of history has."""
    services: int = 5_000
    """Services that it offers, that it asks for, and that it says where to go on with."""
    attributes: int = 2_000
    """Attributes of one service that it offers."""
    offer_bytes: int = 8 * 1024 * 1024
    """Of all that it offers."""
    offer_values: int = 200_000
    """Values of all that it offers, at every level: reading 200,000 takes a thread about half a second."""
    depth: int = 32
    """Levels of nesting in what it offers."""
    filters: int = 200_000
    """Filters that it asks for, of all services together."""
    filter_bytes: int = 64 * 1024
    """Of one filter with its parameters."""
    table_bytes: int = 64 * 1024 * 1024
    """Of all filters that it asks for."""
    relayed_filters: int = 50_000
    """Filters that it asks for of services of other brokers. Fewer than we may ask those for: else one neighbour could
    have us disconnected by another."""
    relayed_bytes: int = 16 * 1024 * 1024
    """Of these filters."""
    partitions: int = MAX_PARTITIONS
    """Partitions of one service that it sends events of."""
    pages: int = 1_000
    """Pages of history that it may wait for."""
    relayed_pages: int = 50
    """Pages of history that are asked for at the next broker on its behalf, at one time; more of them wait."""
    rate: float = 20_000.0
    """Units of work a second that its control messages may cost; see `cost_of`."""
    burst: float = 400_000.0
    """Units of work that it may use at once, after it was quiet."""
    flood_s: float = 10.0
    """How long it may exceed its rate, and be read more slowly, before it is disconnected."""
    first_wait_s: float = 1.0
    """How long a neighbour that was disconnected for a fault has to wait; twice as long each time."""
    max_wait_s: float = 60.0


class Budget:
    """The work that a neighbour may cause.

    >>> now = 0.0
    >>> budget = Budget(Bounds(rate=10, burst=20, flood_s=2), lambda: now)
    >>> budget.spend(20), budget.spend(5)
    (0.0, 0.5)
    """

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        self._bounds, self._clock = bounds, clock
        self._left, self._at = bounds.burst, clock()
        self._exceeded_at: float | None = None

    def spend(self, units: float) -> float:
        """Take units of work; return how many seconds to wait before it is done. Raises after a flood."""
        bounds, now = self._bounds, self._clock()
        self._left = min(bounds.burst, self._left + (now - self._at) * bounds.rate) - units
        self._at = now
        if self._left > bounds.burst / 2:
            self._exceeded_at = None
        if self._left >= 0:
            return 0.0
        if self._exceeded_at is None:
            self._exceeded_at = now
        if now - self._exceeded_at > bounds.flood_s:
            raise NeighbourFault(
                f"it has sent more control messages than {bounds.rate:,.0f} units of work a second for over "
                f"{bounds.flood_s:g} s"
            )
        return -self._left / bounds.rate


_COSTS = {"taken": 1, "history": 50, "offers": 5_000}
"""Units of work of a message, whatever is in it; 5 of all others. An offer has every service be looked at again."""
_PARTS = {"hello": ("tables", "paths"), "reach": ("paths",), "update": ("add", "remove"), "table": ("entries",)}
"""What each further unit is for."""


def cost_of(message: Mapping[str, Any], size_bytes: int) -> float:
    """Return the units of work that a control message costs: about 20 µs each."""
    kind = str(message.get("type"))
    parts = (message.get(name) for name in _PARTS.get(kind, ("services",)))
    count = sum(len(each) for each in parts if isinstance(each, Collection))
    return _COSTS.get(kind, 5) + 2 * count + size_bytes / 256


# Messages -----------------------------------------------------------------------------------


def check_message(message: Mapping[str, Any], bounds: Bounds) -> None:
    """Refuse a control message with more parts than it may have, or with names that nothing can have."""
    match message["type"]:
        case "offers":
            _need_count(message["services"], bounds.services, "services in an offer")
            values = sum(_check_offer(each, bounds) for each in message["services"])
            if values > bounds.offer_values:
                raise NeighbourFault(f"expected at most {bounds.offer_values:,} values in all offers, not {values:,}")
        case "resume":
            _need_count(message["services"], bounds.services, "services to go on with")
            _need_services(message["services"])
            for each in message["services"].values():
                _check_begin(each["cursor"], each["marks"])
        case "hello":
            _need_count(message["tables"], bounds.services, "tables")
            _need_services(message["tables"])
            _need_paths(message["paths"])
        case "reach":
            _need_paths(message["paths"])
        case "update" | "table":
            _need_services([message["service"]])
            for each in message["add"] if message["type"] == "update" else message["entries"]:
                check_filter(each["filter"], each.get("params", ()), bounds)
        case "history":
            asked = message.get("filter")
            if asked is not None:
                check_filter(asked["text"], asked["params"], bounds)


def check_filter(text: str, params: Iterable[Any], bounds: Bounds) -> None:
    """Refuse a filter that is too large to be read."""
    size = len(text) + sum(len(each) if isinstance(each, str) else 8 for each in params)
    if size > bounds.filter_bytes:
        raise NeighbourFault(f"expected a filter of at most {bounds.filter_bytes:,} bytes, not {size:,}")


def check_tables(sizes: Collection[tuple[int, int]], bounds: Bounds) -> None:
    """Refuse to keep more of what a neighbour asks for than it may; of each service, filters and characters."""
    services, filters, size_bytes = len(sizes), sum(each for each, _ in sizes), sum(each for _, each in sizes)
    if filters > bounds.filters:
        raise NeighbourFault(f"expected at most {bounds.filters:,} filters over a link, not {filters:,}")
    if size_bytes > bounds.table_bytes:
        raise NeighbourFault(
            f"expected at most {bounds.table_bytes:,} bytes of filters over a link, not {size_bytes:,}"
        )
    if services > bounds.services:
        raise NeighbourFault(f"expected filters of at most {bounds.services:,} services over a link, not {services:,}")


def check_relayed(sizes: Collection[tuple[int, int]], bounds: Bounds) -> None:
    """Refuse to ask other brokers for more on a neighbour's behalf than it may; sizes as in `check_tables`."""
    filters, size_bytes = sum(each for each, _ in sizes), sum(each for _, each in sizes)
    if filters > bounds.relayed_filters:
        raise NeighbourFault(
            f"expected at most {bounds.relayed_filters:,} filters of other brokers' services, not {filters:,}"
        )
    if size_bytes > bounds.relayed_bytes:
        most = bounds.relayed_bytes
        raise NeighbourFault(
            f"expected at most {most:,} bytes of filters of other brokers' services, not {size_bytes:,}"
        )


def _check_offer(offer: Mapping[str, Any], bounds: Bounds) -> int:
    """Refuse an offer that is too deep or too wide; return how many values it has."""
    depth, values = measure(offer, bounds.depth)
    if depth > bounds.depth:
        raise NeighbourFault(f"expected an offer with at most {bounds.depth} levels of nesting")
    if len(offer["schema"]) > bounds.attributes:
        raise NeighbourFault(
            f"expected a service with at most {bounds.attributes:,} attributes, not {len(offer['schema']):,}"
        )
    return values


def measure(value: Any, max_depth: int) -> tuple[int, int]:
    """Return how deeply a value is nested and how many values it has; nothing below `max_depth` + 1 is looked at.

    It does not recurse, as the value may be hostile.

    >>> measure({"a": [1, 2]}, 32)
    (3, 4)
    """
    level, depth, values = [value], 0, 0
    while level and depth <= max_depth:
        depth += 1
        values += len(level)
        level = [inner for each in level for inner in _inner(each)]
    return depth, values


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_begin(cursor: Any, marks: Any) -> None:
    is_whole = isinstance(marks, Mapping) and all(type(each) is int for each in marks.values())
    if not isinstance(cursor, str | None) or not is_whole:
        raise NeighbourFault(f"expected a cursor and marks to go on with, not {cursor!r:.60} and {marks!r:.60}")


def _need_count(found: Collection[Any], most: int, what: str) -> None:
    if len(found) > most:
        raise NeighbourFault(f"expected at most {most:,} {what}, not {len(found):,}")


def _need_services(names: Iterable[str]) -> None:
    for name in names:
        if not isinstance(name, str) or not is_name(name):
            raise NeighbourFault(f"expected the name of a service, not {name!r:.80}")


def _need_paths(paths: Iterable[Iterable[str]]) -> None:
    for path in paths:
        for name in path:
            try:
                need_broker_name(name)
            except Exception as exc:
                raise NeighbourFault(f"expected the name of a broker, not {name!r:.80}") from exc


def printable(text: str) -> str:
    """Return a text of a neighbour as it may be shown: one line, without control characters, of bounded length.

    >>> printable("gone\\x1b[2J away")
    'gone?[2J away'
    """
    shown = "".join(each if each.isprintable() else "?" for each in text[: MAX_TEXT + 1])
    return shown if len(shown) <= MAX_TEXT else shown[:MAX_TEXT] + "…"
