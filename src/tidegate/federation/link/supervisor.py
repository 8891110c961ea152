"""Keeps the links of a broker up: takes the lease, dials, accepts, and runs the sessions.

    down ──dial or accept, both ends prove who they are──▶ up ──the session ends──▶ down
      └──the link would close a loop──▶ refused ──dialled again after a pause──▶ ...

Several gateways may serve one broker. One of them has the lease and with it all links; the others wait for it.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import orjson
import structlog

from tidegate.errors import FederationError, LinkRefused, TidegateError
from tidegate.federation.link import proof
from tidegate.federation.link.bounds import printable
from tidegate.federation.link.catalog import Catalog
from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.dialer import dial, retry_delays
from tidegate.federation.link.forwarding import Forwarding
from tidegate.federation.link.mirrors import Mirrors
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.link.persistence import LinkStateStore
from tidegate.federation.link.protocol import MessageHandler
from tidegate.federation.link.relay import SERVE_INTERVAL_S, HistoryRelay
from tidegate.federation.link.routing import Routing
from tidegate.federation.link.session import Session
from tidegate.federation.link.wire import LinkClosed, LinkSocket
from tidegate.registry import Link

LEASE_DURATION_S = 5.0
"""How long other gateways of the broker wait for the links of one that was killed."""
RELOAD_INTERVAL_S = 1.0
"""Between two reads of the links in the registry."""
EXPIRE_INTERVAL_S = 60.0
"""Between two times at which old events of mirrors are deleted."""
CLOSE_TIMEOUT_S = 3.0
"""How long a session, or a socket, may take to close."""
MAX_HANDSHAKES = 256
"""Accepted sockets whose other end has not yet proved who it is."""

_log = structlog.get_logger("tidegate.link")


class Supervisor:
    """Owns the sessions of all links. Used on the event loop only."""

    def __init__(
        self,
        context: LinkContext,
        routing: Routing,
        store: LinkStateStore,
        catalog: Catalog,
        forwarding: Forwarding,
        mirrors: Mirrors,
        handler: MessageHandler,
        relay: HistoryRelay,
        seed: int | None = None,
    ) -> None:
        """`seed` makes the random part of retry delays repeatable."""
        self._context, self._routing, self._store = context, routing, store
        self._catalog, self._forwarding, self._mirrors, self._handler = catalog, forwarding, mirrors, handler
        self._relay = relay
        self._rng = random.Random(seed)
        self._lease = f"links of {context.name}"
        self._lease_holder = f"links_{secrets.token_hex(8)}"
        self._is_open = False
        self._handshakes = 0
        self.refused_handshakes = 0
        """Accepted sockets that were closed: the other end did not prove to be a neighbour, or had to wait."""
        self._reload_lock = asyncio.Lock()
        """Held while links are reloaded: else two reloads would dial the same neighbour twice."""

    # Start and end -----------------------------------------------------------------------

    async def start(self) -> None:
        """Restore the saved state of all links. Nothing is sent yet."""
        await self._pin_keys()
        await self._add_links((await self._read_links()).values())

    async def open(self) -> None:
        """Take the lease, dial, and accept from now on. Call it when all local subscribers are known."""
        self._is_open = True
        self._context.has_lease = await self._take_lease()
        for neighbour in self._context.neighbours.values():
            self._dial(neighbour)
        runtime = self._context.runtime
        runtime.spawn(runtime.repeat(RELOAD_INTERVAL_S, self.reload_links))
        runtime.spawn(runtime.repeat(self._context.settings.save_interval_s, self._store.save))
        runtime.spawn(runtime.repeat(SERVE_INTERVAL_S, self._relay.serve))
        runtime.spawn(runtime.repeat(EXPIRE_INTERVAL_S, self._mirrors.expire))

    async def close(self) -> None:
        """End all sessions, save their state, release the lease and end all threads. Further calls do nothing."""
        context, runtime = self._context, self._context.runtime
        if runtime.is_closed:
            return
        self._is_open, runtime.is_closed = False, True
        await asyncio.gather(*(self._end(neighbour, "the broker ends") for neighbour in context.neighbours.values()))
        await runtime.cancel_tasks()
        with suppress(TidegateError):
            await self._store.save()
            if context.has_lease:
                await runtime.in_thread(partial(context.registry.release, self._lease, self._lease_holder))
        await self._store.finish()
        runtime.shut_down_threads()

    async def _end(self, neighbour: Neighbour, reason: str) -> None:
        """End a link's session, if it has one, and stop dialling."""
        if neighbour.session is not None:
            neighbour.session.end(reason)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S), neighbour.session_lock:
                pass
        if neighbour.dialling is not None:
            neighbour.dialling.cancel()
            neighbour.dialling = None

    async def _take_lease(self) -> bool:
        lease = partial(self._context.registry.lease, self._lease, self._lease_holder, LEASE_DURATION_S)
        return await self._context.runtime.in_registry_thread(lease)

    # Links in the registry ---------------------------------------------------------------

    async def reload_links(self) -> None:
        """Renew the lease, and add and remove links as the registry says. A changed link is removed and added."""
        async with self._reload_lock:
            await self._reload_links()

    async def _reload_links(self) -> None:
        context = self._context
        await self._renew_lease()
        has_changed = await self._pin_keys()
        links = await self._read_links()
        has_changed = has_changed or links.keys() != context.neighbours.keys()
        for name in context.neighbours.keys() - links.keys():
            await self._remove(context.neighbours[name])
        for name, link in links.items():
            neighbour = context.neighbours.get(name)
            if neighbour is not None and neighbour.link != link:
                await self._remove(neighbour)
                neighbour = None
            if neighbour is None:
                await self._add_links([link])
                self._dial(context.neighbours[name])
        if has_changed:  # which offers are accepted depends on links and pinned keys
            await self._catalog.judge_all_again()

    async def _renew_lease(self) -> None:
        """Renew or take the lease. If it was lost, end all sessions; if it is new, dial."""
        context = self._context
        had_lease, context.has_lease = context.has_lease, await self._take_lease()
        neighbours = list(context.neighbours.values())
        if had_lease and not context.has_lease:
            for neighbour in neighbours:
                await self._end(neighbour, f"{context.name} has its links at another gateway")
        if not had_lease:
            await self._restore(neighbours)  # the other gateway has saved its state in the registry
            for neighbour in neighbours:
                self._dial(neighbour)

    async def _pin_keys(self) -> bool:
        """Read the pinned keys of the registry. Returns True if they have changed."""
        return self._context.trust.pin(await self._context.runtime.in_thread(self._context.registry.trusted_origins))

    async def _read_links(self) -> dict[str, Link]:
        return dict(await self._context.runtime.in_thread(self._context.registry.links))

    async def _add_links(self, links: Iterable[Link]) -> None:
        neighbours = [Neighbour(link) for link in links]
        self._context.neighbours.update((neighbour.name, neighbour) for neighbour in neighbours)
        await self._restore(neighbours)

    async def _restore(self, neighbours: Sequence[Neighbour]) -> None:
        """Restore the saved state of links: the offers of all of them first, as they type the filters."""
        has_changed = False
        saved = []
        for neighbour in neighbours:
            states = await self._store.read(neighbour)
            before = neighbour.offers
            with suppress(TidegateError):
                await self._catalog.accept(neighbour, orjson.loads(states.get(("offers", ""), "[]")), is_new=False)
            has_changed = has_changed or neighbour.offers != before
            saved.append((neighbour, states))
        for neighbour, states in saved:
            self._store.restore(neighbour, states, partial(self._forwarding.schema, neighbour))
        if has_changed:
            await self._catalog.publish()

    async def _remove(self, neighbour: Neighbour) -> None:
        """Remove a link that is not in the registry any more, or is there with other values."""
        await self._end(neighbour, "the link was removed")
        self._context.neighbours.pop(neighbour.name, None)
        for service in list(neighbour.offers):
            self._catalog.withdraw(service)
        broker = self._context.broker
        if neighbour.name in broker.links:
            self._routing.send(broker.forget(neighbour.name))
        await self._catalog.publish()

    # Dialling and accepting ----------------------------------------------------------------

    def _dial(self, neighbour: Neighbour) -> None:
        if self._is_open and self._context.has_lease and neighbour.link.url is not None:
            neighbour.dialling = self._context.runtime.spawn(self._keep_dialled(neighbour, neighbour.link.url))

    async def _keep_dialled(self, neighbour: Neighbour, url: str) -> None:
        """Dial a neighbour whenever it has no session, with growing delays after failures, until cancelled."""
        settings, runtime = self._context.settings, self._context.runtime
        delays = retry_delays(settings, self._rng)
        while True:
            async with neighbour.session_lock:  # wait for the end of the session that it has now
                pass
            started = runtime.time()
            try:
                await self._dial_once(neighbour, url)
            except (LinkRefused, proof.LoopRefused) as problem:
                neighbour.state, neighbour.problem = "refused", str(problem)
            except (FederationError, LinkClosed, TimeoutError) as problem:
                neighbour.state = "down"
                neighbour.problem = printable(str(problem)) or f"{url} does not answer"
            except Exception as problem:
                _log.exception("a link has failed", to=neighbour.name)
                neighbour.state, neighbour.problem = "down", repr(problem)
            if runtime.time() - started > settings.max_retry_s:
                delays = retry_delays(settings, self._rng)
            await asyncio.sleep(max(next(delays), neighbour.blocked_until - runtime.time()))

    async def _dial_once(self, neighbour: Neighbour, url: str) -> None:
        context = self._context
        context.broker.check(neighbour.name)
        socket = await dial(url, context.settings)
        try:
            async with asyncio.timeout(context.settings.handshake_timeout_s):
                await proof.introduce(socket, context.name, neighbour.name, neighbour.link.secret)
            await self._run_session(neighbour, socket, is_dialled=True)
        finally:
            await _close(socket, "the link broke")  # no effect if it was closed with a better reason

    async def accept(
        self,
        socket: LinkSocket,
        obstacle: Callable[[str], str | None] = lambda _: None,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        """Run the link of a broker that has dialled us. Returns when the link breaks or was refused.

        `obstacle(name)` returns why a neighbour may not use this connection, or None. `on_refusal` is called if the
        other end has not proved to be the neighbour that it claims to be.
        """
        name = await self._shake_hands(socket, obstacle, on_refusal)
        if name is None:
            return
        neighbour = self._context.neighbours.get(name)
        if neighbour is None:  # removed during the handshake
            await _close(socket, "the link was removed")
            return
        running = self._context.runtime.spawn(self._run_session(neighbour, socket, is_dialled=False))
        try:
            await running
        except asyncio.CancelledError:
            if not (self._context.runtime.is_closed and running.cancelled()):
                raise  # our caller was cancelled; otherwise the broker ends, and the caller continues

    async def _shake_hands(
        self, socket: LinkSocket, obstacle: Callable[[str], str | None], on_refusal: Callable[[], None]
    ) -> str | None:
        """Authenticate the other end. Returns its name, or None after the socket was closed."""

        def check_entry(name: str) -> None:
            problem = obstacle(name)
            if problem is not None:
                raise proof.ProofError(problem)
            self._check_entry(name)

        if self._handshakes >= MAX_HANDSHAKES:
            self.refused_handshakes += 1
            await _close(socket, "too many brokers have yet to prove who they are")
            return None
        self._handshakes += 1
        try:
            async with asyncio.timeout(self._context.settings.handshake_timeout_s):
                return await proof.admit(socket, self._context.name, self._secret, check_entry)
        except (FederationError, TimeoutError, LinkClosed) as problem:
            self.refused_handshakes += 1
            if isinstance(problem, proof.ProofError):
                on_refusal()
            await _close(socket, str(problem) or "the handshake took too long")
            return None
        finally:
            self._handshakes -= 1

    def _secret(self, name: str) -> str | None:
        neighbour = self._context.neighbours.get(name)
        return None if neighbour is None else neighbour.link.secret

    def _check_entry(self, name: str) -> None:
        """Raise a `FederationError` if a neighbour that has proved who it is may not be linked now."""
        context = self._context
        if not self._is_open:
            raise FederationError(f"{context.name} is about to end")
        if not context.has_lease:
            raise FederationError(f"{context.name} has its links at another gateway")
        neighbour = context.neighbours[name]
        wait_s = neighbour.blocked_until - context.runtime.time()
        if wait_s > 0:
            raise FederationError(f"{name} may come back in {wait_s:.1f} s: {neighbour.problem}")
        try:
            context.broker.check(name)
        except LinkRefused as problem:
            neighbour.state, neighbour.problem = "refused", str(problem)
            raise
        if neighbour.session is not None and neighbour.is_dialled and context.name < name:
            raise FederationError(f"there is a link from {context.name} to {name} already")

    # Sessions ------------------------------------------------------------------------------

    async def _run_session(self, neighbour: Neighbour, socket: LinkSocket, *, is_dialled: bool) -> None:
        """Run a session until it ends, in place of the one before. Raises `LinkRefused` if it would close a loop."""
        context, runtime, handler = self._context, self._context.runtime, self._handler
        if neighbour.session is not None:
            neighbour.session.end(f"{neighbour.name} has connected again")
        async with neighbour.session_lock:
            session = Session(socket, context.settings)
            neighbour.begin_session(session, is_dialled=is_dialled)
            _log.info("a link is up", to=neighbour.name)
            started = runtime.time()
            reason = "the link broke"
            try:
                hello = context.broker.connect(neighbour.name)
                self._catalog.send(neighbour)
                self._routing.send(hello)
                reason = await session.run(
                    partial(handler.on_message, neighbour),
                    partial(handler.on_events, neighbour),
                    partial(handler.on_heartbeat, neighbour),
                )
            except LinkRefused as problem:
                reason = str(problem)
                raise
            finally:
                bounds = context.settings.bounds
                if session.fault is not None:
                    neighbour.back_off(runtime.time(), bounds.first_wait_s, bounds.max_wait_s)
                elif runtime.time() - started > bounds.max_wait_s:
                    neighbour.faults = 0
                try:
                    await self._end_session(neighbour, session, printable(reason))
                finally:
                    await _close(socket, reason)

    async def _end_session(self, neighbour: Neighbour, session: Session, reason: str) -> None:
        """Stop everything that belongs to a session, and save the link's state."""
        _log.info("a link is down", to=neighbour.name, reason=reason)
        broker = self._context.broker
        neighbour.session = None
        neighbour.ended.said += session.sent
        neighbour.ended.heard += session.received
        loop = broker.refused.get(neighbour.name)
        if loop is not None:
            neighbour.state, neighbour.problem = "refused", str(LinkRefused(loop))
        else:
            neighbour.state, neighbour.problem = "down", reason
        if neighbour.name in broker.links:
            broker.disconnect(neighbour.name)
        for service in list(neighbour.forwarders):
            neighbour.stop(service)
        for page in neighbour.awaited_pages.values():
            if not page.done():
                page.set_exception(LinkClosed(reason))
        neighbour.awaited_pages.clear()
        for service in list(neighbour.mirrors):
            await self._mirrors.close(neighbour, service)
        with suppress(TidegateError):
            await self._store.save()


async def _close(socket: LinkSocket, reason: str) -> None:
    """Close a socket. Gives up after a while: the close frame waits for room if the other end does not read."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await socket.close(reason)
