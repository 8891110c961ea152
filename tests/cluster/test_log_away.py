"""Kafka does not answer for a while: subscribers get each event once, and none of those they have had."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.delivery.sinks import Recording
from tests.delivery.test_hub import hub_on, record, subscriber
from tests.kafka_broker import Broker
from tests.polling import until_async as until
from tidegate.delivery.hub import Hub
from tidegate.delivery.start import NOW, Start
from tidegate.errors import LogError, LogUnreachable, StreamNotFound
from tidegate.logs import Cursor, KafkaLog, Read
from tidegate.logs.ends import ends_of

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("broker")]

OUTAGES: dict[str, tuple[Callable[[Broker], None], Callable[[Broker], None]]] = {
    "paused": (Broker.pause, Broker.resume),
    "killed": (Broker.kill, Broker.start),
}


class CountingLog(KafkaLog):
    """A log that counts the requests that failed."""

    failures = 0

    def read(self, stream: str, cursor: Cursor, max_records: int = 1_000) -> Read:
        try:
            return super().read(stream, cursor, max_records)
        except LogError:
            self.failures += 1
            raise

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        try:
            return super().wait(stream, cursor, timeout_s)
        except LogError:
            self.failures += 1
            raise


@pytest.fixture
def log(broker: Broker) -> Iterator[CountingLog]:
    log = CountingLog(broker.address, prefix=f"t{secrets.token_hex(4)}.", check_s=0.1, timeout_s=1.0)
    log.create("gps")
    yield log
    log.close()


def append(broker: Broker, log: KafkaLog, *numbers: int) -> None:
    """Append with a log of its own, whose timeout is the usual one: a new producer takes longer than a second."""
    writer = KafkaLog(broker.address, prefix=log.topic(""))
    writer.append("gps", "0", [record("0", n) for n in numbers])
    writer.close()


def ids(*numbers: int) -> list[str]:
    return [f"0:{n}" for n in numbers]


@pytest.mark.parametrize("outage", OUTAGES)
def test_subscribers_get_each_event_once_after_the_log_was_away(broker: Broker, log: CountingLog, outage: str) -> None:
    begin, end = OUTAGES[outage]

    async def work() -> None:
        append(broker, log, *range(50))
        async with hub_on(log) as hub:
            live, behind, joins = Recording(), Recording(room_for=20, strict=True), Recording()
            hub.subscribe(subscriber("live", "", live, log.begin("gps")))
            hub.subscribe(subscriber("behind", "", behind, log.begin("gps")))
            await until(lambda: hub.counts()["gps"]["live"] == 1 and len(behind.given) == 20, "one live, one behind")
            begin(broker)
            try:
                behind.make_room()
                before = log.failures
                await until(lambda: log.failures > before + 2, "requests to fail")
                hub.subscribe(subscriber("joins", "", joins, None), now=True)
                with pytest.raises(LogUnreachable, match="no answer from Kafka"):
                    await hub.begin("gps", NOW)
                with pytest.raises(LogUnreachable, match="no answer from Kafka"):
                    await hub.begin("gps", Start(beginning=True))
                assert live.ids("live") == ids(*range(50))
            finally:
                await asyncio.to_thread(end, broker)
            await until(lambda: [each.kind for each in joins.notices] == ["began"], "the new subscriber to start")
            await asyncio.to_thread(append, broker, log, *range(50, 60))
            await until(lambda: "0:59" in joins.ids("joins"), "the new subscriber to get the last event")
            await until(lambda: "0:59" in live.ids("live"), "the live subscriber to get the last event")
            while len(behind.given) < 60:
                behind.make_room()
                count = len(behind.given)
                await until(lambda count=count: len(behind.given) > count, "the subscriber behind to get more")  # type: ignore[misc]
            assert live.ids("live") == ids(*range(60))
            assert behind.ids("behind") == ids(*range(60))
            assert joins.ids("joins") == ids(*range(50, 60))
            assert not [each for each in (*live.notices, *behind.notices) if each.kind == "gap"]

    asyncio.run(work())


def test_poll_of_a_log_that_does_not_answer_raises_and_keeps_the_cursor(broker: Broker, log: CountingLog) -> None:
    async def work() -> None:
        append(broker, log, *range(5))
        async with hub_on(log) as hub:
            sink = Recording()
            each = subscriber("s", "", sink, log.begin("gps"))
            assert await hub.poll(each) == "more"
            cursor = each.cursor
            broker.pause()
            try:
                with pytest.raises(LogUnreachable, match="no answer from Kafka"):
                    await _polled(hub, each)
                assert each.cursor == cursor
            finally:
                broker.resume()
            assert await hub.poll(each) == "all"
            assert sink.ids("s") == ids(*range(5))

    asyncio.run(work())


async def _polled(hub: Hub, each: Any) -> None:
    while True:  # the metadata of the topic may still be cached at the first poll
        await hub.poll(each)


def test_absent_stream_and_unreachable_log_raise_different_errors(broker: Broker, log: CountingLog) -> None:
    begin = log.begin("gps")
    with pytest.raises(StreamNotFound, match="no stream 'gsp'; did you mean 'gps'"):
        log.end("gsp")
    assert ends_of(lambda: _log_of(broker, log), ["gps", "gsp"]) == {"gps": log.end("gps").text}
    broker.pause()
    try:
        for call in (
            lambda: log.end("gps"),
            lambda: log.end("gsp"),
            log.streams,
            lambda: log.append("gps", "0", [b"{}"]),
        ):
            with pytest.raises(LogUnreachable, match="no answer from Kafka"):
                call()
        with pytest.raises(LogUnreachable, match="nothing was applied: new services start at the end of gps"):
            ends_of(lambda: _log_of(broker, log), ["gps"])
    finally:
        broker.resume()
    assert log.begin("gps") == begin


def _log_of(broker: Broker, log: KafkaLog) -> KafkaLog:
    return KafkaLog(broker.address, prefix=log.topic(""), timeout_s=1.0)
