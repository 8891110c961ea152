"""Streams and services in a registry. Its clock ticks a second a change of one name."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.registry.conftest import MakeRegistry
from tidegate import BreakingChange, DefinitionError, RegistryError, Schema
from tidegate.registry import Registry
from tidegate.services import Definitions, Service, Stream, loads
from tidegate.services.operators import Custom

STREAMS = """
streams:
  gps: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time}
  anpr: {schema: {cid: string, time: timestamp}, event_time: time}
"""
FAST = "  fast: {from: gps, pipeline: [{filter: speed > 60}]}\n"
CITY = loads(f"{STREAMS}services:\n{FAST}  cars: {{from: fast, pipeline: [{{project: {{vid: vid, time: time}}}}]}}\n")


def test_an_empty_registry_has_nothing(registry: Registry) -> None:
    assert registry.definitions() == Definitions()
    assert (registry.streams(), registry.services(), registry.revision()) == ({}, {}, 0)


def test_what_is_applied_is_there(registry: Registry) -> None:
    changes = registry.apply(CITY)
    assert changes.added == {"gps": 1, "anpr": 1, "fast": 1, "cars": 1}
    assert (changes.changed, changes.unchanged, changes.removed) == ({}, {}, {})
    assert registry.definitions() == CITY
    assert registry.service("fast").service == CITY.services["fast"]
    assert registry.stream("gps").stream == CITY.streams["gps"]
    assert (registry.service("fast").version, registry.service("fast").forced) == (1, False)
    assert registry.stream("gps").changed_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (list(registry.streams()), list(registry.services())) == (["anpr", "gps"], ["cars", "fast"])


def test_another_that_looks_sees_it(make: MakeRegistry) -> None:
    one, other = make(), make()
    before = other.revision()
    one.apply(CITY)
    assert other.definitions() == CITY
    assert other.revision() > before


def test_what_is_the_same_changes_nothing(registry: Registry) -> None:
    registry.apply(CITY)
    before = registry.revision()
    changes = registry.apply(CITY)
    assert not changes
    assert changes.unchanged == {"gps": 1, "anpr": 1, "fast": 1, "cars": 1}
    assert registry.revision() == before


def test_a_change_makes_a_version(registry: Registry) -> None:
    registry.apply(CITY)
    before = registry.revision()
    changes = registry.apply(loads("services: {fast: {from: gps, pipeline: [{filter: speed > 90}]}}"))
    assert (changes.changed, changes.added, changes.unchanged) == ({"fast": 2}, {}, {})
    assert registry.revision() > before
    assert registry.service("fast").version == 2
    assert [(past.version, past.forced) for past in registry.history("fast")] == [(1, False), (2, False)]
    assert (registry.history("fast")[0].document or {})["pipeline"] == [{"filter": "speed > 60"}]


def test_what_does_not_hold_together_leaves_no_trace(registry: Registry) -> None:
    registry.apply(CITY)
    before = registry.revision()
    text = "streams: {new: {schema: {a: bool}}}\nservices:\n  bad: {from: gsp}"
    with pytest.raises(DefinitionError) as caught:
        registry.apply(loads(text, "t.yaml"))
    assert str(caught.value) == "t.yaml:3: services.bad.from: unknown stream or service 'gsp'; did you mean 'gps'?"
    assert registry.definitions() == CITY
    assert registry.revision() == before


def test_the_whole_is_checked_not_the_change_alone(registry: Registry) -> None:
    registry.apply(CITY)
    with pytest.raises(DefinitionError, match="unknown field 'speed'"):
        registry.apply(loads("streams: {gps: {schema: {vid: string, time: timestamp}, event_time: time}}"))


def test_a_change_that_breaks_subscribers_is_refused(registry: Registry) -> None:
    registry.apply(CITY)
    smaller = loads("services: {cars: {from: fast, pipeline: [{project: {car: vid, time: time}}]}}")
    with pytest.raises(BreakingChange) as caught:
        registry.apply(smaller)
    assert caught.value.changes == {"cars": ("the attribute vid is gone",)}
    assert registry.definitions() == CITY
    assert registry.apply(smaller, force=True).changed == {"cars": 2}
    assert registry.service("cars").forced
    assert [past.forced for past in registry.history("cars")] == [False, True]


def test_what_breaks_a_service_further_down_is_refused_too(registry: Registry) -> None:
    registry.apply(loads(f"{STREAMS}services: {{all: {{from: gps}}, some: {{from: all}}}}"))
    text = "streams: {gps: {schema: {vid: string, speed: int64, time: timestamp}, event_time: time}}"
    with pytest.raises(BreakingChange) as caught:
        registry.apply(loads(text))
    assert list(caught.value.changes) == ["all", "some"]
    registry.apply(loads(text), force=True)
    assert registry.stream("gps").forced


TRUSTED = f"""{STREAMS}
  lines: {{schema: {{vid: string}}, source: {{files: /srv/lines.csv}}}}
services:
{FAST}
  joined: {{from: gps, pipeline: [{{custom: {{function: "os.path:join", schema: {{vid: string}}}}}}]}}
"""


def test_operator_who_states_a_remote_definition_again_makes_a_new_version_where_trust_matters(
    registry: Registry,
) -> None:
    registry.apply(loads(TRUSTED), origin="remote")
    assert registry.service("joined").service.origin == "remote"
    changes = registry.apply(loads(TRUSTED))
    assert (changes.changed, changes.unchanged) == ({"lines": 2, "joined": 2}, {"gps": 1, "anpr": 1, "fast": 1})
    assert registry.service("joined").service.origin == registry.stream("lines").stream.origin == "operator"
    assert registry.apply(loads(TRUSTED)).changed == {}, "it is trusted now"
    changed = loads(f"{STREAMS}services:\n  joined: {{from: gps}}")
    assert registry.apply(changed, origin="remote", force=True).changed == {"joined": 3}
    assert registry.service("joined").service.origin == "remote", "what somebody else changes is not trusted"


def test_operator_who_states_something_else_imports_nothing_that_others_stated(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    planted = '  planted: {from: gps, pipeline: [{custom: {function: "planted_module:f", schema: {vid: string}}}]}'
    registry.apply(loads(f"{STREAMS}services:\n{planted}"), origin="remote")
    assert registry.apply(loads(f"{STREAMS}services:\n{FAST}")).added == {"fast": 1}
    assert "planted_module" not in sys.modules
    with pytest.raises(DefinitionError, match="can't import 'planted_module': SystemExit: imported"):
        registry.apply(loads(f"{STREAMS}services:\n{planted}"))


def test_force_alone_is_not_forced(registry: Registry) -> None:
    registry.apply(CITY)
    registry.apply(loads("services: {fast: {from: gps, pipeline: [{filter: speed > 90}]}}"), force=True)
    assert not registry.service("fast").forced


def test_pruning_removes_what_is_not_named(registry: Registry) -> None:
    registry.apply(CITY)
    changes = registry.apply(loads(f"{STREAMS}services:\n{FAST}"), prune=True)
    assert (changes.removed, changes.unchanged) == ({"cars": 1}, {"gps": 1, "anpr": 1, "fast": 1})
    assert list(registry.services()) == ["fast"]


def test_what_something_reads_can_not_be_removed(registry: Registry) -> None:
    registry.apply(CITY)
    with pytest.raises(RegistryError, match="'gps' can't be removed: fast reads it"):
        registry.remove("gps")
    with pytest.raises(RegistryError, match="'fast' can't be removed: cars reads it"):
        registry.remove("fast")
    assert registry.definitions() == CITY


def test_a_name_that_comes_again_has_a_new_version(registry: Registry) -> None:
    registry.apply(CITY)
    before = registry.revision()
    assert registry.remove("cars") == 1
    assert registry.revision() > before
    assert "cars" not in registry.services()
    assert registry.apply(CITY).added == {"cars": 3}
    assert [(past.version, past.document is None) for past in registry.history("cars")] == [
        (1, False),
        (2, True),
        (3, False),
    ]


def test_what_no_file_could_say_is_refused(registry: Registry) -> None:
    schema = Schema({"a": "bool"})
    with pytest.raises(DefinitionError, match=r"streams\._a: names that start with _ are reserved"):
        registry.apply(Definitions({"_a": Stream("_a", schema)}))
    custom = Custom("math:sqrt", schema, {"at": datetime(2026, 1, 1, tzinfo=UTC)})
    with pytest.raises(RegistryError, match="expected definitions of JSON values"):
        registry.apply(Definitions({"a": Stream("a", schema)}, {"s": Service("s", ("a",), (custom,))}))
    assert (registry.definitions(), registry.revision()) == (Definitions(), 0)


def test_a_stream_may_become_a_service(registry: Registry) -> None:
    registry.apply(CITY)
    registry.apply(loads("services: {anpr: {from: gps}}"))
    assert ("anpr" in registry.streams(), registry.service("anpr").version) == (False, 2)


def test_a_name_that_is_not_there(registry: Registry) -> None:
    registry.apply(CITY)
    with pytest.raises(RegistryError, match=r"there is no service 'fats'; did you mean 'fast'\?"):
        registry.service("fats")
    with pytest.raises(RegistryError, match="there is no stream 'fast'"):
        registry.stream("fast")
    with pytest.raises(RegistryError, match="there is no stream or service 'nothing'"):
        registry.remove("nothing")
    assert registry.history("nothing") == registry.history("nu\0l") == []
