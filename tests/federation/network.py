"""Brokers and the queues between them, in memory: messages and events move when the test says so."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from random import Random
from typing import Any

from tidegate.federation.routes import AdaptiveSettings, Broker, Message, Sent
from tidegate.filters import Filter

SERVICE = "gps"
ALIKE = {"x": "('x', 'xy')", "y": "('y', 'z')"}
"""What texts mean, for subscribers who ask by meaning; brokers do not know it."""


@cache
def meant(filter_: Filter) -> Filter:
    """Return a filter by meaning as an equivalent plain filter."""
    text = re.sub(" WITH .*", "", str(filter_))
    return Filter(re.sub(r"s~ = '(\w+)'~", lambda found: f"s IN {ALIKE[found[1]]}", text), filter_.schema)


def matches(filter_: Filter, event: Mapping[str, Any]) -> bool:
    """Return True if a subscriber's filter matches an event."""
    return (meant(filter_) if filter_.tree.is_semantic else filter_).matches(event)


class Network:
    """A tree of brokers. Subscribers are identified by broker and id, as in one broker for all."""

    def __init__(
        self,
        links: Iterable[tuple[str, str]],
        strategy: str,
        names: Iterable[str] = (),
        wire: Callable[[Message], Message] = lambda message: message,
        adaptive: AdaptiveSettings | None = None,
    ) -> None:
        links = list(links)
        self.strategy, self.wire, self.adaptive = strategy, wire, adaptive
        names = sorted({*names, *(name for link in links for name in link)})
        self.brokers = {name: Broker(name, strategy, adaptive=adaptive) for name in names}
        self.queues: dict[tuple[str, str], deque[Message | tuple[int, Mapping[str, Any]]]] = {}
        self.links: set[tuple[str, str]] = set()
        self.down: set[tuple[str, str]] = set()
        self.subscriptions: dict[tuple[str, str], Filter] = {}
        self.delivered: dict[int, Counter[tuple[str, str]]] = {}
        self.lost: set[int] = set()
        """Events that a broken link has swallowed."""
        self.watch: Callable[[str, str], None] = lambda *_: None
        """Called when a broker has taken a message of a neighbour."""
        for one, other in links:
            self.connect(one, other)

    # Links -----------------------------------------------------------------------

    def connect(self, one: str, other: str) -> None:
        """A new link."""
        link = (one, other)
        self.links.add(link)
        self.queues[one, other], self.queues[other, one] = deque(), deque()
        self.send(one, self.brokers[one].connect(other))
        self.send(other, self.brokers[other].connect(one))

    def cut(self, link: tuple[str, str]) -> None:
        """Break a link. Messages in flight are lost."""
        one, other = link
        self.down.add(link)
        for queue in (self.queues[one, other], self.queues[other, one]):
            self.lost.update(each[0] for each in queue if isinstance(each, tuple))
            queue.clear()
        self.brokers[one].disconnect(other)
        self.brokers[other].disconnect(one)

    def heal(self, link: tuple[str, str]) -> None:
        """Mend a link."""
        self.down.discard(link)
        one, other = link
        self.send(one, self.brokers[one].connect(other))
        self.send(other, self.brokers[other].connect(one))

    def remove(self, link: tuple[str, str]) -> None:
        """Take a link away for good."""
        self.cut(link)
        self.down.discard(link)
        self.links.discard(link)
        one, other = link
        del self.queues[one, other], self.queues[other, one]
        self.send(one, self.brokers[one].forget(other))
        self.send(other, self.brokers[other].forget(one))

    def restart(self, name: str) -> None:
        """End a broker and start it with its own subscriptions and nothing else."""
        links = [link for link in self.links if name in link]
        for link in links:
            self.cut(link)
        self.brokers[name] = Broker(name, self.strategy, adaptive=self.adaptive)
        own = {sub: each for (broker, sub), each in self.subscriptions.items() if broker == name}
        self.brokers[name].set_all(SERVICE, own)
        for link in links:
            self.heal(link)

    def link_of(self, one: str, other: str) -> tuple[str, str]:
        """A link by its ends."""
        return (one, other) if (one, other) in self.links else (other, one)

    # Subscriptions ---------------------------------------------------------------

    def subscribe(self, broker: str, subscription: str, filter_: Filter) -> None:
        """Add or change a subscription."""
        known = (broker, subscription) in self.subscriptions
        self.subscriptions[broker, subscription] = filter_
        call = self.brokers[broker].change if known else self.brokers[broker].subscribe
        self.send(broker, call(SERVICE, subscription, filter_))

    def unsubscribe(self, broker: str, subscription: str) -> None:
        """Unsubscribe."""
        del self.subscriptions[broker, subscription]
        self.send(broker, self.brokers[broker].unsubscribe(SERVICE, subscription))

    # Movement --------------------------------------------------------------------

    def send(self, sender: str, sent: Iterable[Sent]) -> None:
        """Queue messages."""
        for to, message in sent:
            if self.link_of(sender, to) in self.links and self.link_of(sender, to) not in self.down:
                self.queues[sender, to].append(self.wire(message))

    def publish(self, broker: str, event: Mapping[str, Any]) -> int:
        """An event comes in at a broker."""
        number = len(self.delivered)
        self.delivered[number] = Counter()
        self._arrived(number, event, broker, None)
        return number

    def _arrived(self, number: int, event: Mapping[str, Any], broker: str, source: str | None) -> None:
        for name, each in self.brokers[broker].local(SERVICE).items():
            if matches(each, event):
                self.delivered[number][broker, name] += 1
        for to in self.brokers[broker].towards(SERVICE, event, source):
            if self.link_of(broker, to) in self.down:
                self.lost.add(number)
            else:
                self.queues[broker, to].append((number, event))

    def deliver(self, sender: str, to: str) -> None:
        """Move the first message or event of a queue."""
        message = self.queues[sender, to].popleft()
        if isinstance(message, tuple):
            self._arrived(*message, to, sender)
        else:
            self.send(to, self.brokers[to].receive(sender, message))
            self.watch(to, sender)

    def work(self, broker: str) -> None:
        """A broker does one pending step of a change."""
        self.send(broker, self.brokers[broker].work())

    def waiting(self) -> list[tuple[str, str]]:
        """Queues that are not empty."""
        return sorted(ends for ends, queue in self.queues.items() if queue)

    def lose(self, sender: str, to: str) -> None:
        """Lose the first message of a queue, though its link holds."""
        message = self.queues[sender, to].popleft()
        if isinstance(message, tuple):
            self.lost.add(message[0])

    def settle(self, rng: Random) -> None:
        """Repair all links and deliver all messages in random order; heartbeats detect lost ones."""
        for link in sorted(self.down):
            self.heal(link)
        self._move_all(rng)
        for one, other in sorted(self.links):
            for a, b in ((one, other), (other, one)):
                if b in self.brokers[a].links:
                    self.send(a, self.brokers[a].hello(b))
        self._move_all(rng)

    def _move_all(self, rng: Random) -> None:
        for _ in range(100_000):
            waiting = self.waiting()
            busy = [name for name, broker in self.brokers.items() if broker.pending]
            if not waiting and not busy:
                return
            if waiting:
                self.deliver(*rng.choice(waiting))
            else:
                self.work(rng.choice(busy))
        raise AssertionError("the messages never settle")

    def wanted(self, event: Mapping[str, Any]) -> Counter[tuple[str, str]]:
        """Who would get an event if one broker served all."""
        return Counter({who: 1 for who, each in self.subscriptions.items() if matches(each, event)})
