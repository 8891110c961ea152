"""What gateways tell each other through a registry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.polling import until_async as until
from tidegate.delivery.push.placement import Peer
from tidegate.errors import RegistryUnreachable
from tidegate.gateway.roster import REPORT_VALID_S, Roster
from tidegate.registry import SqliteRegistry


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(tmp_path: Path, clock: Clock) -> Iterator[SqliteRegistry]:
    registry = SqliteRegistry(tmp_path / "registry.sqlite", clock=clock)
    yield registry
    registry.close()


def test_gateways_know_each_other_until_one_ends_or_is_silent(registry: SqliteRegistry, clock: Clock) -> None:
    async def work() -> None:
        one, other, third = (Roster(registry, name, has_semantics=name == "b") for name in "abc")
        other.has_links = lambda: True
        for roster in (one, other, third, one):
            await roster.exchange()
        assert set(one.peers) == {Peer(one.id), Peer(other.id, has_semantics=True, has_links=True), Peer(third.id)}
        await third.close()
        await one.exchange()
        assert {peer.id for peer in one.peers} == {one.id, other.id}
        clock.now += round(REPORT_VALID_S * 1e6)
        await one.exchange()
        assert one.peers == [Peer(one.id)]

    asyncio.run(work())


def test_reports_have_parts_that_listeners_get(registry: SqliteRegistry) -> None:
    async def work() -> None:
        one, other = Roster(registry, "a"), Roster(registry, "b")
        heard: list[Mapping[str, Any]] = []
        one.parts["use"] = lambda: {"requests": {"key_1": 2.5}}
        other.listeners.append(heard.append)
        registry.report_gateway("newer", "[1]", REPORT_VALID_S)
        registry.report_gateway("broken", "{", REPORT_VALID_S)
        await one.exchange()
        await other.exchange()
        report = {"name": "a", "semantics": False, "links": False, "use": {"requests": {"key_1": 2.5}}}
        assert heard == [{one.id: report, "newer": {}, "broken": {}}]

    asyncio.run(work())


def test_gateway_keeps_what_it_knew_while_the_registry_is_away(
    registry: SqliteRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RegistryUnreachable("no answer")

    async def work() -> None:
        one, other = Roster(registry, "a", interval_s=0.01), Roster(registry, "b", interval_s=0.01)
        await other.start()
        await one.start()
        assert {peer.id for peer in one.peers} == {one.id, other.id}
        with capture_logs() as logs:
            monkeypatch.setattr(registry, "report_gateway", fail)
            await until(lambda: len(logs) > 2, "failed exchanges")
            assert {peer.id for peer in one.peers} == {one.id, other.id}
            monkeypatch.setattr(registry, "remove_gateway", fail)
            await other.close()
        said = {(line["event"], line["problem"]) for line in logs}
        assert said == {
            ("can't exchange reports with other gateways", "no answer"),
            ("can't remove this gateway from the registry", "no answer"),
        }
        monkeypatch.undo()
        await one.close()
        assert registry.gateways().keys() == {other.id}

    asyncio.run(work())
