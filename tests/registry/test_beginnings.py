"""Start positions of services, which a registry fixes when it applies them."""

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


class FakeEnds:
    """Reads the ends of a log whose streams all end at the cursor `end`."""

    def __init__(self) -> None:
        self.end = "1"
        self.requests: list[list[str]] = []
        self.problem: Exception | None = None

    def __call__(self, streams: Collection[str]) -> Mapping[str, str]:
        if self.problem is not None:
            raise self.problem
        self.requests.append(sorted(streams))
        return {name: self.end for name in streams if name in ("a", "b")}


@pytest.fixture
def ends() -> FakeEnds:
    return FakeEnds()


@pytest.fixture
def registry(tmp_path: Path, ends: FakeEnds) -> SqliteRegistry:
    return SqliteRegistry(tmp_path / "registry.sqlite", read_ends=ends)


def begins(registry: SqliteRegistry, service: str) -> dict[str, Beginning]:
    begins = dict(registry.service(service).begins)
    assert registry.services()[service].begins == begins
    return begins


def test_new_service_starts_at_the_end_of_its_inputs(registry: SqliteRegistry, ends: FakeEnds) -> None:
    registry.apply(loads(defined("x: {from: a}")))
    assert begins(registry, "x") == {"a": Beginning("1", 1)}
    assert ends.requests == [["a"]]


def test_input_missing_in_the_log_starts_at_its_beginning(registry: SqliteRegistry) -> None:
    registry.apply(loads(defined("x: {from: a}", "y: {from: x}")))
    assert begins(registry, "y") == {"x": Beginning("", 1)}


def test_new_version_keeps_the_start_of_inputs_it_already_read(registry: SqliteRegistry, ends: FakeEnds) -> None:
    registry.apply(loads(defined("x: {from: a}")))
    ends.end = "2"
    registry.apply(loads(defined("x: {from: [a, b], pipeline: [merge]}")))
    assert begins(registry, "x") == {"a": Beginning("1", 1), "b": Beginning("2", 2)}


def test_unchanged_service_keeps_its_start_without_asking_the_log(registry: SqliteRegistry, ends: FakeEnds) -> None:
    registry.apply(loads(defined("x: {from: a}")))
    ends.problem = LogUnreachable("no")
    registry.apply(loads(defined("x: {from: a}")))
    assert begins(registry, "x") == {"a": Beginning("1", 1)}


def test_removed_and_re_added_service_starts_at_the_new_end(registry: SqliteRegistry, ends: FakeEnds) -> None:
    registry.apply(loads(defined("x: {from: a}")))
    registry.remove("x")
    ends.end = "2"
    registry.apply(loads(defined("x: {from: a}")))
    assert begins(registry, "x") == {"a": Beginning("2", registry.service("x").version)}


def test_backfill_starts_at_the_beginning(registry: SqliteRegistry, ends: FakeEnds) -> None:
    ends.problem = LogUnreachable("no")
    registry.apply(loads(defined("x: {from: a}")), backfill=True)
    assert begins(registry, "x") == {"a": Beginning("", 1)}


def test_unreachable_log_fails_the_whole_apply(registry: SqliteRegistry, ends: FakeEnds) -> None:
    ends.problem = LogUnreachable("the log is gone")
    with pytest.raises(LogUnreachable, match="the log is gone"):
        registry.apply(loads(defined("x: {from: a}")))
    assert not registry.streams()
    registry.apply(loads(STREAMS))  # streams alone need no end of the log
    assert set(registry.streams()) == {"a", "b"}
