"""Runs a push worker for each subscription that this gateway has a lease on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from tidegate.delivery.hub import Hub
from tidegate.delivery.push.context import LEASE_PREFIX, PushContext
from tidegate.delivery.push.placement import Peer, choose_peer
from tidegate.delivery.push.worker import PushWorker, disable
from tidegate.delivery.subscriber import Subscriber
from tidegate.errors import FilterError, LeaseLost, NotRegistered, SemanticsUnavailable, TidegateError
from tidegate.registry import RegisteredSubscription, Registry

STARTED_TOGETHER = 200
"""Workers that are started with one query of the registry."""

_log = structlog.get_logger("tidegate.delivery")


class PushPool:
    """The push workers of one gateway. Runs on the event loop.

    Several gateways share the subscriptions of a registry. `choose_peer` chooses the one that should deliver each, a
    lease decides which one does. Gateways may list different peers for a moment, but a lease has one holder.
    """

    def __init__(self, hub: Hub, context: PushContext, seconds: Callable[[], float] | None = None) -> None:
        """`seconds` is a monotonic clock, by default the loop's."""
        self._hub, self._context = hub, context
        self._wanted: dict[str, RegisteredSubscription] = {}
        self._running: dict[str, tuple[PushWorker, asyncio.Task[None]]] = {}
        self._leased_until: dict[str, float] = {}
        """For each lease a time, on our clock, before which it does not end."""
        self._leasing: asyncio.Future[set[str]] | None = None
        """The call that takes leases. It takes them even if its caller is cancelled."""
        self._leased_at = self._acknowledged_at = float("-inf")
        self._peers: dict[str, Peer] = {}
        """The gateways that shared the subscriptions when leases were taken last."""
        self._chosen: dict[str, str] = {}
        """The gateway that should deliver each subscription, as far as it was asked since the peers changed."""
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds or self._loop.time

    def subscriber(self, subscription: str) -> Subscriber | None:
        """Return the subscriber of a subscription that is delivered here; None if it is not."""
        running = self._running.get(subscription)
        return None if running is None else running[0].subscriber

    @property
    def count(self) -> int:
        """The number of subscriptions that are delivered here."""
        return len(self._running)

    async def want(self, registered: RegisteredSubscription) -> None:
        """Deliver a subscription if it is active and pushed, with its current record; stop delivering it otherwise."""
        id_ = registered.subscription.id
        if registered.state == "active" and registered.subscription.push_target is not None:
            if id_ not in self._wanted:
                self._leased_at = float("-inf")
            self._wanted[id_] = registered
            self._chosen.pop(id_, None)  # its filter may be another
            if id_ in self._running:
                self._running[id_][0].change(registered.subscription)
        else:
            await self.drop(id_)

    async def drop(self, subscription: str) -> None:
        """Stop delivering a subscription, and release its lease."""
        self._wanted.pop(subscription, None)
        self._chosen.pop(subscription, None)
        await self._give_up([subscription])

    async def reconcile(self) -> None:
        """Take and renew leases, start and stop workers, and move the cursors of idle ones. Called periodically."""
        now, lease_s = self._seconds(), self._context.settings.lease_s
        # First, because an ended lease must not be renewed: another gateway may have had it meanwhile.
        await self._stop_without_lease()
        peers = {peer.id: peer for peer in self._context.peers()}
        if now >= self._leased_at + lease_s / 3 or peers != self._peers:
            if peers != self._peers:
                self._chosen = {}
            self._leased_at, self._peers = now, peers
            try:
                mine = self._placed_here()
                await self._give_up([id_ for id_ in self._leased_until if id_ not in mine])
                call = self._context.ask(partial(_lease, mine, self._context.holder, lease_s))
                self._leasing = asyncio.ensure_future(call)
                self._leased_until = dict.fromkeys(await asyncio.shield(self._leasing), now + lease_s)
            except Exception as problem:
                _log.warning("can't renew leases", problem=str(problem))
            await self._stop_without_lease()
        await self._start_leased()
        if now >= self._acknowledged_at + self._context.settings.ack_interval_s:
            self._acknowledged_at = now
            for worker, _ in self._running.values():
                worker.acknowledge_position()

    def _placed_here(self) -> list[str]:
        """Return the ids of the subscriptions that this gateway should deliver."""
        holder = self._context.holder
        if self._peers.keys() <= {holder}:
            return list(self._wanted)
        peers = {holder: Peer(holder), **self._peers}.values()
        for id_ in self._wanted.keys() - self._chosen.keys():
            self._chosen[id_] = choose_peer(self._wanted[id_].subscription, peers)
        return [id_ for id_ in self._wanted if self._chosen[id_] == holder]

    def _is_leased(self, id_: str) -> bool:
        """True if a lease lasts for a while: a worker stops a little before the end, as a message takes time."""
        until = self._leased_until.get(id_)
        return until is not None and until >= self._seconds() + self._context.settings.lease_s / 10

    async def _stop_without_lease(self) -> None:
        """Stop workers whose lease has ended or ends soon. Their cursors are those of the next holder from now on."""
        ended = [id_ for id_ in self._running if not self._is_leased(id_)]
        for id_ in ended:
            await self._stop(id_)
        self._leased_until = {id_: until for id_, until in self._leased_until.items() if self._is_leased(id_)}
        if ended:
            with suppress(Exception):  # the registry stores only cursors with a valid lease
                await self._context.acks.flush()
            for id_ in ended:
                self._context.acks.forget(id_)

    async def _give_up(self, ids: Sequence[str]) -> None:
        """Stop workers, store their cursors, and release their leases for other gateways."""
        for id_ in ids:
            await self._stop(id_)
        leased = [id_ for id_ in ids if self._leased_until.pop(id_, None) is not None]
        if leased:
            await self._context.acks.flush()
            await self._context.ask(partial(_release, leased, self._context.holder))

    async def close(self) -> None:
        """Stop all workers, store their cursors, and release all leases, so that other gateways take over at once."""
        for id_ in list(self._running):
            await self._stop(id_)
        leased = set(self._leased_until)
        self._leased_until = {}
        if self._leasing is not None:
            with suppress(Exception):  # a call that failed has taken no lease
                leased |= await self._leasing
        if leased:
            await self._context.acks.flush()
            await self._context.ask(partial(_release, sorted(leased), self._context.holder))

    async def _start_leased(self) -> None:
        """Start workers for leased subscriptions that have none, many at a time: leases must be renewed in between."""
        idle = [
            id_
            for id_ in self._leased_until
            if id_ in self._wanted and (id_ not in self._running or self._running[id_][1].done())
        ]
        for at in range(0, len(idle), STARTED_TOGETHER):
            if self._seconds() >= self._leased_at + self._context.settings.lease_s / 3:
                return  # the next `reconcile` renews the leases first
            ids = idle[at : at + STARTED_TOGETHER]
            for id_ in ids:
                await self._stop(id_)
            await self._context.acks.flush()
            # Another gateway may have delivered them before: cursors and attempts are those of the registry.
            try:
                found = await self._context.ask(partial(_registered, ids))
            except Exception as problem:
                _log.warning("push workers can't start, and try again", problem=str(problem))
                return
            for registered in found:
                await self._start(registered)

    async def _start(self, registered: RegisteredSubscription) -> None:
        id_ = registered.subscription.id
        try:
            if registered.state != "active":
                return
            obstacle = self._context.obstacle(registered.subscription)
            if obstacle is not None:
                await self._context.ask(partial(disable, id_, obstacle.reason, state=obstacle.state))
                return
            worker = PushWorker(registered, self._hub, self._context, partial(self._is_leased, id_))
        except NotRegistered:
            return  # its service is not served yet: the next `reconcile` tries again
        except Exception as problem:
            # Semantics that are missing here may be there after a restart, or at another gateway.
            if isinstance(problem, FilterError) and not isinstance(problem, SemanticsUnavailable):
                await self._context.ask(partial(disable, id_, str(problem)))
                return
            _log.warning("a push worker can't start, and tries again", subscription=id_, problem=str(problem))
            return
        self._running[id_] = worker, self._loop.create_task(self._run(worker))

    async def _run(self, worker: PushWorker) -> None:
        id_ = worker.subscription.id
        try:
            await worker.run()
        except NotRegistered:
            pass  # the subscription was removed
        except LeaseLost:
            self._leased_until.pop(id_, None)  # a new lease, then the cursor that the registry has by then
        except TidegateError as problem:
            _log.warning("a push worker starts again", subscription=id_, problem=str(problem))
        except Exception:
            _log.exception("a push worker has failed, and starts again", subscription=id_)

    async def _stop(self, id_: str) -> None:
        running = self._running.pop(id_, None)
        if running is not None:
            running[1].cancel()
            await asyncio.wait([running[1]])


def _lease(ids: Sequence[str], holder: str, seconds: float, registry: Registry) -> set[str]:
    """Take or renew the leases that no other gateway has, and return the ids of their subscriptions. Blocks."""
    if not ids:
        return set()
    names = registry.lease_all([_lease_name(id_) for id_ in ids], holder, seconds)
    return {name.removeprefix(LEASE_PREFIX) for name in names}


def _release(ids: Sequence[str], holder: str, registry: Registry) -> None:
    registry.release_all([_lease_name(id_) for id_ in ids], holder)


def _registered(ids: Sequence[str], registry: Registry) -> list[RegisteredSubscription]:
    """Return subscriptions; those that were removed are left out."""
    return list(registry.find_subscriptions(ids).values())


def _lease_name(id_: str) -> str:
    return LEASE_PREFIX + id_
