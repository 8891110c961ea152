"""A forwarder alone: the batches that it sends, and its replacement by another one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from tidegate.federation.link import forwarder as module
from tidegate.federation.link.forwarder import Forwarder, OutgoingBatch, ResumePoint, Supply
from tidegate.federation.link.neighbour import Neighbour
from tidegate.federation.link.settings import LinkSettings
from tidegate.federation.routes import Adaptive, AdaptiveSettings, TableState
from tidegate.filters import Filter
from tidegate.logs import Cursor, Read, SegmentLog
from tidegate.model import Schema
from tidegate.registry import Link

SCHEMA = Schema({"n": "int64"})
SUPPLY = Supply("numbers@there", "numbers", SCHEMA)
HERE = Link("here", None, "a secret of both ends", None, datetime(2026, 1, 1, tzinfo=UTC))
PATIENCE_S = 20.0
NOBODY = Filter("n < 0", SCHEMA)
ALL = Filter("n >= 0", SCHEMA)


class Watched(SegmentLog):
    """A log of numbers that does something before it is read, and may seem busy."""

    def __init__(self, folder: Path, numbers: int = 0) -> None:
        super().__init__(folder)
        self.before_read: Callable[[], object] = lambda: None
        self.is_busy = False
        self.create("numbers")
        self.put(numbers)

    def put(self, numbers: int) -> None:
        self.append("numbers", "0", [b'{"_id":"%d","n":%d}' % (n, n) for n in range(numbers)])

    def read(self, stream: str, cursor: Cursor, most: int = 1_000) -> Read:
        self.before_read()
        return super().read(stream, cursor, most)

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        """A log elsewhere needs time to say that there is something."""
        return timeout_s > 0 and (super().wait(stream, cursor, timeout_s) or self.is_busy)


class Hands:
    """Confirms each batch at once, or none."""

    def __init__(self, *, are_full: bool = False) -> None:
        self.are_full = are_full
        self.batches: SimpleQueue[OutgoingBatch] = SimpleQueue()
        self.forwarder: Forwarder | None = None

    def forward(
        self, log: SegmentLog, begin: ResumePoint, wanted: Filter = ALL, policy: Adaptive | None = None, **more: Any
    ) -> Forwarder:
        settings = LinkSettings("there", **more)
        self.forwarder = Forwarder(log, SUPPLY, begin, {1: wanted}, TableState(), self.batches.put, settings, policy)
        return self.forwarder

    def next(self) -> OutgoingBatch:
        found = self.batches.get(timeout=PATIENCE_S)
        if self.forwarder is not None and not self.are_full:
            self.forwarder.confirm(len(found.records), 0)
        return found


def ended(forwarder: Forwarder) -> bool:
    forwarder.close()
    forwarder._thread.join(PATIENCE_S)
    return not forwarder._thread.is_alive()


class Contested(Adaptive):
    """A policy that another thread tightens while this one asks about a sample."""

    def sample_of(self, count: int) -> range:
        found = super().sample_of(count)
        self.is_coarse = False
        return found


def test_sampled_batch_is_sent_whole_though_the_link_starts_to_filter(tmp_path: Path) -> None:
    policy, hands = Contested(AdaptiveSettings()), Hands()
    policy.is_coarse = True
    forwarder = hands.forward(Watched(tmp_path, 100), ResumePoint(""), policy=policy)
    assert hands.next().records == []
    found = hands.next()
    assert (len(found.records), found.is_coarse) == (100, True)
    assert ended(forwarder)


@pytest.mark.parametrize("is_coarse", [False, True])
def test_events_are_sent_and_counted_if_a_filter_is_not_evaluable(tmp_path: Path, is_coarse: bool) -> None:
    policy, hands = Adaptive(AdaptiveSettings()), Hands()
    policy.is_coarse = is_coarse
    forwarder = hands.forward(Watched(tmp_path, 100), ResumePoint(""), Filter("kind~ = 'parking'~"), policy)
    assert hands.next().records == []
    found = hands.next()
    assert (len(found.records), found.is_coarse) == (100, False)
    assert ended(forwarder)
    assert (policy.figures.forwarded, policy.figures.asked, policy.is_coarse) == (100, 0, is_coarse)


def test_forwarder_closed_while_reading_reports_nothing_to_policy(tmp_path: Path) -> None:
    log, policy, hands = Watched(tmp_path, 10), Adaptive(AdaptiveSettings()), Hands()
    may_read = threading.Event()
    log.before_read = lambda: may_read.wait(PATIENCE_S)
    forwarder = hands.forward(log, ResumePoint(""), policy=policy)
    hands.next()
    forwarder.close()
    may_read.set()
    assert ended(forwarder)
    assert (policy.figures.forwarded, forwarder.forwarded, hands.batches.empty()) == (0, 0, True)


def test_forwarder_closes_with_unsent_events(tmp_path: Path) -> None:
    hands = Hands(are_full=True)
    forwarder = hands.forward(Watched(tmp_path, 20), ResumePoint(""), max_in_flight=2, batch_events=1)
    hands.next(), hands.next()
    assert ended(forwarder)
    assert hands.batches.empty()


def test_confirming_unsent_batches_does_not_raise_the_limit(tmp_path: Path) -> None:
    log, hands = Watched(tmp_path), Hands(are_full=True)
    forwarder = hands.forward(log, ResumePoint(""), max_in_flight=2, batch_events=1)
    hands.next()
    for _ in range(10):
        forwarder.confirm(0, 0)
    log.put(20)
    hands.next(), hands.next()
    assert forwarder._in_flight._value == 0
    assert ended(forwarder)
    assert hands.batches.empty()


def test_reported_progress_was_sent_to_the_neighbour(tmp_path: Path) -> None:
    """Otherwise it would resume before that position, and repeat events that were read as history."""
    log, hands = Watched(tmp_path), Hands()
    answers: SimpleQueue[tuple[Cursor | None, str | None]] = SimpleQueue()
    forwarder = hands.forward(log, ResumePoint(), NOBODY)
    hands.next()
    log.put(5)
    forwarder.request_position(lambda at: answers.put((at, forwarder.rest.cursor)))
    at, told = answers.get(timeout=PATIENCE_S)
    assert at is not None
    assert at == log.end("numbers")
    assert told == at.text
    assert hands.next() == OutgoingBatch([], at.text)
    assert ended(forwarder)


def test_progress_is_answered_on_a_slow_log(tmp_path: Path) -> None:
    log, hands, may_read = Watched(tmp_path, 5), Hands(), threading.Event()
    answers: SimpleQueue[Cursor | None] = SimpleQueue()
    log.before_read = lambda: may_read.wait(PATIENCE_S)
    forwarder = hands.forward(log, ResumePoint(log.begin("numbers").text))
    forwarder.request_position(answers.put)
    may_read.set()
    assert answers.get(timeout=PATIENCE_S) == log.end("numbers")
    assert ended(forwarder)


def test_neighbour_without_matching_events_gets_progress_while_others_get_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POSITION_INTERVAL_S", 0.0)
    log, hands = Watched(tmp_path), Hands()
    log.is_busy = True
    forwarder = hands.forward(log, ResumePoint(), NOBODY)
    hands.next()
    log.put(5)
    assert hands.next() == OutgoingBatch([], log.end("numbers").text)
    assert ended(forwarder)


def test_replacement_of_a_silent_forwarder_starts_at_its_position(tmp_path: Path) -> None:
    log, hands, neighbour = Watched(tmp_path, 10), Hands(), Neighbour(HERE)
    begin, may_read = ResumePoint(log.begin("numbers").text, {"numbers@there/x/0": 3}), threading.Event()
    log.before_read = lambda: may_read.wait(PATIENCE_S)
    first = neighbour.forwarders["numbers@there"] = hands.forward(log, begin)
    assert neighbour.stop("numbers@there") == begin
    may_read.set()
    assert ended(first)
    second = neighbour.forwarders["numbers@there"] = hands.forward(log, begin)
    hands.next(), hands.next()
    assert neighbour.stop("numbers@there") == ResumePoint(log.end("numbers").text, begin.marks)
    assert ended(second)


def test_next_forwarder_starts_with_a_stream_created_meanwhile(tmp_path: Path) -> None:
    hands, neighbour = Hands(), Neighbour(HERE)
    forwarder = neighbour.forwarders["numbers@there"] = hands.forward(SegmentLog(tmp_path), ResumePoint())
    hands.next()
    assert neighbour.stop("numbers@there") == ResumePoint("")
    assert ended(forwarder)
