"""The parts of a link, each alone: frames, proofs, records, mirrors, needs."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import FederationError, LinkRefused, LogError
from tidegate.federation.link import LinkSettings, history, proof, session, wire
from tidegate.federation.link.coverage import SyncPoint, SyncPoints, at_origin
from tidegate.federation.link.forwarder import Supply
from tidegate.federation.link.mirror import Mirror, Progress
from tidegate.federation.link.needs import Needs
from tidegate.federation.link.offers import offered, read_offer
from tidegate.federation.link.record_matcher import RecordMatcher
from tidegate.federation.link.records import origin_position, with_metadata
from tidegate.filters import Filter
from tidegate.logs import Cursor, Gap, RetentionLimits, SegmentLog
from tidegate.logs.gap_records import SYNC_RECORD, GapRecord, parse_gap_record, with_gaps
from tidegate.logs.kafka import generation_of
from tidegate.model import Schema
from tidegate.services import Service

SCHEMA = Schema({"speed": "float64", "vid": "string"})
SECRET = "a secret that both ends of a link know"


class Pipe:
    """A socket whose other end is another."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: Pipe = self
        self.said: list[bytes] = []

    async def send(self, data: bytes) -> None:
        self.said.append(data)
        self.other.inbox.put_nowait(data)

    async def receive(self) -> bytes:
        found = await self.inbox.get()
        if found is None:
            raise wire.LinkClosed("closed")
        return found

    async def close(self, reason: str) -> None:
        del reason
        self.other.inbox.put_nowait(None)


def pipes() -> tuple[Pipe, Pipe]:
    a, b = Pipe(), Pipe()
    a.other, b.other = b, a
    return a, b


@given(st.binary(max_size=100), st.integers(0, 3))
def test_message_of_any_size_is_joined_from_its_frames(body: bytes, parts: int) -> None:
    whole = body + b"x" * (wire.PART_BYTES * parts)

    async def carried() -> tuple[bytes, bytes]:
        here, there = pipes()
        for frame in wire.frames(wire.EVENTS, whole):
            assert len(frame) <= wire.PART_BYTES + 1
            await here.send(frame)
        return await wire.Inbox(there).next()

    assert asyncio.run(carried()) == (wire.EVENTS, whole)


@pytest.mark.parametrize(
    ("read", "body", "problem"),
    [
        (wire.read_control, b"{", "expected a message in JSON, not b'{'"),
        (wire.read_control, b"[1]", "expected a message with a type, not b'[1]'"),
        (
            wire.read_events,
            b'{"a":1}\n{}',
            """expected events with their service and cursor, not b'{"a":1}'""",
        ),
        (origin_position, b'{"_id":"1"}', """expected a record with its position at its origin, not b'{"_id":"1"}'"""),
    ],
)
def test_malformed_message_is_refused(read: Any, body: bytes, problem: str) -> None:
    with pytest.raises(FederationError) as error:
        read(body)
    assert str(error.value) == problem


def shaken(secrets: tuple[str, str | None], names: tuple[str, str] = ("a", "b"), entry: str | None = None) -> list[str]:
    """Return the result of a handshake at both ends. Checks that the secret was not sent."""

    def may_enter(name: str) -> None:
        if entry is not None:
            raise FederationError(f"{entry} {name}")

    async def run() -> list[str]:
        here, there = pipes()
        dials = proof.introduce(here, "a", names[1], secrets[0])
        answers = proof.admit(there, "b", lambda _: secrets[1], may_enter)
        found = await asyncio.gather(dials, answers, return_exceptions=True)
        assert not any(SECRET.encode() in said for said in (*here.said, *there.said))
        return [str(each) for each in found]

    return asyncio.run(run())


def test_both_ends_prove_their_identity() -> None:
    stranger = "there is no link between 'a' and 'b' here, or the secrets differ"
    assert shaken((SECRET, SECRET)) == ["None", "a"]
    assert shaken((SECRET, SECRET + "?")) == [f"b refuses the link: {stranger}", stranger]
    assert shaken((SECRET, None)) == [f"b refuses the link: {stranger}", stranger]
    assert shaken((SECRET, SECRET), ("a", "c"))[1] == stranger.replace("'b'", "'c'")
    assert shaken((SECRET, SECRET), entry="not you,")[0] == "b refuses the link: not you, a"


def test_handshake_refusal_carries_the_loop() -> None:
    def refuse(_: str) -> None:
        raise LinkRefused(("b", "a", "c", "b"), "c")

    async def run() -> tuple[object, object]:
        here, there = pipes()
        dials = proof.introduce(here, "a", "b", SECRET)
        answers = proof.admit(there, "b", lambda _: SECRET, refuse)
        return await asyncio.gather(dials, answers, return_exceptions=True)

    at_dialler, at_acceptor = asyncio.run(run())
    assert isinstance(at_dialler, proof.LoopRefused)
    assert at_dialler.loop == ("b", "a", "c", "b")
    assert str(at_dialler) == ("b refuses the link: a link from b to a would close a loop: b - a - c - b, as c says")
    assert isinstance(at_acceptor, LinkRefused)
    assert isinstance(pickle.loads(pickle.dumps(at_dialler)), proof.LoopRefused)


def test_replayed_proof_is_refused() -> None:
    async def run() -> list[str]:
        here, there = pipes()
        await asyncio.gather(
            proof.introduce(here, "a", "b", SECRET), proof.admit(there, "b", lambda _: SECRET, lambda _: None)
        )
        again, fresh = pipes()
        for said in here.said:
            await again.send(said)
        (found,) = await asyncio.gather(
            proof.admit(fresh, "b", lambda _: SECRET, lambda _: None), return_exceptions=True
        )
        return [str(found)]

    assert asyncio.run(run()) == ["there is no link between 'a' and 'b' here, or the secrets differ"]


def record(n: int, generation: str = "g1") -> bytes:
    return b'{"_id":"%d","_src":"gps@a/%s/p%d:%d","speed":1.0}' % (n, generation.encode(), n % 2, n * 10)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.sampled_from(["", "keep", "kill"])), max_size=12))
def test_mirror_has_each_event_once_after_repeated_sends(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, str]]
) -> None:
    """Events are repeated from random positions; the mirror is saved and reopened at random times."""
    log = SegmentLog(tmp_path_factory.mktemp("log"))
    kept: Progress | None = None
    mirror, end = Mirror(log, "gps@a"), 0
    for back, count, then in steps:
        first = max(0, end - back)
        end = max(end, first + count)
        mirror.append([record(n) for n in range(first, end)], "there")
        if then == "keep":
            kept = Progress.from_json(mirror.progress().to_json())
        elif then == "kill":
            mirror = Mirror(log, "gps@a", kept)
    found = log.read("gps@a", log.begin("gps@a"), 1_000).records if end else ()
    assert sorted(found) == sorted(record(n) for n in range(end))
    log.close()


def test_mirror_follows_a_recreated_origin_stream(tmp_path: Path) -> None:
    mirror = Mirror(SegmentLog(tmp_path), "gps@a")
    assert mirror.append([record(4), record(5)], "") == (2, 0, 0, 0)
    assert mirror.append([record(0, "g2"), record(0, "g2")], "") == (1, 0, 1, 0)
    assert mirror.marks == {"gps@a/g1/p1": 50, "gps@a/g2/p0": 0}


def test_mirror_skips_unrequested_events(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    mirror = Mirror(log, "gps@a")
    some = [record(n) for n in range(6)]
    assert mirror.append(some, "", lambda given: [n for n in range(len(given)) if n % 3 == 0]) == (2, 4, 0, 0)
    assert mirror.marks == {"gps@a/g1/p0": 40, "gps@a/g1/p1": 50}
    assert mirror.append(some, "") == (0, 0, 6, 0)  # what was passed over does not come again
    assert sorted(log.read("gps@a", log.begin("gps@a"), 10).records) == [some[0], some[3]]


def test_mirror_closed_while_matching_appends_before_it_reports_progress(
    tmp_path: Path,
) -> None:
    log = SegmentLog(tmp_path)
    mirror = Mirror(log, "gps@a")
    are_judged, may_go_on = Event(), Event()

    def judge(records: Sequence[bytes]) -> range:
        are_judged.set()
        may_go_on.wait(20)
        return range(len(records))

    with ThreadPoolExecutor(2) as threads:
        added = threads.submit(mirror.append, [record(0)], "there", judge)
        are_judged.wait(20)
        closed = threads.submit(mirror.close)
        may_go_on.set()
        assert added.result() == (1, 0, 0, 0)
        assert closed.result().marks == {"gps@a/g1/p0": 0}
    with pytest.raises(LogError, match="the mirror 'gps@a' is closed"):
        mirror.append([record(2)], "there", lambda _: pytest.fail("it was judged"))
    assert log.read("gps@a", log.begin("gps@a"), 10).records == (record(0),)
    log.close()


def test_lost_events_are_one_gap_record_in_a_mirror(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    mirror = Mirror(log, "gps@a")
    lost = GapRecord("gps@a/g1/p0", 10, 40)
    assert mirror.append([record(0), lost.encode(), record(4)], "", lambda _: []) == (0, 2, 0, 0)
    assert mirror.append([lost.encode(), record(2), record(6)], "") == (1, 0, 1, 0)
    assert Mirror(log, "gps@a").marks == mirror.marks == {"gps@a/g1/p0": 60}
    read = with_gaps(log.read("gps@a", log.begin("gps@a"), 10))
    assert read.records == (record(6),)
    assert read.gaps == (Gap("p0", 10, 40, at_origin=True),)
    anew = GapRecord("gps@a/g2/p0", 0, 0).encode()
    assert mirror.append([anew, record(0, "g2"), anew], "") == (1, 0, 0, 0)
    assert len(with_gaps(log.read("gps@a", log.begin("gps@a"), 10)).gaps) == 2
    log.close()


@pytest.mark.parametrize(
    "said",
    [
        b'{"_gap":["gps@a/g1/0",9,3]}',
        b'{"_gap":["gps@a/g1/0",0,1e30]}',
        b'{"_gap":["gps@a/g1/0",0,9223372036854775808]}',
        b'{"_gap":["gps@a/g1/0",true,3]}',
        b'{"_gap":["gps",1,2]}',
        b'{"_gap":7}',
        b'{"_gap":',
    ],
)
def test_malformed_gap_record_is_refused(said: bytes) -> None:
    with pytest.raises(LogError, match=re.escape(f"expected a gap record, not {said!r}")):
        parse_gap_record(said)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a b@c", "expected a name of letters, digits, _ . and -, at most 64, the first a letter or digit, not 'a b'"),
        ("@c", "expected a name of letters, digits, _ . and -, at most 64, the first a letter or digit, not ''"),
        ("x@y@z", "expected a broker's name of letters, digits, _ and -, at most 40, not 'y@z'"),
        ("x", "expected a broker's name of letters, digits, _ and -, at most 40, not ''"),
    ],
)
def test_invalid_offer_is_refused(name: str, problem: str) -> None:
    said = offered(Service("gps", ("raw",)), SCHEMA, "city")
    assert read_offer(said, "city").service.name == "gps@city"
    with pytest.raises(FederationError, match="expected a service of 'wolf', not ") as caught:
        read_offer({**said, "name": name}, "wolf")
    assert problem in str(caught.value)


TEXTS = st.sampled_from([None, "speed > 3", "speed < 2", "vid = 'B'", "vid = 'bus'~"])


@given(st.lists(st.tuples(st.integers(0, 5), TEXTS)))
def test_record_matcher_matches_all_records_while_a_filter_is_not_evaluable(steps: list[tuple[int, Any]]) -> None:
    matcher = RecordMatcher(SCHEMA, frozenset({"vid"}))
    events = [{"speed": float(n), "vid": "B"} for n in range(6)]
    entries: dict[int, Filter] = {}
    for number, text in steps:
        entries = {other: filter_ for other, filter_ in entries.items() if other != number}
        if text is not None:
            entries[number] = Filter(text, SCHEMA)
        matcher.set_filters(entries)
    matches_all = any(filter_.tree.is_semantic for filter_ in entries.values())
    visible = [{"speed": event["speed"]} for event in events]
    expected = [
        n for n, event in enumerate(visible) if matches_all or any(each.matches(event) for each in entries.values())
    ]
    assert list(matcher.match([orjson.dumps(event) for event in events])) == expected
    assert matcher.matches_all == matches_all
    matcher.close()


def test_neighbour_that_does_not_read_is_disconnected_at_the_outbox_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are not counted: they wait to be taken."""
    monkeypatch.setattr(session, "MAX_WAITING_BYTES", 1_000)
    monkeypatch.setattr(session, "DRAIN_TIMEOUT_S", 0.0)

    class Deaf(Pipe):
        async def send(self, data: bytes) -> None:
            del data
            await asyncio.Event().wait()

    async def nothing(*_: Any) -> None:
        pass

    async def run() -> str:
        link = session.Session(Deaf(), LinkSettings("a"))
        for _ in range(10):
            link.send_events({"service": "x", "cursor": ""}, [b"x" * 500])
        for n in range(3):
            assert not link._closing.done(), n
            link.send_events({"service": "x", "cursor": "", "history": n}, [b"x" * 500])
        return await link.run(nothing, nothing, lambda: None)

    assert asyncio.run(run()) == "1,000 bytes wait, and the other end reads none"


def test_message_before_authentication_has_a_small_limit() -> None:
    class Stranger:
        async def send(self, data: bytes) -> None:
            self.heard = data

        async def receive(self) -> bytes:
            return wire.PART + b"x" * 5_000

        async def close(self, reason: str) -> None:
            raise AssertionError(reason)

    async def run() -> None:
        await proof.admit(Stranger(), "a", lambda _: None, lambda _: None)

    with pytest.raises(FederationError, match="expected a message of at most 4,096 bytes over a link"):
        asyncio.run(run())


def test_hidden_attributes_are_removed_from_sent_records() -> None:
    event = {"_id": "1", "_src": "x/0:1", "speed": 1.5, "vid": "B", "_violations": {"vid": "B"}}
    made = with_metadata(b"", event, "gps@a/g/0:7", frozenset({"vid"}))
    assert made == b'{"_id":"1","_src":"gps@a/g/0:7","speed":1.5}'
    assert origin_position(made) == ("gps@a/g/0", "0", 7)


def test_record_of_any_topic_has_its_origin_position() -> None:
    source = f"gps@a/{generation_of('vlxYj7T0RT2v+DjBI/f7aw')}/0"
    assert origin_position(with_metadata(b'{"_id":"1"}', None, f"{source}:7", frozenset())) == (source, "0", 7)


@given(st.integers(0, 40), st.integers(0, 10), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_history_and_mirror_join_without_gap_or_repeat(
    tmp_path_factory: pytest.TempPathFactory, before: int, early: int, takes: list[int]
) -> None:
    """Pages of history, left at any event and come back to, then the mirror, which may have begun earlier."""
    log = SegmentLog(tmp_path_factory.mktemp("log"))
    log.create("gps", ["p0", "p1"])
    for n in range(before):
        log.append("gps", f"p{n % 2}", [b'{"_id":"%d","speed":%d.0}' % (n, n)])
    until = log.end("gps")
    for n in range(before, before + 10):
        log.append("gps", f"p{n % 2}", [b'{"_id":"%d","speed":%d.0}' % (n, n)])
    supply = Supply("gps@a", "gps", SCHEMA)
    whole = history.read_page(log, supply, None, history.BEGINNING, log.end("gps")).records
    number = {each: int(orjson.loads(each)["_id"]) for each in whole}
    Mirror(log, "gps@a").append([each for each in whole if number[each] >= before - early], "")
    found: list[bytes] = []
    place = history.BEGINNING
    for take in itertools.cycle(takes):
        page = history.read_page(log, supply, Filter("speed >= 0", SCHEMA), place, until)
        found += page.records[:take]
        if take < len(page.records):
            place = Cursor.from_text(history.cursors_after(page, take)[-1].text)
            continue
        place = page.end
        if page.is_last:
            break
    joint = history.mirrored(log, "gps@a", None, until)
    assert joint is not None
    found += log.read("gps@a", joint, 1_000).records
    assert sorted(number[each] for each in found) == list(range(before + 10))
    log.close()


@given(
    st.lists(st.tuples(st.sampled_from("pq"), st.booleans()), max_size=30),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 40),
)
def test_mirror_position_is_translated_to_origin_position(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[str, bool]], before: int, notes: int, seen: int
) -> None:
    """A mirror has some of the events since it began. Later events after any of its positions are in the history."""
    log = SegmentLog(tmp_path_factory.mktemp("log"))
    log.create("gps", ["p", "q"])
    log.create("gps@a")
    mirror, there = Mirror(log, "gps@a"), log.end("gps")
    joint = None
    for n, (partition, is_wanted) in enumerate(sent):
        if n == min(before, len(sent) - 1):
            joint = SyncPoint(log.end("gps@a"), log.end("gps"))
            there = log.end("gps")
        if n == notes:
            log.append("gps@a", "0", [SYNC_RECORD])
        at = log.end("gps")
        log.append("gps", partition, [b'{"_id":"%d","speed":1.0}' % n])
        if is_wanted:
            (made,) = log.read("gps", at, 1).records
            source = f"gps@a/{at.generation}/{partition}:{at.offsets[partition]}"
            mirror.append([with_metadata(made, None, source, frozenset())], "")
    if joint is None:
        assert at_origin(log, "gps@a", None, log.end("gps@a")) is None
        return
    place, reached = joint.mirror, dict(there.offsets)
    while seen and (read := log.read("gps@a", place, 1)).records:
        place, seen = read.cursor, seen - 1
        if read.records[0] != SYNC_RECORD:
            _, partition, offset = origin_position(read.records[0])
            reached[partition] = offset + 1
    found = at_origin(log, "gps@a", joint, place)
    assert found is not None
    page = history.read_page(log, Supply("gps@a", "gps", SCHEMA), None, found, log.end("gps"))
    whole = log.read("gps", log.begin("gps"), 100)
    behind = [each for each, (p, at) in zip(whole.records, whole.places, strict=True) if at >= reached[p]]
    assert sorted(orjson.loads(each)["_id"] for each in page.records) == sorted(
        orjson.loads(each)["_id"] for each in behind
    )
    log.close()


def test_mirror_position_is_unknown_after_earlier_records_expired(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, segment_bytes=100)
    log.create("gps@a", ["p0", "p1"])
    joint, mirror = SyncPoint(log.end("gps@a"), Cursor("g1", {"p0": 0, "p1": 0})), Mirror(log, "gps@a")
    for n in range(0, 40, 2):
        mirror.append([record(n)], "")
    place = log.end("gps@a")
    assert at_origin(log, "gps@a", joint, place) == Cursor("@g1", {"p0": 381, "p1": 0}, {"p0": 380})
    mirror.append([record(40)], "")
    log.expire("gps@a", RetentionLimits(size_bytes=1))
    assert at_origin(log, "gps@a", joint, place) is None
    log.close()


def test_sync_points_are_kept_from_first_to_newest() -> None:
    joints = SyncPoints()
    assert joints.before(Cursor("g", {"0": 9})) is None
    for n in range(40):
        assert joints.add(SyncPoint(Cursor("g", {"0": n}), Cursor("o", {"0": n * 10})))
    assert not joints.add(SyncPoint(Cursor("g", {"0": 39}), Cursor("o", {"0": 999})))
    again = SyncPoints.from_json(joints.to_json())
    for at, found in ((0, 0), (20, 0), (30, 300), (99, 390)):
        joint = again.before(Cursor("g", {"0": at}))
        assert joint is not None
        assert joint.origin == Cursor("o", {"0": found})
    assert again.before(Cursor("other", {"0": 50})) is None
    assert again.add(SyncPoint(Cursor("new", {"0": 1}), None))
    assert again.before(Cursor("g", {"0": 50})) is None


def test_need_starts_at_its_sync_point_or_that_of_a_covering_need() -> None:
    needs = Needs(lambda *_: None, 10.0)
    fast, faster = Filter("speed > 60", SCHEMA), Filter("speed > 80", SCHEMA)
    needs.hold("x", "gps@a", fast)
    assert needs.without_sync_point("gps@a") == [fast]
    assert needs.sync_point("gps@a", fast) is None
    joint = SyncPoint(Cursor("g", {"0": 1}), None)
    needs.add_sync_point("gps@a", [fast], joint)
    assert (needs.without_sync_point("gps@a"), needs.sync_point("gps@a", faster)) == ([], joint)
    needs.hold("y", "gps@a", faster)
    assert needs.without_sync_point("gps@a") == []
    needs.release("x")
    needs.expire(0)
    needs.expire(10)
    assert (needs.sync_point("gps@a", fast), needs.sync_point("gps@a", faster)) == (None, joint)
    assert {need.filter.text if need else None for need in needs.take_changes().values()} == {None, "speed > 80"}
    assert needs.take_changes() == {}


def test_need_lingers_after_its_last_holder_left() -> None:
    changes: list[tuple[str, str, str | None]] = []
    needs = Needs(lambda *said: changes.append((*said[:2], None if said[2] is None else str(said[2]))), 10.0)
    fast, slow = Filter("speed > 60", SCHEMA), Filter("speed < 9", SCHEMA)
    needs.hold("x", "gps@a", fast)
    needs.hold("y", "gps@a", fast)
    assert changes == [("gps@a", "need-1", "speed > 60")]
    needs.release("x")
    needs.hold("y", "gps@a", slow)
    needs.expire(0)
    needs.expire(9)
    needs.hold("z", "gps@a", fast)
    needs.expire(20)
    assert changes[1:] == [("gps@a", "need-2", "speed < 9")]
    needs.release("z")
    needs.expire(20)
    needs.expire(30)
    assert changes[2:] == [("gps@a", "need-1", None)]
    needs.drop("gps@a")
    assert changes[3:] == [("gps@a", "need-2", None)]
    assert needs.filters() == {}
