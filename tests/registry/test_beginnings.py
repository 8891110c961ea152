"""Where services begin to read, as a registry fixes it when they are applied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from tidegate.errors import LogUnreachable
from tidegate.registry import Beginning, SqliteRegistry
from tidegate.services import loads

STREAMS = "streams: {a: {schema: {n: int64}}, b: {schema: {n: int64}}}\n"


def defined(*services: str) -> str:
    return STREAMS + "services: {" + ", ".join(services) + "}"


class Ends:
    """A log whose streams all end at one place, which moves."""

    def __init__(self) -> None:
        self.place = "1"
        self.asked: list[list[str]] = []
        self.problem: Exception | None = None

    def __call__(self, streams: Collection[str]) -> Mapping[str, str]:
        if self.problem is not None:
            raise self.problem
        self.asked.append(sorted(streams))
        return {name: self.place for name in streams if name in ("a", "b")}


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def registry(tmp_path: Path, ends: Ends) -> SqliteRegistry:
    return SqliteRegistry(tmp_path / "registry.sqlite", ends=ends)


def begins(registry: SqliteRegistry, service: str) -> dict[str, Beginning]:
    found = dict(registry.service(service).begins)
    assert registry.services()[service].begins == found
    return found


def test_a_new_service_begins_at_the_end_of_its_inputs(registry: SqliteRegistry, ends: Ends) -> None:
    registry.apply(loads(defined("x: {from: a}")))
    assert begins(registry, "x") == {"a": Beginning("1", 1)}
    assert ends.asked == [["a"]]


def test_an_input_that_is_not_in_the_log_begins_at_its_beginning(registry: SqliteRegistry) -> None:
    registry.apply(loads(defined("x: {from: a}", "y: {from: x}")))
    assert begins(registry, "y") == {"x": Beginning("", 1)}


def test_another_version_keeps_the_beginnings_of_what_was_read_before(registry: SqliteRegistry, ends: Ends) -> None:
    registry.apply(loads(defined("x: {from: a}")))
    ends.place = "2"
    registry.apply(loads(defined("x: {from: [a, b], pipeline: [merge]}")))
    assert begins(registry, "x") == {"a": Beginning("1", 1), "b": Beginning("2", 2)}


def test_what_has_not_changed_keeps_its_beginning_and_asks_nobody(registry: SqliteRegistry, ends: Ends) -> None:
    registry.apply(loads(defined("x: {from: a}")))
    ends.problem = LogUnreachable("no")
    registry.apply(loads(defined("x: {from: a}")))
    assert begins(registry, "x") == {"a": Beginning("1", 1)}


def test_a_service_that_is_removed_and_comes_again_begins_anew(registry: SqliteRegistry, ends: Ends) -> None:
    registry.apply(loads(defined("x: {from: a}")))
    registry.remove("x")
    ends.place = "2"
    registry.apply(loads(defined("x: {from: a}")))
    assert begins(registry, "x") == {"a": Beginning("2", registry.service("x").version)}


def test_backfill_begins_at_the_beginning(registry: SqliteRegistry, ends: Ends) -> None:
    ends.problem = LogUnreachable("no")
    registry.apply(loads(defined("x: {from: a}")), backfill=True)
    assert begins(registry, "x") == {"a": Beginning("", 1)}


def test_a_log_that_cannot_be_asked_refuses_the_whole_apply(registry: SqliteRegistry, ends: Ends) -> None:
    ends.problem = LogUnreachable("the log is gone")
    with pytest.raises(LogUnreachable, match="the log is gone"):
        registry.apply(loads(defined("x: {from: a}")))
    assert not registry.streams()
    registry.apply(loads(STREAMS))  # streams alone begin nowhere
    assert set(registry.streams()) == {"a", "b"}
