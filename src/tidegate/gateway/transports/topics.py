"""What the transports to Kafka and MQTT share: connections of the profile, open topics, and threads."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidegate.delivery.push.transport import Outcome, PendingEvent
from tidegate.errors import DefinitionProblem, SubscriptionError, TidegateError
from tidegate.subscriptions import PushTarget, SubscriptionRecord
from tidegate.subscriptions.topics import TopicTarget, is_open

TIMEOUT_S = 10.0
"""How long a broker may take to confirm a message."""
THREADS = 2
"""Threads of each connection: a broker that does not answer delays only subscriptions to it."""

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class OpenConnection(Generic[C]):
    """A connection of the profile that subscriptions may deliver to."""

    connection: C
    topics: tuple[str, ...]
    """Names of topics, or prefixes that end in *."""


class TopicTransport(ABC, Generic[C]):
    """Sends events to topics of one kind of broker. Its methods run on the event loop, `deliver` and `check` do not."""

    def __init__(self, kind: type[C], connections: Mapping[str, OpenConnection[Any]]) -> None:
        self._connections: dict[str, OpenConnection[C]] = {
            name: entry for name, entry in connections.items() if isinstance(entry.connection, kind)
        }
        self._threads: dict[str, ThreadPoolExecutor] = {}

    @abstractmethod
    def check(self, name: str, connection: C, target: TopicTarget) -> None:
        """Raise TidegateError if the broker can't be reached, or does not have the topic. Blocks."""

    @abstractmethod
    def deliver(
        self, name: str, connection: C, subscription: SubscriptionRecord, events: Sequence[PendingEvent]
    ) -> Outcome:
        """Send events, and wait until the broker has confirmed them. Blocks. Does not raise."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connections to all brokers. Blocks."""

    async def validate(self, target: PushTarget, *, handshake: bool) -> None:
        """Raise SubscriptionError if the target is not open, or if its broker does not answer the `handshake`."""
        assert isinstance(target, TopicTarget)
        problem = self._problem(target)
        if problem is None and handshake:
            try:
                connection = self._connections[target.connection].connection
                await self._run(target.connection, self.check, target.connection, connection, target)
            except TidegateError as error:
                problem = "topic", str(error)
        if problem is not None:
            path, message = problem
            raise SubscriptionError([DefinitionProblem(f"deliver.{target.kind}.{path}", message)])

    async def send(self, subscription: SubscriptionRecord, events: Sequence[PendingEvent]) -> Outcome:
        """Send events. A target that is not open any more fails, and is tried again: the operator may open it."""
        target = subscription.push_target
        assert isinstance(target, TopicTarget)
        problem = self._problem(target)
        if problem is not None:
            return Outcome("failed", problem[1])
        connection = self._connections[target.connection].connection
        name = target.connection
        outcome: Outcome = await self._run(name, self.deliver, name, connection, subscription, events)
        return outcome

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.to_thread(self.disconnect)
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    def _problem(self, target: TopicTarget) -> tuple[str, str] | None:
        """Return field and reason if the target is not open; None if it is."""
        entry = self._connections.get(target.connection)
        if entry is None:
            return "connection", f"the profile has no {target.kind} connection {target.connection!r} for subscriptions"
        if not is_open(target.topic, entry.topics):
            opened = f"push: [{target.topic}]"
            return (
                "topic",
                f"{target.connection!r} is not open for {target.topic!r}; the operator opens it with {opened}",
            )
        return None

    async def _run(self, name: str, call: Any, *args: Any) -> Any:
        threads = self._threads.get(name)
        if threads is None:
            threads = self._threads[name] = ThreadPoolExecutor(THREADS, f"push-{name}")
        return await asyncio.get_running_loop().run_in_executor(threads, call, *args)
