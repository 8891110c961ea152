"""A broker among others: its links, the routes over them, and the mirrors of what comes.

One event loop owns it. Files and the registry are asked in threads of their own, so that no
disk holds up the sockets; forwarders have a thread each.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeVar

import orjson
import structlog

from tidegate.errors import FederationError, LinkRefused, TidegateError
from tidegate.federation.link import history, proof
from tidegate.federation.link.bounds import NeighbourFault, check_message, check_relayed, check_tables, printable
from tidegate.federation.link.coverage import Joint, Joints, at_origin
from tidegate.federation.link.dialer import dial, pauses
from tidegate.federation.link.forwarder import Batch, Begin, Forwarder, Supply
from tidegate.federation.link.keys import KeyFile
from tidegate.federation.link.mirror import Mirror, Progress
from tidegate.federation.link.needs import Needs
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.link.offers import Remote, everything, is_portable, within_bounds
from tidegate.federation.link.records import origin_of
from tidegate.federation.link.session import Session
from tidegate.federation.link.settings import LinkSettings
from tidegate.federation.link.sieve import Sieve
from tidegate.federation.link.signing import Signer
from tidegate.federation.link.trust import Claim, Trust, with_access
from tidegate.federation.link.wire import LinkClosed, Socket
from tidegate.federation.routes import Broker, Hello, Message, Refusal, Sent, Table, Update
from tidegate.federation.routes.messages import from_json, to_json
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog, Retention
from tidegate.logs.lost import JOINT
from tidegate.model import Schema
from tidegate.registry import Kept, Link, Registry, need_broker_name
from tidegate.timing import periodic

LEASE_S = 5.0
"""How long a gateway that is gone keeps others of its broker from having the links."""
LOOK_S = 1.0
"""Between two looks at which links there are."""
EXPIRE_S = 60.0
"""Between two times at which mirrors let go of what is old."""
FAREWELL_S = 3.0
"""How long a link may take to end."""
PATIENCE_S = 30.0
"""With a page of history."""
MAX_ASKED_PAGES = 500
"""Pages of history that we ask a neighbour for at once: fewer than it lets us wait for."""
MAX_HANDSHAKES = 256
"""Sockets at once whose other end has not proved yet who it is."""
UNWANTED_UNITS = 20
"""What events cost a neighbour that nobody has asked it for."""
STEP_BYTES = 16 * 1024
"""Of filters that are read before the loop may do something else."""
STEP = 50
"""Filters that are looked at before the loop may do something else: each takes about a tenth of a millisecond."""
NEVER = 4_102_444_800_000_000
"""A moment, in microseconds, that nothing is behind: 2100."""

_log = structlog.get_logger("tidegate.link")

T = TypeVar("T")
Judge = Callable[[Sequence[bytes]], Sequence[int]]
"""Which of some records somebody wants, by their place among them."""


class Local(Protocol):
    """What a broker's own side knows: its services, and what each neighbour sees of them."""

    def offers(self, link: Link) -> list[dict[str, Any]]:
        """Our own services, as a neighbour sees them."""

    def supply(self, link: Link, service: str) -> Supply | None:
        """One of our own services, for a neighbour; None: it does not see it."""

    def passes_on(self, link: Link, name: str) -> bool:
        """Whether a neighbour may have another broker's service of us."""

    async def changed(self) -> None:
        """Other brokers' services are others now."""


class Federation:
    """All links of one broker."""

    def __init__(
        self, settings: LinkSettings, registry: Registry, log: EventLog, local: Local, seed: int | None = None
    ) -> None:
        need_broker_name(settings.broker)
        self.settings, self._registry, self._log, self._local = settings, registry, log, local
        self.broker = Broker(settings.broker, settings.strategy, self._leads, settings.adaptive)
        self.needs = Needs(self._need, settings.linger_s)
        self.trust = Trust(settings.broker, settings.origins)
        self._signer = Signer(None if settings.signing_keys is None else KeyFile(settings.signing_keys))
        self.neighbours: dict[str, Neighbour] = {}
        self.remotes: dict[str, Remote] = {}
        """Other brokers' services, by the name they have here."""
        self._rng = random.Random(seed)
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(2, "links")
        self._page_threads = ThreadPoolExecutor(2, "links-history")
        """For pages of history that neighbours ask for: they may ask for many."""
        self._handshakes = 0
        self.strangers = 0
        """Sockets that were closed as their other end has not proved to be a neighbour, or may not come now."""
        self._keepers = ThreadPoolExecutor(2, "links-registry")
        """For what may not wait behind events and history: the lease, and what is written down."""
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_open = self._is_closed = self._has_turn = False
        self._lease, self._holder = f"links of {settings.broker}", f"links_{secrets.token_hex(8)}"
        self._prepared: set[str] = set()
        """Mirrors that are there."""
        self._looking = asyncio.Lock()
        """One at a time looks which links there are: else two would dial one neighbour, and only one ever end."""
        self._keeping = asyncio.Lock()
        """One at a time writes down what has changed: else what is older might be written last."""
        self._keeps: set[asyncio.Task[None]] = set()
        """Those who do, or wait to."""
        self._joints: dict[str, Joints] = {}
        """By mirror, where its places are at its origin."""
        self._joining: set[str] = set()
        """Services of which the origin is being asked from where on it looks for what is needed."""
        self._joined = asyncio.Event()
        """Set, and another takes its place, when one has said so."""
        self._working: asyncio.Task[None] | None = None
        """Works off what changes of tables have left to do, while there is something."""

    @property
    def name(self) -> str:
        """Of this broker."""
        return self.settings.broker

    # Life --------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up all that was known when this broker ended; nothing is said to anybody yet."""
        self.trust.pin(await self._in_thread(self._registry.trusted_origins))
        links = await self._in_thread(self._registry.links)
        await self._take_up([*links.values()])

    async def open(self) -> None:
        """Dial, and let others in, from now on: whoever listens here is known."""
        self._is_open = True
        self._has_turn = await self._take_turn()
        for each in self.neighbours.values():
            self._dial(each)
        self._spawn(self._follow(LOOK_S, self.look))
        self._spawn(self._follow(self.settings.keep_s, self._keep))
        self._spawn(self._follow(EXPIRE_S, self._expire))

    async def close(self) -> None:
        """Let go of all links; they are taken up where they were."""
        if self._is_closed:
            return
        self._is_open, self._is_closed = False, True
        await asyncio.gather(*(self._end(each, "the broker ends") for each in self.neighbours.values()))
        for task in self._tasks:
            if not task.cancelling():  # one that ends already, and lets go of what it has, is let
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(TidegateError):
            await self._keep()
            if self._has_turn:
                await self._in_thread(partial(self._registry.release, self._lease, self._holder))
        await asyncio.gather(*self._keeps, return_exceptions=True)
        self._page_threads.shutdown(wait=True)
        self._threads.shutdown(wait=True)
        self._keepers.shutdown(wait=True)

    async def _end(self, neighbour: Neighbour, reason: str) -> None:
        """End a link's session, if it has one, and dial no more."""
        if neighbour.session is not None:
            neighbour.session.end(reason)
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S), neighbour.turn:
                pass
        if neighbour.dialling is not None:
            neighbour.dialling.cancel()
            neighbour.dialling = None

    async def look(self) -> None:
        """Take in which links there are, by the registry; of several gateways of one broker one has them."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        had_turn, self._has_turn = self._has_turn, await self._take_turn()
        for each in self.neighbours.values():
            if had_turn and not self._has_turn:
                await self._end(each, f"{self.name} has its links at another gateway")
        if not had_turn:
            await self._read_states([*self.neighbours.values()])  # what the other gateway has done is in the registry
            for each in self.neighbours.values():
                self._dial(each)
        is_other = self.trust.pin(await self._in_thread(self._registry.trusted_origins))
        links = await self._in_thread(self._registry.links)
        is_other = is_other or links.keys() != self.neighbours.keys()
        for name in self.neighbours.keys() - {name for name, each in links.items()}:
            await self._let_go(self.neighbours[name])
        for name, link in links.items():
            known = self.neighbours.get(name)
            if known is not None and known.link != link:
                await self._let_go(known)
                known = None
            if known is None:
                await self._take_up([link])
                self._dial(self.neighbours[name])
        if is_other:  # what was believed of others may not be any more, and the other way round
            await self._judge_again()

    async def _take_up(self, links: Iterable[Link]) -> None:
        neighbours = [Neighbour(each) for each in links]
        self.neighbours.update((each.name, each) for each in neighbours)
        await self._read_states(neighbours)

    async def _read_states(self, neighbours: Sequence[Neighbour]) -> None:
        """Take up what is kept of links: what each offers, then what each asks for of all that is offered.

        A filter is typed by what is offered; untyped it may cover what it does not, as with the labels of an enum.
        """
        is_other = False
        kept = []
        for neighbour in neighbours:
            states = await self._in_thread(partial(self._registry.link_states, neighbour.name))
            before = neighbour.offers
            with suppress(TidegateError):
                await self._offered(neighbour, orjson.loads(states.get(("offers", ""), "[]")), is_heard=False)
            is_other = is_other or neighbour.offers != before
            kept.append((neighbour, states))
        for neighbour, states in kept:
            self._restore(neighbour, states)
        if is_other:
            await self._changed()

    def _restore(self, neighbour: Neighbour, states: Mapping[Kept, str]) -> None:
        for (kind, name), document in states.items():
            if kind == "mirror":
                neighbour.kept[name] = Progress.from_json(document)
        tables = [self._table(neighbour, document) for (kind, _), document in states.items() if kind == "routes"]
        if tables:
            self.broker.restore(neighbour.name, tables)
        now = self._loop.time()
        for (kind, name), document in states.items():
            service = name.partition(" ")[0]
            remote = self.remotes.get(service)
            with suppress(TidegateError):  # what does not fit any more is forgotten
                if kind == "joints":
                    self._joints[name] = Joints.from_json(document)
                elif kind == "need" and remote is not None:
                    said = orjson.loads(document)
                    joint = None if said["joint"] is None else Joint.of(said["joint"])
                    self.needs.linger(service, _filter(said, remote.schema), now, joint)

    def _table(self, neighbour: Neighbour, document: str) -> Table:
        said = orjson.loads(document)
        found = _read(said, self._schema(neighbour, said["service"]))
        assert isinstance(found, Table)
        return found

    async def _take_turn(self) -> bool:
        lease = partial(self._registry.lease, self._lease, self._holder, LEASE_S)
        return await self._in_thread(lease, self._keepers)

    async def _let_go(self, neighbour: Neighbour) -> None:
        """A link was removed."""
        await self._end(neighbour, "the link was removed")
        self.neighbours.pop(neighbour.name, None)
        for service in list(neighbour.offers):
            self._forget(service)
        if neighbour.name in self.broker.links:
            self._carry(self.broker.forget(neighbour.name))
        await self._changed()

    # Sessions ------------------------------------------------------------------------

    def _dial(self, neighbour: Neighbour) -> None:
        if self._is_open and self._has_turn and neighbour.link.url is not None:
            neighbour.dialling = self._spawn(self._keep_dialled(neighbour, neighbour.link.url))

    async def _keep_dialled(self, neighbour: Neighbour, url: str) -> None:
        waits = pauses(self.settings, self._rng)
        while True:
            async with neighbour.turn:  # while another session lives, none is needed
                pass
            begun = self._loop.time()
            try:
                self.broker.check(neighbour.name)
                socket = await dial(url, self.settings)
                try:
                    async with asyncio.timeout(self.settings.handshake_s):
                        await proof.introduce(socket, self.name, neighbour.name, neighbour.link.secret)
                    await self._live(neighbour, socket, is_dialled=True)
                finally:
                    await _close(socket, "the link broke")  # unless it is, with a better reason
            except LinkRefused as problem:
                neighbour.state, neighbour.problem = "refused", str(problem)
            except (FederationError, LinkClosed, TimeoutError) as problem:
                is_refused = "would close a loop" in str(problem)
                neighbour.state = "refused" if is_refused else "down"
                neighbour.problem = printable(str(problem)) or f"{url} does not answer"
            except Exception as problem:  # whatever it was, the link is tried again
                _log.exception("a link has failed", to=neighbour.name)
                neighbour.state, neighbour.problem = "down", repr(problem)
            if self._loop.time() - begun > self.settings.most_s:
                waits = pauses(self.settings, self._rng)
            await asyncio.sleep(max(next(waits), neighbour.wait_until - self._loop.time()))

    async def accept(
        self,
        socket: Socket,
        obstacle: Callable[[str], str | None] = lambda _: None,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve whoever has dialled us, until the link breaks.

        `obstacle` says why a neighbour of a name may not come over this connection, or None. `on_refusal` is called
        when whoever dialled has not proved to be the neighbour that they say.
        """

        def may_enter(name: str) -> None:
            problem = obstacle(name)
            if problem is not None:
                raise proof.ProofError(problem)
            self._may_enter(name)

        if self._handshakes >= MAX_HANDSHAKES:
            self.strangers += 1
            await _close(socket, "too many brokers have yet to prove who they are")
            return
        self._handshakes += 1
        try:
            async with asyncio.timeout(self.settings.handshake_s):
                name = await proof.admit(socket, self.name, self._secret, may_enter)
        except (FederationError, TimeoutError, LinkClosed) as problem:
            self.strangers += 1
            if isinstance(problem, proof.ProofError):
                on_refusal()
            await _close(socket, str(problem) or "nobody said who dialled")
            return
        finally:
            self._handshakes -= 1
        neighbour = self.neighbours.get(name)
        if neighbour is None:  # it was removed just now
            await _close(socket, "the link was removed")
            return
        living = self._spawn(self._live(neighbour, socket, is_dialled=False))
        try:
            await living
        except asyncio.CancelledError:
            if not (self._is_closed and living.cancelled()):  # else the broker ends, and whoever serves it goes on
                raise

    def _secret(self, name: str) -> str | None:
        found = self.neighbours.get(name)
        return None if found is None else found.link.secret

    def _may_enter(self, name: str) -> None:
        if not self._is_open:
            raise FederationError(f"{self.name} is about to end")
        if not self._has_turn:
            raise FederationError(f"{self.name} has its links at another gateway")
        neighbour = self.neighbours[name]
        wait_s = neighbour.wait_until - self._loop.time()
        if wait_s > 0:
            raise FederationError(f"{name} may come back in {wait_s:.1f} s: {neighbour.problem}")
        try:
            self.broker.check(name)
        except LinkRefused as problem:
            neighbour.state, neighbour.problem = "refused", str(problem)
            raise
        if neighbour.session is not None and neighbour.is_dialled and self.name < name:
            raise FederationError(f"there is a link from {self.name} to {name} already")

    async def _live(self, neighbour: Neighbour, socket: Socket, *, is_dialled: bool) -> None:
        """Be linked, in place of whatever was before."""
        if neighbour.session is not None:
            neighbour.session.end(f"{neighbour.name} has come again")
        async with neighbour.turn:
            session = neighbour.session = Session(socket, self.settings)
            neighbour.is_dialled, neighbour.state, neighbour.problem = is_dialled, "up", None
            neighbour.begins, neighbour.is_resumed, neighbour.said_offers = {}, False, None
            neighbour.is_greeted = False
            neighbour.done.sessions += 1
            _log.info("a link is up", to=neighbour.name)
            begun = self._loop.time()
            reason = "the link broke"
            try:
                hello = self.broker.connect(neighbour.name)
                self._tell_offers(neighbour)
                self._carry(hello)
                reason = await session.run(
                    partial(self._hear, neighbour), partial(self._take, neighbour), partial(self._beat, neighbour)
                )
            except LinkRefused as problem:
                reason = str(problem)
                raise
            finally:
                bounds = self.settings.bounds
                if session.fault is not None:
                    neighbour.need_patience(self._loop.time(), bounds.first_wait_s, bounds.max_wait_s)
                elif self._loop.time() - begun > bounds.max_wait_s:
                    neighbour.faults = 0
                try:
                    await self._down(neighbour, session, printable(reason))
                finally:
                    await _close(socket, reason)

    async def _down(self, neighbour: Neighbour, session: Session, reason: str) -> None:
        _log.info("a link is down", to=neighbour.name, reason=reason)
        neighbour.session = None
        neighbour.done.said += session.said
        neighbour.done.heard += session.heard
        loop = self.broker.refused.get(neighbour.name)
        if loop is not None:
            neighbour.state, neighbour.problem = "refused", str(LinkRefused(loop))
        else:
            neighbour.state, neighbour.problem = "down", reason
        if neighbour.name in self.broker.links:
            self.broker.disconnect(neighbour.name)
        for service in list(neighbour.forwarders):
            neighbour.stop(service)
        for each in neighbour.asking.values():
            if not each.done():
                each.set_exception(LinkClosed(reason))
        neighbour.asking.clear()
        for service in list(neighbour.mirrors):
            await self._shut(neighbour, service)
        with suppress(TidegateError):
            await self._keep()

    async def _shut(self, neighbour: Neighbour, service: str) -> None:
        mirror = neighbour.mirrors.pop(service)
        neighbour.kept[service] = progress = await self._in_thread(mirror.close)
        neighbour.stale_mirrors.discard(service)
        neighbour.unsaved["mirror", service] = progress.to_json()
        sieve = neighbour.sieves.pop(service, None)
        if sieve is not None:
            sieve.close()

    def _beat(self, neighbour: Neighbour) -> None:
        if neighbour.name in self.broker.links:
            self._carry(self.broker.hello(neighbour.name))

    def _carry(self, sent: Iterable[Sent]) -> None:
        for to, message in sent:
            neighbour = self.neighbours.get(to)
            if neighbour is None or neighbour.session is None:
                continue
            neighbour.session.say(to_json(message))
            if isinstance(message, Refusal):
                neighbour.session.end(str(LinkRefused(message.loop)))
        if self.broker.pending and self._working is None and not self._is_closed:
            self._working = self._spawn(self._work())

    async def _work(self) -> None:
        """Do what is left of great changes, a step at a time: whatever else the loop has to do comes in between."""
        try:
            while self.broker.pending:
                await asyncio.sleep(0)
                self._carry(self.broker.work())
                for each in self.neighbours.values():
                    self._resume(each)
        finally:
            self._working = None
        for each in self.neighbours.values():  # what was left may have been done with another change
            self._resume(each)
        for service in list(self.remotes):
            self._settle(service)

    # What is heard ---------------------------------------------------------------------

    async def _hear(self, neighbour: Neighbour, said: dict[str, Any]) -> None:
        try:
            check_message(said, self.settings.bounds)
            await self._heed(neighbour, said)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise NeighbourFault(f"expected a message of a broker, not {said!r:.120}: {exc!r}") from exc
        except NeighbourFault:
            raise
        except FederationError as exc:
            raise NeighbourFault(str(exc)) from exc

    async def _heed(self, neighbour: Neighbour, said: dict[str, Any]) -> None:
        match said["type"]:
            case "taken":
                forwarder = neighbour.forwarders.get(str(said.get("service")))
                if forwarder is not None:
                    forwarder.taken(int(said["events"]), int(said["dropped"]))
            case "offers":
                await self._offered(neighbour, said["services"])
                neighbour.unsaved["offers", ""] = orjson.dumps(said["services"]).decode()
                await self._changed()
            case "resume":
                neighbour.begins = {
                    service: Begin(each["cursor"], each["marks"]) for service, each in said["services"].items()
                }
                neighbour.is_resumed = True
                self._supply(neighbour)
            case "history":
                if neighbour.answering >= self.settings.bounds.pages:
                    most = self.settings.bounds.pages
                    raise NeighbourFault(f"expected at most {most:,} questions at once for pages of history")
                neighbour.answering += 1
                self._spawn(self._answer(neighbour, neighbour.session, said))
            case _:
                schema = self._schema(neighbour, str(said.get("service")))
                entries = said.get("entries", said.get("add", ()))
                is_large = len(entries) > STEP or sum(len(each["filter"]) for each in entries) > STEP_BYTES
                read = self._in_thread(partial(_read_many, said, schema)) if is_large else None
                message = _read(said, schema) if read is None else await read
                self._check_tables(neighbour, message)
                self._routed(neighbour, message)

    def _check_tables(self, neighbour: Neighbour, message: Message) -> None:
        """Refuse a step after which a neighbour would ask for more than it may."""
        if not isinstance(message, Update | Table) or neighbour.name not in self.broker.links:
            return
        sizes = self.broker.asked_sizes(neighbour.name)
        add = message.add if isinstance(message, Update) else message.entries
        filters, size = sizes.get(message.service, (0, 0)) if isinstance(message, Update) else (0, 0)
        sizes[message.service] = filters + len(add), size + sum(len(each.text) for each in add)
        check_tables(sizes.values(), self.settings.bounds)
        relayed = [size for service, size in sizes.items() if origin_of(service)[1] != self.name]
        check_relayed(relayed, self.settings.bounds)

    def _routed(self, neighbour: Neighbour, message: Message) -> None:
        session = neighbour.session
        if neighbour.name not in self.broker.links:
            return
        self._carry(self.broker.receive(neighbour.name, message))
        if neighbour.name in self.broker.refused:
            if session is not None:
                session.end(str(LinkRefused(self.broker.refused[neighbour.name])))
            return
        if isinstance(message, Hello):
            self._resume(neighbour)
        if isinstance(message, Update | Table):
            neighbour.stale_routes.add(message.service)
            self._settle(message.service)
            self._supply_one(neighbour, message.service, message if isinstance(message, Update) else None)

    def _resume(self, neighbour: Neighbour) -> None:
        """Say once where mirrors go on, behind all that a neighbour had missed of what we ask for.

        So it goes on with just that, and passes over nothing.
        """
        session = neighbour.session
        if session is not None and not neighbour.is_greeted and self.broker.has_answered(neighbour.name):
            neighbour.is_greeted = True
            session.say(neighbour.resume(self._asked_of(neighbour)))

    def _schema(self, neighbour: Neighbour, service: str) -> Schema | None:
        """What types filters of a service that a neighbour asks for."""
        if origin_of(service)[1] == self.name:
            supply = self._supply_of(neighbour, service)
            return None if supply is None else supply.schema
        remote = self.remotes.get(service)
        return None if remote is None else remote.schema

    # Services of others ----------------------------------------------------------------

    async def _offered(
        self, neighbour: Neighbour, said: Sequence[Mapping[str, Any]] | None = None, *, is_heard: bool = True
    ) -> None:
        """Take in all that a neighbour offers and is believed, in place of what it did.

        Without `said` what it has offered last is judged again. `is_heard` is False for what was judged before: what is
        refused of that is not counted once more.
        """
        async with neighbour.judging:
            offers = [dict(each) for each in (neighbour.heard_offers if said is None else said)]
            claims: list[Claim] = []
            version: int | None = None
            while version != self.trust.version:  # else pinned keys have changed meanwhile
                version = self.trust.version
                claims = await self._in_thread(partial(self.trust.read, offers, neighbour.name))
            if self.neighbours.get(neighbour.name) is neighbour:
                neighbour.heard_offers = offers
                self._believe(neighbour, claims, is_heard=is_heard)

    def _believe(self, neighbour: Neighbour, claims: Iterable[Claim], *, is_heard: bool) -> None:
        offers: dict[str, Remote] = {}
        conflicts: dict[str, Remote] = {}
        refused: dict[str, str] = {}
        holders = self._holders()
        for claim in claims:
            name = claim.offer.service.name
            problem = self.trust.judge(claim, neighbour.link, self.neighbours.keys(), holders)
            if problem is None:
                offers[name] = with_access(claim.offer, neighbour.link)
                continue
            refused[name] = problem.reason
            neighbour.refusals[problem.kind] += is_heard
            if problem.kind == "conflict":
                conflicts[name] = claim.offer
        for service in neighbour.offers.keys() - offers.keys():
            self._forget(service)
        if new := sorted(refused.keys() - neighbour.refused.keys()):
            reason = refused[new[0]]
            _log.warning("offers are not believed", by=neighbour.name, count=len(new), service=new[0], reason=reason)
        neighbour.offers, neighbour.claims, neighbour.refused = offers, conflicts, refused
        self.remotes.update(offers)
        for service in offers:
            self._carry(self.broker.reconsider(service))

    def _holders(self) -> dict[str, str]:
        """Return the neighbour over whose link each broker's services are known."""
        return {each.origin: each.via for each in self.remotes.values()}

    async def _judge_again(self) -> None:
        """Judge what all neighbours offer by the links and the pinned keys that there are now."""
        for neighbour in list(self.neighbours.values()):
            await self._offered(neighbour, is_heard=False)
            for service in list(neighbour.mirrors):  # what verifies their events may be another
                await self._shut(neighbour, service)
        await self._changed()

    async def _changed(self) -> None:
        """Let all know that others' services have changed, then have of one neighbour what another has no more."""
        await self._local.changed()
        is_more = False
        for neighbour in list(self.neighbours.values()):
            held = self._holders().keys()
            if any(each.origin not in held for each in neighbour.claims.values()):
                await self._offered(neighbour, is_heard=False)
                is_more = True
        if is_more:
            await self._local.changed()
        self.tell_offers()

    def _forget(self, service: str) -> None:
        self.needs.drop(service)
        self._note_needs()
        self.remotes.pop(service, None)
        self._carry(self.broker.reconsider(service))

    def _leads(self, service: str, neighbour: str) -> bool:
        remote = self.remotes.get(service)
        return remote is not None and remote.via == neighbour

    def _asked_of(self, neighbour: Neighbour) -> list[str]:
        """The services that a neighbour is to go on with."""
        return [each for each in neighbour.offers if self.broker.is_asked(each, neighbour.name)]

    def tell_offers(self) -> None:
        """Tell neighbours what they may have of us, where that has changed, and give them just that."""
        for neighbour in self.neighbours.values():
            if neighbour.session is not None:
                self._tell_offers(neighbour)
                self._supply(neighbour)

    def _tell_offers(self, neighbour: Neighbour) -> None:
        own = self._signer.offers(self._local.offers(neighbour.link))
        onward = [self._passed_on(each, neighbour) for each in self.neighbours.values() if each is not neighbour]
        offers = within_bounds(own, onward, self.settings.bounds)
        if (left := len(own) + sum(map(len, onward)) - len(offers)) and offers != neighbour.said_offers:
            _log.warning("too many services to offer all of them", to=neighbour.name, count=left)
        if neighbour.said_offers != offers and neighbour.session is not None:
            neighbour.said_offers = offers
            neighbour.session.say({"type": "offers", "services": offers})

    def _passed_on(self, other: Neighbour, neighbour: Neighbour) -> list[dict[str, Any]]:
        return [
            dict(each.said)
            for name, each in sorted(other.offers.items())
            if each.onward and each.origin != neighbour.name and self._local.passes_on(neighbour.link, name)
        ]

    # What is needed here ---------------------------------------------------------------

    def hold(self, holder: Hashable, service: str, filter_: Filter | None) -> None:
        """Somebody here listens to another broker's service."""
        remote = self.remotes.get(service)
        if remote is not None:
            is_sent = filter_ is not None and is_portable(filter_, self.settings.bounds.filter_bytes)
            self.needs.hold(holder, service, filter_ if is_sent and filter_ else everything(remote.schema))

    def release(self, holder: Hashable) -> None:
        """They do no more."""
        self.needs.release(holder)

    def _need(self, service: str, id_: str, filter_: Filter | None) -> None:
        self._carry(self.broker.set_all(service, {id_: filter_}))
        self._settle(service)
        if filter_ is not None and service not in self._joining and not self._is_closed:
            self._joining.add(service)
            self._spawn(self._join(service))

    async def _join(self, service: str) -> None:
        """Learn of the origin from where on it looks for what is needed, as long as that is not known of all of it."""
        has_failed = False
        try:
            while lacking := self.needs.lacking(service):
                try:
                    if has_failed:  # else each try would leave a note in the mirror
                        await self.past(service, None, history.at_moment(NEVER), None)
                    await self._join_some(service, lacking)
                    has_failed = False
                except (TidegateError, LinkClosed, TimeoutError):  # the way there is broken, or not in step yet
                    has_failed = True
                    await asyncio.sleep(self.settings.first_s)
        finally:
            self._joining.discard(service)

    async def _join_some(self, service: str, filters: Sequence[Filter]) -> None:
        remote = self.remotes.get(service)
        if remote is None or not self.broker.is_in_step(service, remote.via):
            raise LinkClosed(f"nobody who has {service!r} is in step")
        await self.prepare(service)
        await self._in_thread(partial(self._log.append, service, "0", [JOINT]))
        since = await self.mirror_end(service)
        page = await self.past(service, None, history.at_moment(NEVER), None)
        here = await self.joined(service, since, page.until)
        if here is None:
            raise FederationError(f"there is no mirror of {service!r} yet")
        joint = Joint(here, page.until)
        joints = self._joints.setdefault(service, Joints())
        if joints.add(joint) and remote.via in self.neighbours:
            self.neighbours[remote.via].unsaved["joints", service] = joints.to_json()
        for at in range(0, len(filters), STEP):
            self.needs.join(service, filters[at : at + STEP], joint)
            await asyncio.sleep(0)
        await self._keep()  # before anybody is told of a place that counts on it
        self._joined.set()
        self._joined = asyncio.Event()

    def joint(self, service: str, filter_: Filter | None) -> Joint | None:
        """From where on a mirror has what a filter matches; None: that is not known, or there is no such service."""
        remote = self.remotes.get(service)
        if remote is None:
            return None
        return self.needs.joint(service, everything(remote.schema) if filter_ is None else filter_)

    async def joins(self, service: str, filter_: Filter | None, patience_s: float) -> bool:
        """Whether a mirror has what a filter matches from now on; where a link is up, that is asked for and awaited."""
        remote, holder = self.remotes.get(service), object()
        if remote is None or self.joint(service, filter_) is not None:
            return remote is not None
        self.hold(holder, service, filter_)
        try:
            async with asyncio.timeout(patience_s):
                while self.neighbours[remote.via].session is not None and self.joint(service, filter_) is None:
                    await self._joined.wait()
        except (TimeoutError, KeyError):
            pass
        finally:
            self.release(holder)
        return self.joint(service, filter_) is not None

    async def at_origin(self, service: str, place: Cursor) -> Cursor | None:
        """The place in history of a place in a mirror; None: nobody can tell."""
        joint = self._joints.get(service, Joints()).before(place)
        return await self._in_thread(partial(at_origin, self._log, service, joint, place))

    def _settle(self, service: str) -> None:
        """See whether a service is still asked for."""
        remote = self.remotes.get(service)
        if remote is not None and remote.via in self.neighbours:
            via = self.neighbours[remote.via]
            if via.name in self.broker.links and not self.broker.is_asked(service, via.name):
                via.begin_anew(service)

    # Events ------------------------------------------------------------------------------

    def _supply_of(self, neighbour: Neighbour, service: str) -> Supply | None:
        """What a neighbour may have of a service; None: nothing."""
        name, origin = origin_of(service)
        if origin == self.name:
            return self._local.supply(neighbour.link, name)
        remote = self.remotes.get(service)
        if remote is None or remote.via == neighbour.name or not remote.onward:
            return None
        if not self._local.passes_on(neighbour.link, service):
            return None
        return Supply(service, service, remote.schema)

    def _supply(self, neighbour: Neighbour) -> None:
        """Forward what a neighbour asks for, and nothing else."""
        session = neighbour.session
        if session is None or not neighbour.is_resumed or neighbour.name not in self.broker.links:
            return
        for service in {*neighbour.forwarders, *self.broker.asks(neighbour.name)}:
            self._supply_one(neighbour, service)

    def _supply_one(self, neighbour: Neighbour, service: str, step: Update | None = None) -> None:
        """Forward what a neighbour asks for of a service; `step`: that is what it did, and this more and less."""
        session = neighbour.session
        if session is None or not neighbour.is_resumed:
            return
        if not self.broker.is_wanted(service, neighbour.name):
            neighbour.stop(service)
            neighbour.unheard.pop(service, None)
            neighbour.begins.pop(service, None)
            return
        supply, forwarder = self._supply_of(neighbour, service), neighbour.forwarders.get(service)
        state = self.broker.states(neighbour.name)[service]
        if forwarder is not None and forwarder.supply == supply:
            if step is None or step.state != state:
                forwarder.want(self.broker.routes(service, neighbour.name), state)
            else:
                forwarder.change({each.number: each.filter for each in step.add}, step.remove, state)
            return
        rest = neighbour.stop(service)
        if supply is None:  # it may see it again: then it goes on where it was
            if rest is not None and service not in neighbour.unheard:
                neighbour.begins[service] = rest
            return
        give = partial(self._give, neighbour, session, service)
        policy = self.broker.filtering(service, neighbour.name)
        hand = partial(self._soon, give)
        entries, begin = self.broker.routes(service, neighbour.name), rest or neighbour.begin(service)
        sign = self._signer.records if supply.is_own else None
        neighbour.forwarders[service] = Forwarder(
            self._log, supply, begin, entries, state, hand, self.settings, policy, sign
        )

    def _give(self, neighbour: Neighbour, session: Session, service: str, batch: Batch) -> None:
        if neighbour.session is session:
            head: dict[str, Any] = {"service": service, "cursor": batch.cursor}
            session.give({**head, "coarse": True} if batch.is_coarse else head, batch.records)

    async def _take(self, neighbour: Neighbour, head: dict[str, Any], records: list[bytes]) -> None:
        try:
            await self._take_in(neighbour, head, records)
        except (TypeError, ValueError) as exc:
            raise FederationError(f"expected events of {head['service']!r:.80}, not {head!r:.120}: {exc!r}") from exc

    async def _take_in(self, neighbour: Neighbour, head: dict[str, Any], records: list[bytes]) -> None:
        if "history" in head:
            waiting = neighbour.asking.pop(head["history"], None)
            if waiting is None and neighbour.session is not None:
                await neighbour.session.spend(UNWANTED_UNITS)
            if waiting is not None and not waiting.done():
                waiting.set_result((head, records))
            return
        service, dropped = head["service"], len(records)
        if service in neighbour.offers and self.broker.is_asked(service, neighbour.name):
            wanted = self._judge(neighbour, service) if head.get("coarse") else None
            dropped = await self._mirror(neighbour, service, records, head["cursor"], wanted)
        elif neighbour.session is not None:
            await neighbour.session.spend(UNWANTED_UNITS)
        neighbour.done.dropped += dropped
        if neighbour.session is not None:
            taken = {"type": "taken", "service": service, "events": len(records), "dropped": dropped}
            neighbour.session.say(taken)

    def _judge(self, neighbour: Neighbour, service: str) -> Judge:
        """What tells which events somebody wants, here or behind another link: those that we have asked for.

        A subscriber's filter, also one that lingers, is among them from the moment it is needed. Who comes while
        events are judged misses none: what the other end looks at since it knows of them comes behind these.
        """
        schema, sieve = neighbour.offers[service].schema, neighbour.sieves.get(service)
        if sieve is None or sieve.schema != schema:
            if sieve is not None:
                sieve.close()
            sieve = neighbour.sieves[service] = Sieve(schema)
            neighbour.judged.pop(service, None)
        version = self.broker.asked_version(service, neighbour.name)
        if neighbour.judged.get(service) == version:
            return sieve.wanted
        neighbour.judged[service] = version
        return partial(_judged, sieve, self.broker.asked(service, neighbour.name))

    async def _mirror(
        self, neighbour: Neighbour, service: str, records: list[bytes], cursor: str, wanted: Judge | None
    ) -> int:
        """Append events; say how many of them nobody wants."""
        mirror = neighbour.mirrors.get(service)
        if mirror is None:
            verifier, most = self.trust.verifier(service), self.settings.bounds.partitions
            open_ = partial(Mirror, self._log, service, neighbour.kept.get(service), verifier, most)
            mirror = neighbour.mirrors[service] = await self._in_thread(open_)
        is_first = mirror.there is None
        try:
            taken = await self._in_thread(partial(mirror.append, records, cursor, wanted))
        except FederationError as problem:
            neighbour.mirrors.pop(service, None)
            neighbour.refusals["record"] += 1
            raise NeighbourFault(str(problem)) from problem
        except TidegateError as problem:
            neighbour.mirrors.pop(service, None)  # it is opened anew, from what was kept
            raise FederationError(f"can't append to {service!r}: {problem}") from problem
        neighbour.done.received += taken.added
        neighbour.done.repeated += taken.repeated
        neighbour.refusals["signature"] += taken.unsigned
        neighbour.stale_mirrors.add(service)
        if is_first:
            await self._keep()
        return taken.dropped

    # History -----------------------------------------------------------------------------

    async def past(self, service: str, filter_: Filter | None, place: Cursor, until: Cursor | None) -> history.Page:
        """A page of what a service put out before, from a place on, as far as there is one.

        `until`: what the first page has said, for those behind it; None: this is the first.
        """
        ask: dict[str, Any] = {"service": service, "place": place.text}
        is_sent = filter_ is None or is_portable(filter_, self.settings.bounds.filter_bytes)
        if filter_ is not None and is_sent:
            ask["filter"] = _said(filter_)
        if until is not None:
            ask["until"] = until.text
        head, records = await self._ask(service, ask)
        remote = self.remotes.get(service)
        refusals = self.neighbours[remote.via].refusals if remote and remote.via in self.neighbours else Counter[str]()
        try:
            page = history.read_answer(head, records, service)
            check = partial(history.checked, page, service, place, self.trust.verifier(service))
            page, refused = await self._in_thread(check)
        except TidegateError:
            refusals["record"] += 1
            raise
        refusals["signature"] += refused
        return page if is_sent or filter_ is None else await self._in_thread(partial(history.filtered, page, filter_))

    async def _ask(self, service: str, ask: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        remote = self.remotes.get(service)
        neighbour = None if remote is None else self.neighbours.get(remote.via)
        if neighbour is None or neighbour.session is None:
            raise LinkClosed(f"the link to {'nobody' if neighbour is None else neighbour.name} is down")
        if not self.broker.is_in_step(service, neighbour.name):
            raise LinkClosed(f"{neighbour.name} has yet to hear what is asked of it")
        if len(neighbour.asking) >= MAX_ASKED_PAGES:
            raise LinkClosed(f"{neighbour.name} is asked for {MAX_ASKED_PAGES} pages of history already")
        number = next(self._numbers)
        asked: asyncio.Future[tuple[dict[str, Any], list[bytes]]] = self._loop.create_future()
        neighbour.asking[number] = asked
        neighbour.session.say({"type": "history", "id": number, **ask})
        try:
            async with asyncio.timeout(PATIENCE_S):
                head, records = await asked
        except TimeoutError:
            raise LinkClosed(f"{neighbour.name} does not answer") from None
        finally:
            neighbour.asking.pop(number, None)
        if "problem" in head:
            raise FederationError(str(head["problem"]))
        return head, [each for each in records if each]

    async def _answer(self, neighbour: Neighbour, session: Session | None, said: Mapping[str, Any]) -> None:
        """Give a neighbour a page of history: of our own, or asked of the next one towards the origin.

        Only in the session in which it has asked: what it says of where events go on is so there.
        """
        service = str(said.get("service"))
        head: dict[str, Any] = {"service": service, "cursor": "", "history": said.get("id")}
        records: list[bytes] = []
        try:
            supply = self._supply_of(neighbour, service)
            if supply is None:
                raise FederationError(f"no service {service!r}")
            if not self.broker.is_in_step(service, neighbour.name):
                raise FederationError(f"{self.name} has yet to hear what {neighbour.name} asks for")
            if "until" not in said:
                await self._keep()  # what is asked for from there on is still so if this broker is killed
            if supply.is_own:
                page = await self._own_page(neighbour, supply, said)
                until = None if page.until is None else page.until.text
                head |= {"start": page.start.text, "cursor": page.end.text, "until": until, "last": page.is_last}
                records = list(self._signer.records([each.note() for each in page.lost])) + list(page.records)
            else:
                ask = {key: value for key, value in said.items() if key not in ("type", "id")}
                answer, records = await self._relayed(neighbour, service, ask)
                head |= {key: answer[key] for key in ("start", "cursor", "until", "last")}
                if "until" not in said:
                    await self._flushed(neighbour, service)
        except (TidegateError, LinkClosed, TimeoutError, KeyError, TypeError, AttributeError) as problem:
            head["problem"], records = str(problem) or repr(problem), []
        finally:
            neighbour.answering -= 1
        if session is not None and neighbour.session is session:
            session.give(head, records)

    async def _relayed(
        self, neighbour: Neighbour, service: str, ask: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Ask the next broker for a page on a neighbour's behalf: it may not use up all that we may ask for."""
        if neighbour.relays is None:
            neighbour.relays = asyncio.Semaphore(self.settings.bounds.relayed_pages)
        async with neighbour.relays:
            return await self._ask(service, ask)

    async def _own_page(self, neighbour: Neighbour, supply: Supply, said: Mapping[str, Any]) -> history.Page:
        asked = said.get("filter")
        wanted = None if asked is None else _filter(asked, supply.schema)
        if "until" in said:
            until: Cursor | None = Cursor.from_text(said["until"])
        else:
            until = await self._flushed(neighbour, supply.service)
        place = Cursor.from_text(said["place"])
        read = partial(history.read_page, self._log, supply, wanted, place, until, self._signer.records)
        async with neighbour.reading:
            return await self._in_thread(read, self._page_threads)

    async def _flushed(self, neighbour: Neighbour, service: str) -> Cursor | None:
        """Where the forwarder of a service is, when all before that is on its way."""
        forwarder = neighbour.forwarders.get(service)
        if forwarder is None:
            raise FederationError(f"{neighbour.name} has not asked for {service!r}")
        found: asyncio.Future[Cursor | None] = self._loop.create_future()
        forwarder.ask(partial(self._soon, partial(_settled, found)))
        async with asyncio.timeout(PATIENCE_S):
            at = await found
        if neighbour.forwarders.get(service) is not forwarder:
            raise FederationError(f"what {neighbour.name} gets of {service!r} has changed just now")
        return at

    async def prepare(self, service: str) -> None:
        """Make the mirror of a service, so that there are places in it; nothing where it is there."""
        if service in self.remotes and service not in self._prepared:
            await self._in_thread(partial(self._log.create, service))
            self._prepared.add(service)

    async def mirror_end(self, service: str) -> Cursor | None:
        """Where a mirror ends now; None: it has not begun."""
        with suppress(TidegateError):
            return await self._in_thread(partial(self._log.end, service))
        return None

    async def joined(self, service: str, since: Cursor | None, until: Cursor | None) -> Cursor | None:
        """Where a mirror goes on behind history."""
        return await self._in_thread(partial(history.mirrored, self._log, service, since, until))

    # Keeping -----------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Write down what has changed, so that this broker goes on where it was.

        Whoever waits for it may be gone before it is done: what is half written would be overtaken by what is next.
        """
        keeps = self._loop.create_task(self._keep_all())
        self._keeps.add(keeps)
        keeps.add_done_callback(self._keeps.discard)
        await asyncio.shield(keeps)

    async def _keep_all(self) -> None:
        async with self._keeping:
            self.needs.pass_time(self._loop.time())
            if not self._has_turn:
                return
            self._note_needs()
            problems: list[Exception] = []
            for neighbour in list(self.neighbours.values()):
                try:
                    await self._keep_one(neighbour)
                except Exception as problem:  # what is known of others is kept all the same
                    problems.append(problem)
            if problems:
                raise problems[0]

    async def _keep_one(self, neighbour: Neighbour) -> None:
        """Write down what has changed of a link; what could not be is tried again with what changes next."""
        unsaved, neighbour.unsaved = neighbour.unsaved, {}
        routes, neighbour.stale_routes = neighbour.stale_routes, set()
        mirrors, neighbour.stale_mirrors = neighbour.stale_mirrors, set()
        try:
            states = {**unsaved, **await self._states(neighbour, routes, mirrors)}
            if states:
                keep = partial(self._registry.keep_link_states, neighbour.name, states)
                await self._in_thread(keep, self._keepers)
        except BaseException:
            neighbour.unsaved = {**unsaved, **neighbour.unsaved}
            neighbour.stale_routes |= routes
            neighbour.stale_mirrors |= mirrors
            raise

    def _note_needs(self) -> None:
        """See to it that what is needed is written down with the link that it is asked for over."""
        for (service, name), need in self.needs.changed().items():
            remote = self.remotes.get(service)
            neighbour = None if remote is None else self.neighbours.get(remote.via)
            if neighbour is not None:
                joint = None if need is None or need.joint is None else need.joint.said()
                said = None if need is None else orjson.dumps({**_said(need.filter), "joint": joint}).decode()
                neighbour.unsaved["need", f"{service} {name}"] = said

    async def _states(self, neighbour: Neighbour, routes: set[str], mirrors: set[str]) -> dict[Kept, str | None]:
        """What a neighbour asks for of some services, and how far some mirrors have come."""
        states: dict[Kept, str | None] = {}
        if neighbour.name in self.broker.links:
            for table in [self.broker.table(service, neighbour.name) for service in routes]:
                states["routes", table.service] = await self._in_thread(partial(_document, table))
        else:
            neighbour.stale_routes |= routes
        for mirror in [neighbour.mirrors[service] for service in mirrors & neighbour.mirrors.keys()]:
            states["mirror", mirror.name] = (await self._in_thread(mirror.progress)).to_json()
        return states

    async def _expire(self) -> None:
        for service, remote in list(self.remotes.items()):
            kept = remote.service.retention
            with suppress(TidegateError):
                expire = partial(self._log.expire, service, Retention(kept.age_s, kept.size_bytes))
                await self._in_thread(expire)

    async def _follow(self, every_s: float, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        def warn(problem: Exception) -> None:  # whatever it is, the next look may succeed
            _log.warning("can't look after links", problem=repr(problem))

        await periodic(look, every_s, warn)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _soon(self, call: Callable[[T], None], value: T) -> None:
        """Call something in the loop, from any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, value)

    async def _in_thread(self, call: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        return await self._loop.run_in_executor(threads or self._threads, call)


def _settled(found: asyncio.Future[Cursor | None], at: Cursor | None) -> None:
    if not found.done():
        found.set_result(at)


async def _close(socket: Socket, reason: str) -> None:
    """Close a socket. A frame more waits for room, which an end that does not read never makes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL_S):
            await socket.close(reason)


def _read(said: Mapping[str, Any], schema: Schema | None) -> Message:
    """A message, its filters typed as its sender sees the service."""
    return from_json(said, lambda _: schema)


def _read_many(said: Mapping[str, Any], schema: Schema | None) -> Message:
    """A message with many filters, in a thread: with all that has to be known of each to find it a place."""
    found = _read(said, schema)
    if isinstance(found, Update | Table):
        for each in found.add if isinstance(found, Update) else found.entries:
            _ = hash(each.filter), [conjunct.necessary for conjunct in each.filter.normal.conjuncts]
    return found


def _document(table: Table) -> str:
    return orjson.dumps(to_json(table)).decode()


def _judged(sieve: Sieve, asked: Mapping[int, Filter], records: Sequence[bytes]) -> Sequence[int]:
    sieve.want(asked)
    return sieve.wanted(records)


def _said(filter_: Filter) -> dict[str, Any]:
    return {"text": filter_.text, "params": list(filter_.params), "like_star": filter_.like_star}


def _filter(said: Mapping[str, Any], schema: Schema) -> Filter:
    return Filter(said["text"], schema, said["params"], like_star=said["like_star"])
