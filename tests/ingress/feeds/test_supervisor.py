"""The supervisor: one thread a stream, again after a failure, and a word on how it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.ingress.kit import events, until
from tidegate.errors import SourceError
from tidegate.ingress.feeds import sources, start_feeds
from tidegate.ingress.feeds.demo import ANPR, GPS
from tidegate.ingress.raw_streams import Input, RawStreamWriter
from tidegate.logs import SegmentLog
from tidegate.services.definitions import Definitions, Demo, Stream
from tidegate.timing import Backoff

QUICK = Backoff(first_s=0.01, max_s=0.02)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    made = SegmentLog(tmp_path)
    yield made
    made.close()


def defined(*streams: Stream) -> Definitions:
    return Definitions({stream.name: stream for stream in streams})


def test_every_stream_with_a_source_is_fed(log: SegmentLog) -> None:
    given = defined(
        Stream("gps", GPS, key="vid", source=Demo("gps", 5_000)),
        Stream("anpr", ANPR, key="cid", partitions=2, source=Demo("anpr", 2_000)),
        Stream("http", GPS),
    )
    with start_feeds(given, log) as feeds:
        assert set(feeds.status()) == {"gps", "anpr"}
        until(lambda: all(each["events"] > 500 for each in feeds.status().values()))
        status = feeds.status()["gps"]
        assert status["state"] == "running"
        assert status["source"] == "demo"
        assert status["rate"] > 0
        assert status["error"] is None
    status = feeds.status()["gps"]
    assert status["state"] == "stopped"
    assert status["events"] == len(events(log, "gps"))


class Shaky:
    """Fails some times, then ends."""

    def __init__(self, writer: RawStreamWriter, failures: int) -> None:
        self.writer, self.failures = writer, failures

    def run(self, stop: Event) -> None:  # noqa: ARG002
        self.writer.append_inputs([Input(b"{}")])
        if self.failures:
            self.failures -= 1
            raise SourceError(f"{self.failures} left")


def make(failures: int) -> Any:
    return lambda request: Shaky(request.writer, failures)


def test_failed_feed_is_restarted(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "make_feed", make(3))
    with start_feeds(defined(Stream("gps", GPS, source=Demo("gps"))), log, backoff=QUICK) as feeds:
        assert feeds.join(20)
        status = feeds.status()["gps"]
    assert status["state"] == "ended"
    assert status["restarts"] == 3
    assert status["error"] == "0 left"
    assert status["error_time"].endswith("Z")
    assert status["events"] == 4


def test_waiting_feed_stops_at_once(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "make_feed", make(3))
    with start_feeds(
        defined(Stream("gps", GPS, source=Demo("gps"))), log, backoff=Backoff(first_s=900, max_s=900)
    ) as feeds:
        until(lambda: feeds.status()["gps"]["state"] == "waiting")
        assert feeds.status()["gps"]["error"] == "2 left"
        assert feeds.stop()
    assert feeds.status()["gps"]["state"] == "stopped"
    assert feeds.status()["gps"]["restarts"] == 0


def test_new_definitions_start_and_stop_what_has_changed(log: SegmentLog) -> None:
    a, b = Stream("a", GPS, source=Demo("gps", 100)), Stream("b", GPS, source=Demo("gps", 100))
    with start_feeds(defined(a, b), log) as feeds:
        until(lambda: feeds.status()["a"]["events"] > 5)
        feeds.apply(defined(a, Stream("c", GPS, source=Demo("gps", 200))))
        assert set(feeds.status()) == {"a", "c"}
        assert feeds.status()["a"]["events"] > 5, "it went on"


def test_source_that_cannot_be_built_is_its_own_error_and_others_run(log: SegmentLog) -> None:
    a, d = Stream("a", GPS, source=Demo("gps", 100)), Stream("d", GPS, source=Demo("cars"))
    with start_feeds(defined(a, d), log, backoff=QUICK) as feeds:
        until(lambda: feeds.status()["a"]["events"] > 5 and feeds.status()["d"]["restarts"] > 1)
        status = feeds.status()["d"]
        assert status["error"] == "stream 'd': unknown demo 'cars'; expected gps, anpr"
        assert feeds.status()["a"]["error"] is None
        feeds.apply(defined(a, Stream("d", GPS, source=Demo("gps", 100))))
        until(lambda: feeds.status()["d"]["events"] > 5)
        assert feeds.status()["d"]["error"] is None


@pytest.mark.parametrize("raised", [SystemExit(3), RecursionError("too deep"), MemoryError(), GeneratorExit()])
def test_feed_survives_whatever_a_source_raises(
    log: SegmentLog, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    class Raising:
        def run(self, stop: Event) -> None:  # noqa: ARG002
            raise raised

    monkeypatch.setattr(sources, "make_feed", lambda *_: Raising())
    with start_feeds(defined(Stream("gps", GPS, source=Demo("gps"))), log, backoff=QUICK) as feeds:
        until(lambda: feeds.status()["gps"]["restarts"] > 1)
        assert feeds.status()["gps"]["error"].startswith(type(raised).__name__)
