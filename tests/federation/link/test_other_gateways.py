"""Two gateways of one broker, of which one holds the links: both get what another broker has."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from tests.federation.link.test_federation import SCHEMA, Side, has_begun, linked
from tests.polling import until_async as until
from tidegate.errors import FederationError
from tidegate.federation.link import Federation, LinkClosed, history_exchange, shared_needs
from tidegate.federation.link.history import BEGINNING
from tidegate.filters import Filter

NUMBERS = "numbers@there"


async def reported(gateways: list[Federation], stop: asyncio.Event) -> None:
    """Do what the rosters of gateways do once a second."""
    while not stop.is_set():
        reports = {str(n): gateway.shared_needs.report() for n, gateway in enumerate(gateways)}
        for n, gateway in enumerate(gateways):
            gateway.shared_needs.note({id_: needs for id_, needs in reports.items() if id_ != str(n)})
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.02)


def test_gateway_without_the_links_gets_events_and_history(tmp_path: Path) -> None:
    async def run() -> None:
        here, there = Side(tmp_path, "here"), Side(tmp_path, "there", has_service=True)
        there.append(0, 1, 2)
        stop = asyncio.Event()
        async with there.running(), here.running() as first:
            await linked(here, there)
            here.port = 0
            async with here.running() as second:
                assert (first.has_lease, second.has_lease) == (True, False)
                await until(lambda: NUMBERS in second.remotes, "the service to be known")
                exchange = asyncio.create_task(reported([first, second], stop))
                filter_ = Filter("n > 1", SCHEMA)
                second.hold("me", NUMBERS, filter_)
                assert await second.wait_for_sync_point(NUMBERS, filter_, 60.0)
                here.federation = first
                assert has_begun(there, "here")
                there.append(1, 3, 4)
                await until(lambda: here.mirrored(NUMBERS) == [3, 4], "the events that it wants")
                page = await second.read_history(NUMBERS, filter_, BEGINNING, None)
                assert [orjson.loads(record)["n"] for record in page.records] == [2, 3, 4]
                assert page.is_last
                second.release("me")
                assert second.shared_needs.report() == []
                stop.set()
                await exchange
                await first.close()
                await until(lambda: second.has_lease, "the other to take the links")
                there.append(9)
                await until(lambda: here.mirrored(NUMBERS) == [3, 4, 9], "the next event")

    asyncio.run(run())


def test_problem_of_a_relayed_request_reaches_the_gateway_that_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        here, there = Side(tmp_path, "here"), Side(tmp_path, "there", has_service=True)
        async with there.running(), here.running() as first:
            await linked(here, there)
            here.port = 0
            async with here.running() as second:
                await until(lambda: NUMBERS in second.remotes, "the service to be known")
                with pytest.raises(FederationError, match=r"^the link to nobody is down$"):
                    await second.history.request("none@there", {"service": "none@there", "place": BEGINNING.text})
                monkeypatch.setattr(history_exchange, "ANSWER_TIMEOUT_S", 0.5)
                monkeypatch.setattr(first.history.relay, "_take", lambda _: asyncio.sleep(0, []))
                with pytest.raises(LinkClosed, match=r"^the gateway that holds the links of here does not answer$"):
                    await second.read_history(NUMBERS, None, BEGINNING, None)

    asyncio.run(run())


def test_many_filters_are_reported_as_all_events_and_reports_of_other_versions_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        here, there = Side(tmp_path, "here"), Side(tmp_path, "there", has_service=True)
        async with there.running(), here.running() as first:
            await linked(here, there)
            first.hold("me", NUMBERS, Filter("n > 1", SCHEMA))
            first.hold(("durable", "sub"), NUMBERS, Filter("n > 2", SCHEMA))
            entry = {"service": NUMBERS, "filter": {"text": "n > 1", "params": [], "like_star": False}}
            assert first.shared_needs.report() == [entry]
            monkeypatch.setattr(shared_needs, "MAX_REPORT_BYTES", 10)
            assert first.shared_needs.report() == [{"service": NUMBERS, "filter": None}]
            bad = [None, 7, {}, {"service": NUMBERS}, {"service": NUMBERS, "filter": {"text": "x ="}}]
            first.shared_needs.note({"a": None, "b": bad, "c": [{"service": "none@there", "filter": None}]})
            first.shared_needs.note({"d": [{"service": NUMBERS, "filter": None}]})
            assert len(first.needs.filters()[NUMBERS]) == 3
            first.shared_needs.note({})
            assert first.shared_needs.report() == [{"service": NUMBERS, "filter": None}]

    asyncio.run(run())
