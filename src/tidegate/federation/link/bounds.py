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
    """A neighbour has broken the protocol or a limit. Its session ends, and it must wait before it may reconnect."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits for each neighbour."""

    control_bytes: int = 32 * 1024 * 1024
    """Size of one control message: enough for a table of 200,000 filters, or the offers of 5,000 services."""
    event_bytes: int = 32 * 1024 * 1024
    """Size of one message with events: four times the size of a page of history."""
    services: int = 5_000
    """Services in its offers, in its tables, and in a `resume` message."""
    attributes: int = 2_000
    """Attributes of one offered service."""
    offer_bytes: int = 8 * 1024 * 1024
    """Size of all offers together."""
    offer_values: int = 200_000
    """JSON values in all offers together, at every level. Reading 200,000 takes a thread about half a second."""
    depth: int = 32
    """Levels of nesting in an offer."""
    filters: int = 200_000
    """Filters in all of its tables together."""
    filter_bytes: int = 64 * 1024
    """Size of one filter with its parameters."""
    table_bytes: int = 64 * 1024 * 1024
    """Size of the filters in all of its tables together."""
    relayed_filters: int = 50_000
    """Filters that it requests for services of other brokers. This broker requests them from its own neighbours, so the
    limit is lower than `filters`: otherwise one neighbour could get this broker disconnected by another."""
    relayed_bytes: int = 16 * 1024 * 1024
    """Size of the relayed filters."""
    partitions: int = MAX_PARTITIONS
    """Partitions of one service whose events it sends."""
    pages: int = 1_000
    """Unanswered requests for pages of history."""
    relayed_pages: int = 50
    """Pages of history that are requested from the next broker on its behalf at the same time. Others wait."""
    rate: float = 20_000.0
    """Units of work per second that its control messages may cost; see `cost_of`."""
    burst: float = 400_000.0
    """Units of work that it may use at once after a quiet time."""
    flood_s: float = 10.0
    """How long it may exceed its rate before it is disconnected. Until then it is read more slowly."""
    first_wait_s: float = 1.0
    """How long a neighbour must wait after its first fault. The time doubles with each further fault."""
    max_wait_s: float = 60.0
    """The longest such time."""


class Budget:
    """A rate limit for the work that a neighbour causes: a token bucket whose debt the caller waits off.

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
        """Charge units of work. Returns how many seconds the caller must wait before it does the work.

        Raises `NeighbourFault` if the rate was exceeded for longer than `Bounds.flood_s`.
        """
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
                f"its control messages have cost more than {bounds.rate:,.0f} units of work a second for over "
                f"{bounds.flood_s:g} s"
            )
        return -self._left / bounds.rate


_COSTS = {"taken": 1, "history": 50, "offers": 5_000}
"""Fixed cost of a message, in units of work; other types cost 5. After `offers` every service is checked again."""
_PARTS = {"hello": ("tables", "paths"), "reach": ("paths",), "update": ("add", "remove"), "table": ("entries",)}
"""The members of a message whose items are charged in addition."""


def cost_of(message: Mapping[str, Any], size_bytes: int) -> float:
    """Return the units of work that a control message costs: about 20 µs each."""
    kind = str(message.get("type"))
    parts = (message.get(name) for name in _PARTS.get(kind, ("services",)))
    count = sum(len(part) for part in parts if isinstance(part, Collection))
    return _COSTS.get(kind, 5) + 2 * count + size_bytes / 256


# Messages -----------------------------------------------------------------------------------


def check_message(message: Mapping[str, Any], bounds: Bounds) -> None:
    """Raise `NeighbourFault` if a control message exceeds a limit or has an illegal name.

    Malformed messages may also raise `KeyError`, `TypeError`, `ValueError` or `AttributeError`.
    """
    match message["type"]:
        case "offers":
            _require_count(message["services"], bounds.services, "services in an offer")
            values = sum(_check_offer(offer, bounds) for offer in message["services"])
            if values > bounds.offer_values:
                raise NeighbourFault(f"expected at most {bounds.offer_values:,} values in all offers, not {values:,}")
        case "resume":
            _require_count(message["services"], bounds.services, "services to resume")
            _require_service_names(message["services"])
            for point in message["services"].values():
                _check_resume_point(point["cursor"], point["marks"])
        case "hello":
            _require_count(message["tables"], bounds.services, "tables")
            _require_service_names(message["tables"])
            _require_broker_names(message["paths"])
        case "reach":
            _require_broker_names(message["paths"])
        case "update" | "table":
            _require_service_names([message["service"]])
            for entry in message["add"] if message["type"] == "update" else message["entries"]:
                check_filter(entry["filter"], entry.get("params", ()), bounds)
        case "history":
            filter_ = message.get("filter")
            if filter_ is not None:
                check_filter(filter_["text"], filter_["params"], bounds)


def check_filter(text: str, params: Iterable[Any], bounds: Bounds) -> None:
    """Raise `NeighbourFault` if a filter is too large."""
    size = len(text) + sum(len(value) if isinstance(value, str) else 8 for value in params)
    if size > bounds.filter_bytes:
        raise NeighbourFault(f"expected a filter of at most {bounds.filter_bytes:,} bytes, not {size:,}")


def check_tables(sizes: Collection[tuple[int, int]], bounds: Bounds) -> None:
    """Raise `NeighbourFault` if a neighbour's tables are too large.

    `sizes` has, for each table, the number of filters and of their characters.
    """
    services, filters, size_bytes = len(sizes), sum(count for count, _ in sizes), sum(size for _, size in sizes)
    if filters > bounds.filters:
        raise NeighbourFault(f"expected at most {bounds.filters:,} filters over a link, not {filters:,}")
    if size_bytes > bounds.table_bytes:
        raise NeighbourFault(
            f"expected at most {bounds.table_bytes:,} bytes of filters over a link, not {size_bytes:,}"
        )
    if services > bounds.services:
        raise NeighbourFault(f"expected filters of at most {bounds.services:,} services over a link, not {services:,}")


def check_relayed(sizes: Collection[tuple[int, int]], bounds: Bounds) -> None:
    """Raise `NeighbourFault` if a neighbour requests too much from other brokers. `sizes` as in `check_tables`."""
    filters, size_bytes = sum(count for count, _ in sizes), sum(size for _, size in sizes)
    if filters > bounds.relayed_filters:
        raise NeighbourFault(
            f"expected at most {bounds.relayed_filters:,} filters of other brokers' services, not {filters:,}"
        )
    if size_bytes > bounds.relayed_bytes:
        max_bytes = bounds.relayed_bytes
        raise NeighbourFault(
            f"expected at most {max_bytes:,} bytes of filters of other brokers' services, not {size_bytes:,}"
        )


def _check_offer(offer: Mapping[str, Any], bounds: Bounds) -> int:
    """Return how many values an offer has. Raises `NeighbourFault` if it is too deep or has too many attributes."""
    depth, values = measure(offer, bounds.depth)
    if depth > bounds.depth:
        raise NeighbourFault(f"expected an offer with at most {bounds.depth} levels of nesting")
    if len(offer["schema"]) > bounds.attributes:
        raise NeighbourFault(
            f"expected a service with at most {bounds.attributes:,} attributes, not {len(offer['schema']):,}"
        )
    return values


def measure(value: Any, max_depth: int) -> tuple[int, int]:
    """Return the depth of a JSON value and the number of values in it. Levels below `max_depth` + 1 are not visited.

    It does not recurse, so a hostile value can't exhaust the stack.

    >>> measure({"a": [1, 2]}, 32)
    (3, 4)
    """
    level, depth, values = [value], 0, 0
    while level and depth <= max_depth:
        depth += 1
        values += len(level)
        level = [child for parent in level for child in _children(parent)]
    return depth, values


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_resume_point(cursor: Any, marks: Any) -> None:
    are_offsets = isinstance(marks, Mapping) and all(type(offset) is int for offset in marks.values())
    if not isinstance(cursor, str | None) or not are_offsets:
        raise NeighbourFault(f"expected a cursor and marks to resume from, not {cursor!r:.60} and {marks!r:.60}")


def _require_count(items: Collection[Any], max_count: int, what: str) -> None:
    if len(items) > max_count:
        raise NeighbourFault(f"expected at most {max_count:,} {what}, not {len(items):,}")


def _require_service_names(names: Iterable[str]) -> None:
    for name in names:
        if not isinstance(name, str) or not is_name(name):
            raise NeighbourFault(f"expected the name of a service, not {name!r:.80}")


def _require_broker_names(paths: Iterable[Iterable[str]]) -> None:
    for path in paths:
        for name in path:
            try:
                need_broker_name(name)
            except Exception as exc:
                raise NeighbourFault(f"expected the name of a broker, not {name!r:.80}") from exc


def printable(text: str) -> str:
    """Return a neighbour's text in a form that is safe to show: one line, no control characters, bounded length.

    >>> printable("gone\\x1b[2J away")
    'gone?[2J away'
    """
    shown = "".join(char if char.isprintable() else "?" for char in text[: MAX_TEXT + 1])
    return shown if len(shown) <= MAX_TEXT else shown[:MAX_TEXT] + "…"
