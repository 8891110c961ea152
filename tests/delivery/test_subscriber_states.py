"""Subscribers take exactly the transitions that `docs/subscriber-states.md` draws."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from tests.delivery.sinks import Recording
from tests.delivery.test_hub import Truth, hub_on, run, subscriber, until
from tidegate.delivery.subscriber import TRANSITIONS, LaneMembership, Subscriber, SubscriberState
from tidegate.logs import SegmentLog

DOCUMENT = Path(__file__).parents[2] / "docs" / "subscriber-states.md"
CHOICE = "route"


def drawn_edges() -> set[tuple[str, str]]:
    (diagram,) = re.findall(r"```mermaid\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    return set(re.findall(r"^ *(\S+) --> ([^\s:]+)", diagram, re.MULTILINE))


def test_diagram_draws_exactly_the_allowed_transitions() -> None:
    edges = drawn_edges()
    sources = {source for source, target in edges if target == CHOICE}
    targets = {target for source, target in edges if source == CHOICE}
    direct = {(source, target) for source, target in edges if not {source, target} & {CHOICE, "[*]"}}
    allowed = {(state.name, after.name) for state, following in TRANSITIONS.items() for after in following}
    assert direct | set(product(sources, targets)) == allowed - {("GONE", "GONE")}
    assert {(source, target) for source, target in edges if "[*]" in (source, target)} == {
        ("[*]", subscriber("s", "", Recording(), None).state.name),
        ("GONE", "[*]"),
    }


@pytest.mark.parametrize(("before", "after"), list(product(SubscriberState, SubscriberState)))
def test_enter_accepts_only_allowed_transitions(before: SubscriberState, after: SubscriberState) -> None:
    entering = subscriber("s", "", Recording(), None)
    entering.state = before
    if after in TRANSITIONS[before]:
        entering.enter(after)
        assert entering.state is after
    else:
        with pytest.raises(AssertionError, match=f"no transition from {before.name} to {after.name}"):
            entering.enter(after)
        assert entering.state is before


def test_full_sink_sends_live_subscriber_back_to_catching_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[SubscriberState] = []
    enter = Subscriber.enter

    def record(self: Subscriber, state: SubscriberState, membership: LaneMembership | None = None) -> None:
        enter(self, state, membership)
        entered.append(state)

    monkeypatch.setattr(Subscriber, "enter", record)

    async def work() -> None:
        log = SegmentLog(tmp_path / "log")
        log.create("gps", ["a.0", "b.0"])
        truth = Truth(log)
        async with hub_on(log) as hub:
            sink = Recording(room_for=5)
            reader = subscriber("s", "", sink, log.begin("gps"))
            hub.subscribe(reader)
            await until(lambda: reader.state is SubscriberState.LIVE, "the subscriber to be live")
            truth.append("a.0", 5)
            await until(lambda: reader.state is SubscriberState.CATCHING_UP, "the sink to be full")
            sink.room_for = 1_000
            sink.make_room()
            await until(lambda: reader.state is SubscriberState.LIVE, "the subscriber to be live again")
            hub.unsubscribe(reader)
        log.close()

    run(work())
    catching_up, joining, live = SubscriberState.CATCHING_UP, SubscriberState.JOINING, SubscriberState.LIVE
    assert entered == [catching_up, joining, live, catching_up, joining, live, SubscriberState.GONE]
