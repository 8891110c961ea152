"""The workers of each service, created when they are first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tidegate.delivery.lane import Lane
from tidegate.delivery.live import Live, OnDispatch
from tidegate.delivery.outputs import Outputs
from tidegate.delivery.replay import Replay
from tidegate.delivery.subscriber import LaneMembership, Subscriber
from tidegate.delivery.worker import DeliveryContext
from tidegate.logs import Cursor, EventLog


class Workers:
    """The live worker and the replay worker of each service. Used on the event loop.

    The callbacks are called on the event loop, too: `on_return` with a live subscriber whose lane has failed,
    `on_end_of_log` with members that have read everything up to a cursor, `on_failure` with a subscriber whose lane
    can't be read.
    """

    def __init__(
        self,
        log: EventLog,
        outputs: Outputs,
        context: DeliveryContext,
        *,
        on_dispatch: OnDispatch,
        on_return: Callable[[Subscriber], None],
        on_end_of_log: Callable[[Sequence[LaneMembership], Cursor], None],
        on_failure: Callable[[Subscriber, Exception], None],
    ) -> None:
        self._log, self._outputs, self._context = log, outputs, context
        self._on_dispatch, self._on_return = on_dispatch, on_return
        self._on_end_of_log, self._on_failure = on_end_of_log, on_failure
        self._live: dict[str, Live] = {}
        self._replay: dict[str, Replay] = {}

    def live(self, service: str) -> Live:
        """Return the live worker of a service. Raises `NotRegistered`."""
        if service not in self._live:
            new_lane = self._new_lane(service)
            self._live[service] = Live(self._log, service, new_lane, self._context, self._on_return, self._on_dispatch)
        return self._live[service]

    def running_live(self) -> dict[str, Live]:
        """Return the live workers that exist, by service."""
        return self._live

    def replay(self, service: str) -> Replay:
        """Return the replay worker of a service. Raises `NotRegistered`."""
        if service not in self._replay:
            new_lane = self._new_lane(service)
            self._replay[service] = Replay(service, new_lane, self._context, self._on_end_of_log, self._on_failure)
        return self._replay[service]

    def _new_lane(self, service: str) -> Callable[[Cursor], Lane]:
        schema, meaning = self._outputs.schema(service), self._outputs.meaning(service)
        return partial(Lane, self._log, service, schema, meaning=meaning)

    def remove(self, members: Iterable[LaneMembership]) -> None:
        """Take members out of the lanes they are in, or are about to be admitted to."""
        by_service: dict[str, list[LaneMembership]] = {}
        for member in members:
            by_service.setdefault(member.subscriber.service, []).append(member)
        for service, leaving in by_service.items():
            for worker in (self._live.get(service), self._replay.get(service)):
                if worker is not None:
                    worker.leave(leaving)

    def cancel(self, service: str) -> None:
        """Stop the workers of a service without waiting for their threads. New ones are created when needed."""
        for worker in (self._live.pop(service, None), self._replay.pop(service, None)):
            if worker is not None:
                worker.cancel()

    async def close(self) -> None:
        """Stop all workers, and wait for their threads to end."""
        workers = [*self._live.values(), *self._replay.values()]
        for worker in workers:
            worker.cancel()
        for worker in workers:
            await asyncio.to_thread(worker.close)
