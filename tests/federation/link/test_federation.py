"""Brokers linked over real sockets, in one process: cut at any moment, silent, slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, current_thread
from typing import Any

import orjson
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.polling import until_async as until
from tests.registry import stores
from tidegate.errors import LogError, RegistryError, TidegateError
from tidegate.federation.link import (
    SUBPROTOCOL,
    Federation,
    LinkClosed,
    LinkSettings,
    Supply,
    history,
    offered,
    proof,
    record_matcher,
    supervisor,
    wire,
)
from tidegate.federation.link.dialer import Dialled, dial
from tidegate.federation.routes import AdaptiveSettings, RouteEntry, RouteTable, TableState
from tidegate.federation.routes.messages import to_json
from tidegate.federation.routes.table import MAX_STEP_FILTERS
from tidegate.filters import Filter
from tidegate.logs import EventLog, KafkaLog, RetentionLimits, SegmentLog
from tidegate.logs.gap_records import SYNC_RECORD, with_gaps
from tidegate.logs.segments import SEGMENT_BYTES
from tidegate.matching import Matcher
from tidegate.model import Enum, Schema
from tidegate.registry import Link, Registry, SqliteRegistry, open_registry
from tidegate.services import Service

SECRET = "a secret that both ends of a link know"
SCHEMA = Schema({"n": "int64"})
FICKLE = AdaptiveSettings(crossing_s=0.0, window=20, sample=4)
"""Asking never pays: a link is coarse as soon as it may be, until the other side says that it drops much."""
HASTE: dict[str, Any] = {
    "heartbeat_interval_s": 0.05,
    "silence_timeout_s": 20.0,
    "first_retry_s": 0.01,
    "max_retry_s": 0.05,
    "save_interval_s": 0.01,
}


class Side:
    """A broker with one public service, or none."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        has_service: bool = False,
        registry: Registry | None = None,
        log: EventLog | None = None,
        **settings: Any,
    ) -> None:
        self.name, self._has_service = name, has_service
        self.registry = registry or SqliteRegistry(folder / name / "registry.sqlite")
        size = 1_000 if has_service else SEGMENT_BYTES
        self.log = log or SegmentLog(folder / name / "log", segment_bytes=size)
        if has_service:
            self.log.create("numbers")
        self._settings = LinkSettings(name, **{**HASTE, **settings})
        self.port = 0
        self.sockets: set[ServerConnection] = set()
        self.is_hidden = False
        """Whether its service is, for a moment, seen by nobody."""

    def offers(self, link: Link) -> list[dict[str, Any]]:
        del link
        return [offered(Service("numbers", ("raw",)), SCHEMA, self.name)] if self._has_service else []

    def supply(self, link: Link, service: str) -> Supply | None:
        del link
        is_seen = self._has_service and not self.is_hidden
        return Supply(f"{service}@{self.name}", service, SCHEMA) if is_seen else None

    def passes_on(self, link: Link, name: str) -> bool:
        return bool(link and name)

    async def changed(self) -> None:
        pass

    def append(self, *numbers: int) -> None:
        self.log.append("numbers", "0", [b'{"_id":"%d","n":%d}' % (n, n) for n in numbers])

    def mirrored(self, service: str) -> list[int]:
        """The numbers that a mirror holds, in their order."""
        try:
            read = self.log.read(service, self.log.begin(service), 100_000)
        except LogError:
            return []
        return [orjson.loads(record)["n"] for record in with_gaps(read).records]

    def gaps(self, service: str) -> int:
        """Return the number of gaps that a reader of a mirror gets."""
        return len(with_gaps(self.log.read(service, self.log.begin(service), 100_000)).gaps)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Federation]:
        federation = self.federation = Federation(self._settings, self.registry, self.log, self, seed=7)

        async def answer(connection: ServerConnection) -> None:
            self.sockets.add(connection)
            await federation.accept(_Answered(connection))
            self.sockets.discard(connection)

        chosen = [Subprotocol(SUBPROTOCOL)]
        async with serve(answer, "127.0.0.1", self.port, subprotocols=chosen, ping_interval=None) as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            await federation.start()
            await federation.open()
            try:
                yield federation
            finally:
                await federation.close()

    def link(self, other: Side) -> None:
        other.registry.add_link(self.name, None, SECRET, transit=["*"])
        self.registry.add_link(other.name, f"http://127.0.0.1:{other.port}", SECRET, transit=["*"])


class _Answered:
    """A socket that was opened from outside."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        try:
            await self._connection.send(data)
        except ConnectionClosed as exc:
            raise LinkClosed("the link broke") from exc

    async def receive(self) -> bytes:
        try:
            return bytes(await self._connection.recv(decode=False))
        except ConnectionClosed as exc:
            raise LinkClosed("the link broke") from exc

    async def close(self, reason: str) -> None:
        await self._connection.close(1000, reason[:100])


async def linked(here: Side, there: Side, service: str = "numbers@there") -> None:
    here.link(there)
    await there.federation.reload_links()
    await here.federation.reload_links()
    await until(lambda: service in here.federation.remotes, "the service to be offered")


def has_begun(of: Side, by: str, service: str = "numbers@there") -> bool:
    forwarder = of.federation.neighbours[by].forwarders.get(service)
    return forwarder is not None and forwarder.has_begun


@pytest.mark.parametrize("adaptive", [None, FICKLE])
def test_link_cut_at_any_moment_neither_loses_nor_repeats_events(
    tmp_path: Path, adaptive: AdaptiveSettings | None
) -> None:
    async def run() -> None:
        chance = Random(3)
        here, there = Side(tmp_path, "here"), Side(tmp_path, "there", has_service=True, adaptive=adaptive)
        async with there.running(), here.running():
            await linked(here, there)
            here.federation.hold("me", "numbers@there", Filter("n >= 100", SCHEMA))
            await until(lambda: has_begun(there, "here"), "it to be asked for")
            sent = 0
            for _ in range(6):
                for _ in range(chance.randrange(1, 8)):
                    count = chance.randrange(1, 60)
                    there.append(*range(sent, sent + count))
                    sent += count
                    await asyncio.sleep(chance.random() * 0.01)
                for each in list(there.sockets):
                    each.transport.abort()
            await until(lambda: len(here.mirrored("numbers@there")) >= sent - 100, "all to arrive")
            assert here.mirrored("numbers@there") == list(range(100, sent))
            assert here.federation.neighbours["there"].figures().sessions > 2
            assert all(
                each.figures.coarsened for each in there.federation.broker.link("here").filter_policies().values()
            )

    asyncio.run(run())


def test_unrequested_events_are_not_sent_and_new_request_starts_with_new_events(tmp_path: Path) -> None:
    async def run() -> None:
        here, there = Side(tmp_path, "here", linger_s=0.01), Side(tmp_path, "there", has_service=True)
        async with there.running(), here.running():
            await linked(here, there)
            there.append(1)
            here.federation.hold("me", "numbers@there", None)
            await until(lambda: has_begun(there, "here"), "it to be asked for")
            there.append(2)
            await until(lambda: here.mirrored("numbers@there") == [2], "an event")
            here.federation.release("me")
            await until(lambda: not has_begun(there, "here"), "it to be asked for no more")
            there.append(3)
            here.federation.hold("me", "numbers@there", Filter("n > 0", SCHEMA))
            await until(lambda: has_begun(there, "here"), "it to be asked for again")
            there.append(4)
            await until(lambda: len(here.mirrored("numbers@there")) == 2, "another event")
            assert here.mirrored("numbers@there") == [2, 4]

    asyncio.run(run())


@pytest.mark.parametrize("is_cut", [True, False])
def test_mirror_resumes_after_its_service_was_hidden_briefly(tmp_path: Path, is_cut: bool) -> None:
    async def run() -> None:
        here, there = Side(tmp_path, "here"), Side(tmp_path, "there", has_service=True)
        async with there.running() as far, here.running():
            await linked(here, there)
            here.federation.hold("me", "numbers@there", None)
            await until(lambda: has_begun(there, "here"), "it to be asked for")
            there.append(*range(10))
            await until(lambda: len(here.mirrored("numbers@there")) == 10, "the first events")
            there.is_hidden = True
            far.send_offers()
            assert not has_begun(there, "here")
            if is_cut:
                sessions = far.neighbours["here"].figures().sessions
                for each in list(there.sockets):
                    each.transport.abort()
                await until(lambda: far.neighbours["here"].figures().sessions > sessions, "another session")
                await until(lambda: far.neighbours["here"].has_resumed, "it to say where to go on")
            there.append(*range(10, 20))
            there.is_hidden = False
            far.send_offers()
            await until(lambda: has_begun(there, "here"), "it to go on")
            there.append(20)
            await until(lambda: 20 in here.mirrored("numbers@there"), "the last event")
            assert here.mirrored("numbers@there") == list(range(21))

    asyncio.run(run())


def test_unconfirmed_events_in_flight_are_bounded(tmp_path: Path) -> None:
    async def run() -> None:
        here = Side(tmp_path, "here")
        there = Side(tmp_path, "there", has_service=True, max_in_flight=3, batch_events=10)
        async with there.running(), here.running():
            await linked(here, there)
            here.federation.hold("me", "numbers@there", None)
            neighbour = here.federation.neighbours["there"]
            await until(lambda: neighbour.progress("numbers@there").upstream is not None, "it to begin")
            gate = asyncio.Event()
            append, given = here.federation.mirrors.append, 0

            async def slowly(*args: Any) -> int:
                nonlocal given
                given += len(args[2])
                await gate.wait()
                return await append(*args)

            here.federation.mirrors.append = slowly  # type: ignore[method-assign, assignment]
            there.append(*range(1_000))
            await until(lambda: given == 10, "the first batch")
            session = there.federation.neighbours["here"].session
            assert session is not None
            await asyncio.sleep(0.2)  # time enough to send all, were there no bound
            assert given == 10
            gate.set()
            await until(lambda: here.mirrored("numbers@there") == list(range(1_000)), "all to arrive")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"type": "taken", "service": "x"}, None),
        ({"type": "offers"}, "expected a message of a broker, not {'type': 'offers'}: KeyError('services')"),
        (
            {"type": "resume", "services": [7]},
            "expected the name of a service, not 7",
        ),
        ({"type": "update", "service": "x", "add": 7}, "expected a message of a broker, not "),
        ({"type": "moo"}, "expected a message of a broker, not {'type': 'moo'}: "),
        ({"type": "history", "service": "x"}, None),
    ],
)
def test_neighbour_that_sends_malformed_messages_is_disconnected(
    tmp_path: Path, said: dict[str, Any], problem: str | None
) -> None:
    async def run() -> str | None:
        there = Side(tmp_path, "there", has_service=True)
        async with there.running() as far:
            there.registry.add_link("wolf", None, SECRET)
            await far.reload_links()
            socket = await dial(f"http://127.0.0.1:{there.port}", LinkSettings("wolf"))
            await proof.introduce(socket, "wolf", "there", SECRET)
            wolf = far.neighbours["wolf"]
            await until(lambda: wolf.state == "up", "the link")
            for frame in wire.control(said):
                await socket.send(frame)
            if problem is not None:
                await until(lambda: wolf.state == "down", "it to be let go of")
            else:
                await until(lambda: wolf.figures().heard > 0 or said["type"] == "taken", "it to be heard")
                assert wolf.state == "up"
            found = wolf.problem
            await socket.close("")
            return found

    found = asyncio.run(run())
    assert (found or "").startswith(problem or "")


def test_malformed_events_end_the_session(tmp_path: Path) -> None:
    async def run() -> str | None:
        there = Side(tmp_path, "there", has_service=True)
        async with there.running() as far:
            there.registry.add_link("wolf", None, SECRET)
            await far.reload_links()
            socket = await dial(f"http://127.0.0.1:{there.port}", LinkSettings("wolf"))
            await proof.introduce(socket, "wolf", "there", SECRET)
            await until(lambda: far.neighbours["wolf"].state == "up", "the link")
            far.neighbours["wolf"].awaited_pages[7] = asyncio.get_running_loop().create_future()
            far.neighbours["wolf"].awaited_pages[7].add_done_callback(asyncio.Future.exception)
            for frame in wire.events({"service": "x", "cursor": "", "history": [1]}, []):
                await socket.send(frame)
            await until(lambda: far.neighbours["wolf"].problem is not None, "it to be let go of")
            await socket.close("")
            return far.neighbours["wolf"].problem

    found = asyncio.run(run())
    assert found == (
        "expected events of 'x', not {'service': 'x', 'cursor': '', 'history': [1]}: "
        """TypeError("unhashable type: 'list'")"""
    )


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ({"cursor": ""}, "expected a page of history of 'numbers@there', not {'cursor': ''}: KeyError('start')"),
        ({"start": 7, "cursor": ""}, "expected a page of history of 'numbers@there', not {'start': 7, 'cursor': ''}: "),
    ],
)
def test_malformed_page_of_history_is_refused(tmp_path: Path, head: dict[str, Any], problem: str) -> None:
    async def run() -> str:
        here = Side(tmp_path, "here")
        async with here.running() as near:

            async def nonsense(*_: Any) -> Any:
                return head, []

            near.history.request = nonsense  # type: ignore[method-assign, assignment]
            with pytest.raises(TidegateError) as caught:
                await near.read_history("numbers@there", None, history.BEGINNING, None)
            return str(caught.value)

    assert asyncio.run(run()).startswith(problem)


def test_history_answer_is_sent_in_the_session_of_its_request(tmp_path: Path) -> None:
    async def run() -> None:
        here, there = Side(tmp_path, "here"), Side(tmp_path, "there", has_service=True)
        async with there.running() as far, here.running():
            await linked(here, there)
            neighbour = far.neighbours["here"]
            before = neighbour.session
            for each in list(there.sockets):
                each.transport.abort()
            await until(lambda: neighbour.session not in (None, before), "another session")
            given: list[Any] = []
            neighbour.session.send_events = lambda *said: given.append(said)  # type: ignore[method-assign, union-attr]
            said = {"type": "history", "id": 7, "service": "numbers@nowhere"}
            for session in (before, neighbour.session):
                neighbour.owed_pages += 1
                await far.history.answer(neighbour, session, said)
            assert [head["problem"] for head, _ in given] == ["no service 'numbers@nowhere'"]

    asyncio.run(run())


def test_repeated_sync_requests_do_not_add_a_record_each(tmp_path: Path) -> None:
    async def run() -> None:
        here, there = Side(tmp_path, "here"), Side(tmp_path, "there", has_service=True)
        async with there.running(), here.running() as near:
            await linked(here, there)
            past, tries = near.history.read, 0

            async def in_vain(*_: Any) -> Any:
                nonlocal tries
                tries += 1
                raise LinkClosed("the link behind that is down")

            near.history.read = in_vain  # type: ignore[method-assign, assignment]
            near.hold("me", "numbers@there", None)
            await until(lambda: tries > 5, "some tries")
            near.history.read = past  # type: ignore[method-assign]
            await until(lambda: near.sync_point("numbers@there", None) is not None, "it to be joined")
            notes = here.log.read("numbers@there", here.log.begin("numbers@there"), 100).records
            assert notes in ((SYNC_RECORD,), (SYNC_RECORD, SYNC_RECORD))

    asyncio.run(run())


def test_lease_is_taken_while_all_event_threads_are_busy(tmp_path: Path) -> None:
    async def run() -> None:
        here = Side(tmp_path, "here")
        async with here.running() as near:
            may_go_on = Event()
            runtime = near._context.runtime
            busy = [asyncio.create_task(runtime.in_thread(partial(may_go_on.wait, 20))) for _ in range(4)]
            await asyncio.sleep(0)
            try:
                async with asyncio.timeout(10):
                    assert await near._supervisor._take_lease()
                assert not any(each.done() for each in busy)
            finally:
                may_go_on.set()
                await asyncio.gather(*busy)

    asyncio.run(run())


def test_failed_save_is_repeated_later(tmp_path: Path) -> None:
    """Also if the registry refuses it or its waiter has ended, and for one link independently of others."""

    async def run() -> None:
        here, there = Side(tmp_path, "here", save_interval_s=60.0), Side(tmp_path, "there", has_service=True)
        async with there.running(), here.running() as near:
            here.registry.add_link("aside", None, SECRET)
            await near.reload_links()
            await linked(here, there)
            near.hold("me", "numbers@there", None)
            await until(lambda: near.sync_point("numbers@there", None) is not None, "it to be joined")
            neighbour, keep = near.neighbours["there"], here.registry.save_link_states
            refused: list[str] = []

            def refuse(name: str, states: Any) -> None:
                refused.append(name)
                raise RegistryError("the disk is full")

            here.registry.save_link_states = refuse  # type: ignore[method-assign, assignment]
            near.neighbours["aside"].unsaved["offers", ""] = "[]"
            there.append(7)
            await until(lambda: "numbers@there" in neighbour.stale_mirrors, "an event")
            neighbour.stale_routes.add("numbers@here")
            unsaved = dict(neighbour.unsaved)
            with pytest.raises(RegistryError, match="the disk is full"):
                await near.store.save()
            assert set(refused) == {"aside", "there"}
            assert neighbour.stale_mirrors == {"numbers@there"}
            assert neighbour.stale_routes == {"numbers@here"}
            assert neighbour.unsaved == unsaved
            here.registry.save_link_states = keep  # type: ignore[method-assign]
            waits = asyncio.create_task(near.store.save())
            await asyncio.sleep(0)
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
            await near.store.save()
            states = here.registry.link_states("there")
            assert ("routes", "numbers@here") in states
            assert (
                orjson.loads(states["mirror", "numbers@there"])["there"] == neighbour.mirrors["numbers@there"].upstream
            )

    asyncio.run(run())


def test_service_moves_to_the_other_link_that_offers_it_when_one_is_removed(tmp_path: Path) -> None:
    async def run() -> None:
        here = Side(tmp_path, "here")
        said = {"type": "offers", "services": [offered(Service("n", ("raw",)), SCHEMA, "far")]}
        async with here.running() as near:
            sockets = []
            for name in ("fox", "wolf"):
                here.registry.add_link(name, None, SECRET, transit=["far"])
                await near.reload_links()
                socket = await dial(f"http://127.0.0.1:{here.port}", LinkSettings(name))
                await proof.introduce(socket, name, "here", SECRET)
                for message in ({"type": "hello", "tables": {}, "paths": [[name]]}, said):
                    for frame in wire.control(message):
                        await socket.send(frame)
                sockets.append(socket)
                await until(lambda: "n@far" in near.remotes, "its service to be known")
            fox, wolf = near.neighbours["fox"], near.neighbours["wolf"]
            await until(lambda: "n@far" in fox.offers and "n@far" in wolf.conflicts, "their service to be known")
            assert near.remotes["n@far"].via == "fox"
            here.registry.remove_link("fox")
            await near.reload_links()
            assert near.remotes["n@far"].via == "wolf"
            near.hold("me", "n@far", Filter("n > 7", SCHEMA))
            inbox = wire.Inbox(sockets[1])
            async with asyncio.timeout(20):
                while (heard := await inbox.message())["type"] != "update":
                    pass
            assert [each["filter"] for each in heard["add"]] == ["n > 7"]
            for socket in sockets:
                await socket.close("")

    asyncio.run(run())


async def come(to: Side, name: str) -> tuple[Dialled, wire.Inbox]:
    """Dial a broker that knows us, and prove it."""
    socket = await dial(f"http://127.0.0.1:{to.port}", LinkSettings(name))
    await proof.introduce(socket, name, to.name, SECRET)
    return socket, wire.Inbox(socket)


async def say(socket: Dialled, message: dict[str, Any]) -> None:
    for frame in wire.control(message):
        await socket.send(frame)


def test_reconnected_neighbour_gets_missed_steps_before_resume(tmp_path: Path) -> None:
    """Otherwise it would use the filters of the time when the link broke, and skip later events."""

    async def run() -> None:
        here = Side(tmp_path, "here", silence_timeout_s=20.0)
        async with here.running() as near:
            here.registry.add_link("wolf", None, SECRET)
            await near.reload_links()
            socket, _ = await come(here, "wolf")
            await say(socket, {"type": "offers", "services": [offered(Service("n", ("raw",)), SCHEMA, "wolf")]})
            await until(lambda: "n@wolf" in near.remotes, "its service to be known")
            near.hold("me", "n@wolf", Filter("n > 7", SCHEMA))
            await socket.close("")
            await until(lambda: near.neighbours["wolf"].state == "down", "the link to be down")
            socket, inbox = await come(here, "wolf")
            await say(socket, {"type": "hello", "tables": {}, "paths": [["wolf"]]})
            heard: list[str] = []
            while "resume" not in heard:
                heard.append((await inbox.message())["type"])
            assert "table" in heard or "update" in heard
            await socket.close("")

    asyncio.run(run())


def _has(found: list[ServerConnection], count: int) -> bool:
    return len(found) >= count


def test_socket_without_proof_of_identity_is_closed(tmp_path: Path) -> None:
    """Also after a timeout, and if the broker ends during the handshake."""

    async def run() -> None:
        dialled: list[ServerConnection] = []

        async def answer(connection: ServerConnection) -> None:
            dialled.append(connection)
            await connection.wait_closed()

        async with serve(answer, "127.0.0.1", 0, subprotocols=[Subprotocol(SUBPROTOCOL)]) as server:
            url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
            for name, handshake_timeout_s in (("hasty", 0.1), ("patient", 120.0)):
                here = Side(tmp_path, name, handshake_timeout_s=handshake_timeout_s)
                here.registry.add_link("wolf", url, SECRET)
                tries = len(dialled) + (3 if name == "hasty" else 1)
                async with here.running():
                    await until(partial(_has, dialled, tries), "it to be dialled")
                for each in dialled:
                    async with asyncio.timeout(60):
                        await each.wait_closed()

    asyncio.run(run())


def test_session_of_a_neighbour_that_does_not_read_ends_on_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has dialled reads nothing: its session has an end all the same when the broker has."""
    monkeypatch.setattr(supervisor, "CLOSE_TIMEOUT_S", 0.05)

    async def run() -> None:
        here = Side(tmp_path, "here", silence_timeout_s=60.0)
        async with here.running() as near:
            here.registry.add_link("wolf", None, SECRET)
            await near.reload_links()
            socket, _ = await come(here, "wolf")
            await until(lambda: near.neighbours["wolf"].session is not None, "the link")
            session = near.neighbours["wolf"].session
            assert session is not None
            for _ in range(20):
                session.send({"type": "offers", "services": ["x" * 2_000_000]})
            await near.close()
            assert near.neighbours["wolf"].session is None
            await socket.close("")

    asyncio.run(run())


def test_silent_neighbour_is_disconnected(tmp_path: Path) -> None:
    async def run() -> str | None:
        here = Side(tmp_path, "here", silence_timeout_s=0.2)
        there = Side(tmp_path, "there", has_service=True, heartbeat_interval_s=60.0)
        async with there.running(), here.running():
            await linked(here, there)
            await until(lambda: here.federation.neighbours["there"].state == "down", "it to be given up")
            return here.federation.neighbours["there"].problem

    assert asyncio.run(run()) == "nothing was heard for 0.2 s"


def test_coarse_link_sends_unrequested_events_until_receiver_drops_too_many(tmp_path: Path) -> None:
    async def run() -> None:
        here, there = Side(tmp_path, "here"), Side(tmp_path, "there", has_service=True, adaptive=FICKLE)
        async with there.running() as far, here.running() as near:
            await linked(here, there)
            near.hold("me", "numbers@there", Filter("n < 40", SCHEMA))
            await until(lambda: has_begun(there, "here"), "it to be asked for")
            policy = far.broker.link("here").filter_policies()["numbers@there"]
            there.append(*range(30))
            await until(lambda: policy.is_coarse, "it to coarsen: all is wanted")
            there.append(*range(30, 100))
            await until(lambda: not policy.is_coarse, "it to tighten: much is dropped")
            there.append(*range(100, 110))
            await until(lambda: policy.figures.dropped + policy.figures.stopped == 70, "all to be looked at")
            assert here.mirrored("numbers@there") == list(range(40))
            figures = near.neighbours["there"].figures()
            assert (figures.received, figures.dropped, figures.repeated) == (40, policy.figures.dropped, 0)
            assert far.neighbours["here"].figures().stopped == policy.figures.stopped >= 10
            assert (policy.figures.coarsened, policy.figures.tightened) == (1, 1)

    asyncio.run(run())


def test_subscriber_on_a_coarse_link_misses_no_event(tmp_path: Path) -> None:
    """Also two brokers away: only events that no subscriber behind the link wants on arrival are dropped."""

    async def run() -> None:
        always = AdaptiveSettings(crossing_s=0.0, window=10, max_dropped_share=1.0)
        here, middle = Side(tmp_path, "here", adaptive=always, linger_s=0.01), Side(tmp_path, "middle", adaptive=always)
        there = Side(tmp_path, "there", has_service=True, adaptive=always)
        async with there.running() as far, middle.running() as between, here.running() as near:
            middle.link(there)
            await far.reload_links()
            await between.reload_links()
            await linked(here, middle)
            near.hold("few", "numbers@there", Filter("n < 10", SCHEMA))
            between.hold("odd", "numbers@there", Filter("n = 11", SCHEMA))
            await until(lambda: has_begun(there, "middle") and has_begun(middle, "here"), "it to be asked for")
            await until(lambda: asked_of(there, "middle") == {"n < 10", "n = 11"}, "both to be asked for")
            there.append(*range(20))
            await until(lambda: middle.mirrored("numbers@there") == [*range(10), 11], "what somebody wants")
            await until(lambda: here.mirrored("numbers@there") == [*range(10)], "what somebody wants at the end")
            policy = far.broker.link("middle").filter_policies()["numbers@there"]
            assert policy.is_coarse
            sent = 20
            for n in range(6):  # each is there as soon as it is known at the origin, while all the time events come
                wanted = f"n = {1_000 + n}"
                near.hold(n, "numbers@there", Filter(wanted, SCHEMA))
                while wanted not in asked_of(there, "middle"):
                    there.append(sent)
                    sent += 1
                    await asyncio.sleep(0)
                there.append(1_000 + n)
            await until(lambda: here.mirrored("numbers@there")[10:] == [*range(1_000, 1_006)], "all of them")
            assert middle.mirrored("numbers@there") == [*range(10), 11, *range(1_000, 1_006)]
            assert policy.is_coarse

    asyncio.run(run())


def asked_of(side: Side, by: str, service: str = "numbers@there") -> set[str]:
    """Return the filters that a neighbour has requested from a broker."""
    return {each.text for each in side.federation.broker.link(by).routes(service).values()}


def test_removing_a_filter_that_covers_hundreds_does_not_block_the_loop(tmp_path: Path) -> None:
    async def run() -> None:
        here, there = Side(tmp_path, "here", linger_s=0.01), Side(tmp_path, "there", has_service=True)
        async with there.running() as far, here.running() as near:
            await linked(here, there)
            near.hold("all", "numbers@there", None)
            narrow = {f"n = {n}" for n in range(300)}
            for each in narrow:
                near.hold(each, "numbers@there", Filter(each, SCHEMA))
            await until(lambda: len(asked_of(there, "here")) == 1, "the wide one to be asked for alone")
            near.release("all")
            meanwhile = await turns(near)
            await until(lambda: asked_of(there, "here") == narrow, "what it covered to take its place")
            assert meanwhile > 300 / 8 / 2, "the loop was held up"
            assert not near.broker.pending
            near.hold("all", "numbers@there", None)
            await until(lambda: len(asked_of(there, "here")) == 1, "the wide one to be asked for alone")
            assert not near.broker.pending
            state = far.broker.link("here").states()["numbers@there"]
            await until(lambda: kept(there, "here", "numbers@there") == state.version, "it to be kept")

    asyncio.run(run())


def test_large_table_does_not_block_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are filters read, or matchers made, where everything else would wait for it."""
    threads: set[str] = set()

    class Noted(Matcher):
        def __init__(self, schema: Schema) -> None:
            threads.add(current_thread().name)
            super().__init__(schema)

    monkeypatch.setattr(record_matcher, "Matcher", Noted)

    async def run() -> None:
        here = Side(tmp_path, "here", silence_timeout_s=60.0)
        async with here.running() as near:
            for name in ("wolf", "sheep"):
                here.registry.add_link(name, None, SECRET)
            await near.reload_links()
            (wolf, heard), (sheep, _) = await come(here, "wolf"), await come(here, "sheep")
            await say(wolf, {"type": "offers", "services": [offered(Service("n", ("raw",)), SCHEMA, "wolf")]})
            for name, socket in (("wolf", wolf), ("sheep", sheep)):
                await say(socket, {"type": "hello", "tables": {}, "paths": [[name]]})
            await say(sheep, {"type": "resume", "services": {}})
            await until(lambda: "n@wolf" in near.remotes, "its service to be known")
            entries = tuple(RouteEntry(n, Filter(f"n = {n}", SCHEMA)) for n in range(1, 401))
            await say(sheep, to_json(RouteTable("n@wolf", TableState().after(entries, (), 1), entries)))
            assert await turns(near) > 400 / MAX_STEP_FILTERS / 2, "the loop was held up"
            asked: list[str] = []
            while len(asked) < 400:
                said = await heard.message()
                asked += [each["filter"] for each in said.get("add", said.get("entries", []))]
            assert asked == [str(each.filter) for each in entries]
            await until(lambda: bool(threads), "a matcher")
            assert current_thread().name not in threads
            await wolf.close("")
            await sheep.close("")

    asyncio.run(run())


async def turns(federation: Federation) -> int:
    """Return how often the event loop ran while a broker had work to do."""
    found = 0
    async with asyncio.timeout(120):
        while not found or federation.broker.pending:
            found += federation.broker.pending
            await asyncio.sleep(0)
    return found


def kept(side: Side, of: str, service: str) -> int:
    """The version of a neighbour's table that is in a registry."""
    document = side.registry.link_states(of).get(("routes", service), '{"version": 0}')
    return int(orjson.loads(document)["version"])


async def begun_in_a_line(here: Side, middle: Side, there: Side) -> None:
    """Link three that run; the first has ten events of the last."""
    middle.link(there)
    await there.federation.reload_links()
    await middle.federation.reload_links()
    await linked(here, middle)
    here.federation.hold("me", "numbers@there", Filter("n < 500", SCHEMA))
    await until(lambda: has_begun(there, "middle") and has_begun(middle, "here"), "it to be asked for")
    there.append(*range(10))
    await until(lambda: len(here.mirrored("numbers@there")) == 10, "the first events")


@pytest.mark.parametrize("which", ["here", "middle"])
def test_restarted_broker_resumes_where_it_was(tmp_path: Path, which: str) -> None:
    """Of its neighbours it knows at once what they had asked for, though they come back later."""

    async def run() -> None:
        here, middle = Side(tmp_path, "here"), Side(tmp_path, "middle")
        there = Side(tmp_path, "there", has_service=True)
        sides = {"here": here, "middle": middle}
        async with there.running():
            lives = {name: each.running() for name, each in sides.items()}
            for life in lives.values():
                await life.__aenter__()
            await begun_in_a_line(here, middle, there)
            await lives[which].__aexit__(None, None, None)
            there.append(*range(10, 20))
            lives[which] = sides[which].running()
            await lives[which].__aenter__()
            there.append(*range(20, 30))
            await until(lambda: len(here.mirrored("numbers@there")) >= 30, "all events")
            assert here.mirrored("numbers@there") == list(range(30))
            for life in lives.values():
                await life.__aexit__(None, None, None)

    asyncio.run(run())


@pytest.mark.parametrize(("asks", "offers"), [("a", "z"), ("z", "a")])
def test_restored_filters_are_typed_by_offers_of_other_links(tmp_path: Path, asks: str, offers: str) -> None:
    """Whichever of them is read first: by their letters `kind > 'APE'` would cover the other, which it does not."""
    schema = Schema({"kind": Enum("TRAM", "BUS", "APE")})
    filters = [Filter(f"kind > '{each}'", schema) for each in ("APE", "TRAM")]

    async def run() -> None:
        middle = Side(tmp_path, "middle")
        for each in (asks, offers):
            middle.registry.add_link(each, None, SECRET, transit=["far"])
        entries = tuple(RouteEntry(n, each) for n, each in enumerate(filters))
        table = to_json(RouteTable("kinds@far", TableState(2, sum(each.digest for each in entries) % 2**128), entries))
        middle.registry.save_link_states(asks, {("routes", "kinds@far"): orjson.dumps(table).decode()})
        offer = [offered(Service("kinds", ("raw",)), schema, "far")]
        middle.registry.save_link_states(offers, {("offers", ""): orjson.dumps(offer).decode()})
        async with middle.running() as federation:
            broker = federation.broker
            assert list(broker.link(asks).routes("kinds@far").values()) == filters
            broker.connect(offers)
            assert filters[1] in broker.link(offers).requested("kinds@far").values()

    asyncio.run(run())


@pytest.mark.parametrize("how", ["expired", "made anew"])
def test_events_lost_at_origin_are_a_gap_at_every_broker(tmp_path: Path, how: str) -> None:
    async def run() -> None:
        here, middle = Side(tmp_path, "here"), Side(tmp_path, "middle")
        there = Side(tmp_path, "there", has_service=True)
        async with there.running(), here.running():
            async with middle.running():
                await begun_in_a_line(here, middle, there)
            for n in range(10, 200):
                there.append(n)
            if how == "expired":
                assert there.log.expire("numbers", RetentionLimits(size_bytes=2_000))
            else:
                there.log.delete("numbers")
                there.log.create("numbers")
                there.append(*range(190, 200))
            async with middle.running():
                await until(lambda: 199 in here.mirrored("numbers@there"), "what is left")
                for side in (middle, here):
                    found = side.mirrored("numbers@there")
                    assert found == [*range(10), *range(210 - len(found), 200)]
                    assert len(found) < 150
                    assert side.gaps("numbers@there") == 1
                there.append(200)
                await until(lambda: 200 in here.mirrored("numbers@there"), "what comes")
                assert here.gaps("numbers@there") == 1
                assert there.federation.neighbours["middle"].figures().gaps >= 1
                assert here.federation.neighbours["middle"].figures().repeated == 0

    asyncio.run(run())


async def pass_on_and_begin_again(here: Side, there: Side) -> None:
    """Events cross, the receiver begins again, what came meanwhile follows, each once; then history is asked for."""
    async with there.running():
        async with here.running():
            await linked(here, there)
            wanted = Filter("n < 50", SCHEMA)
            here.federation.hold("me", "numbers@there", wanted)
            await until(lambda: here.federation.sync_point("numbers@there", wanted) is not None, "where it begins")
            there.append(*range(10))
            await until(lambda: here.mirrored("numbers@there") == list(range(10)), "the first events")
        there.append(*range(10, 60))
        async with here.running() as near:
            await until(lambda: len(here.mirrored("numbers@there")) >= 50, "what came meanwhile")
            assert here.mirrored("numbers@there") == list(range(50))
            await until(lambda: near.sync_point("numbers@there", Filter("n < 50", SCHEMA)) is not None, "its beginning")
            page = await near.read_history("numbers@there", Filter("n > 54", SCHEMA), history.BEGINNING, None)
            assert [orjson.loads(record)["n"] for record in page.records] == list(range(55, 60))


@pytest.mark.postgres
def test_links_are_stored_in_postgresql(tmp_path: Path, postgres: str) -> None:
    registries = [open_registry(stores.new_schema(postgres)) for _ in range(2)]
    here = Side(tmp_path, "here", registry=registries[0])
    there = Side(tmp_path, "there", has_service=True, registry=registries[1])
    asyncio.run(pass_on_and_begin_again(here, there))
    for each in registries:
        each.close()


@pytest.mark.kafka
@pytest.mark.parametrize("which", ["here", "there"])
def test_mirrors_and_services_work_on_kafka(tmp_path: Path, kafka: str, which: str) -> None:
    def log(name: str) -> KafkaLog | None:
        return KafkaLog(kafka, prefix=f"links.{which}.", check_s=0.1) if name == which else None

    logs = [log("here"), log("there")]
    here = Side(tmp_path, "here", log=logs[0], silence_timeout_s=20.0)
    there = Side(tmp_path, "there", has_service=True, log=logs[1], silence_timeout_s=20.0)
    asyncio.run(pass_on_and_begin_again(here, there))
    for each in logs:
        if each is not None:
            each.close()


def test_only_one_gateway_of_a_broker_holds_the_links(tmp_path: Path) -> None:
    async def run() -> None:
        here, there = Side(tmp_path, "here"), Side(tmp_path, "there", has_service=True)
        async with there.running(), here.running() as first:
            await linked(here, there)
            here.port = 0
            async with here.running() as second:
                assert second.neighbours["there"].dialling is None
                await first.close()
                await asyncio.gather(second.reload_links(), second.reload_links())
                dialling = [each for each in asyncio.all_tasks() if "_keep_dialled" in repr(each.get_coro())]
                assert dialling == [second.neighbours["there"].dialling]
                await until(lambda: "numbers@there" in second.remotes, "the other to take over")
                second.hold("me", "numbers@there", None)
                await until(lambda: has_begun(there, "here"), "it to be asked for")
                there.append(1)
                await until(lambda: here.mirrored("numbers@there") == [1], "an event")

    asyncio.run(run())
