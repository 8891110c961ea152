"""A tree of brokers in one process, with counters of its links."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate import Filter, Matcher, Schema
from tidegate.federation.routes import Broker, Hello, Reach, Sent

SERVICE = "vehicles"
Events = list[dict[str, Any]]


class Brokers:
    """Brokers whose messages are delivered at once, and counted."""

    def __init__(self, links: Iterable[tuple[str, str]], strategy: str, schema: Schema) -> None:
        self.links = [each for one, other in links for each in ((one, other), (other, one))]
        self.strategy, self.schema = strategy, schema
        self.brokers = {name: Broker(name, strategy) for name in sorted({name for link in self.links for name in link})}
        self.messages = 0
        hellos = [(one, self.brokers[one].connect(other)) for one, other in self.links]
        for one, sent in hellos:
            self._carry(one, sent)

    def put(self, broker: str, filters: Mapping[str, Filter | None]) -> None:
        """Subscribe, change the filter, or, with None, unsubscribe; delivers all resulting messages."""
        self._carry(broker, self.brokers[broker].set_all(SERVICE, filters))

    def _carry(self, sender: str, sent: list[Sent]) -> None:
        queue = deque((sender, *each) for each in sent)
        while self.brokers[sender].pending:
            queue.extend((sender, *each) for each in self.brokers[sender].work())
        while queue:
            source, to, message = queue.popleft()
            self.messages += not isinstance(message, Hello | Reach)
            queue.extend((to, *each) for each in self.brokers[to].receive(source, message))
            while self.brokers[to].pending:
                queue.extend((to, *each) for each in self.brokers[to].work())

    def entries(self) -> int:
        """Return the number of routing entries of all brokers."""
        return sum(len(self.brokers[one].link(other).routes(SERVICE)) for one, other in self.links)

    def traffic(self, events: Events, origins: list[str]) -> tuple[int, int, int]:
        """Return how often events cross a link, how often without a match behind it, and how often one is missed."""
        wanted = self._wanted(events)
        passes = {link: self._passing(link, events) for link in self.links}
        crossed = excess = missed = 0
        for number, origin in enumerate(origins):
            seen, todo = {origin}, [origin]
            while todo:
                here = todo.pop()
                for there in self.brokers[here].links:
                    if there not in seen and number in passes[here, there]:
                        seen.add(there)
                        todo.append(there)
                        crossed += 1
                        excess += not (wanted[number] & self._behind(here, there))
            missed += len(wanted[number] - seen)
        return crossed, excess, missed

    def _passing(self, link: tuple[str, str], events: Events) -> set[int]:
        if self.strategy == "flooding":
            return set(range(len(events)))
        return set(_matched(self.schema, self.brokers[link[0]].link(link[1]).routes(SERVICE).values(), events))

    def _wanted(self, events: Events) -> list[set[str]]:
        """Return the brokers with matching subscribers, for each event."""
        found: list[set[str]] = [set() for _ in events]
        for name, broker in self.brokers.items():
            for number in _matched(self.schema, broker.local(SERVICE).values(), events):
                found[number].add(name)
        return found

    def _behind(self, here: str, there: str) -> set[str]:
        found, todo = {there}, [there]
        while todo:
            for each in self.brokers[todo.pop()].links:
                if each != here and each not in found:
                    found.add(each)
                    todo.append(each)
        return found


def _matched(schema: Schema, filters: Iterable[Filter], events: Events) -> list[int]:
    """Return the events that any of some filters matches; equal filters are evaluated once."""
    distinct = {str(number): each for number, each in enumerate(set(filters))}
    if not distinct:
        return []
    matcher = Matcher(schema)
    matcher.add_all(distinct)
    numbers, _ = matcher.match(events).pairs()
    matcher.close()
    return sorted({int(number) for number in numbers})
