"""Streams and services in a registry. Its clock advances by one second per changed name."""

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


def test_new_registry_is_empty(registry: Registry) -> None:
    assert registry.definitions() == Definitions()
    assert (registry.streams(), registry.services(), registry.revision()) == ({}, {}, 0)


def test_applied_definitions_are_stored(registry: Registry) -> None:
    changes = registry.apply(CITY)
    assert changes.added == {"gps": 1, "anpr": 1, "fast": 1, "cars": 1}
    assert (changes.changed, changes.unchanged, changes.removed) == ({}, {}, {})
    assert registry.definitions() == CITY
    assert registry.service("fast").service == CITY.services["fast"]
    assert registry.stream("gps").stream == CITY.streams["gps"]
    assert (registry.service("fast").version, registry.service("fast").forced) == (1, False)
    assert registry.stream("gps").changed_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (list(registry.streams()), list(registry.services())) == (["anpr", "gps"], ["cars", "fast"])


def test_other_connection_sees_applied_definitions(make: MakeRegistry) -> None:
    one, other = make(), make()
    before = other.revision()
    one.apply(CITY)
    assert other.definitions() == CITY
    assert other.revision() > before


def test_applying_the_same_definitions_changes_nothing(registry: Registry) -> None:
    registry.apply(CITY)
    before = registry.revision()
    changes = registry.apply(CITY)
    assert not changes
    assert changes.unchanged == {"gps": 1, "anpr": 1, "fast": 1, "cars": 1}
    assert registry.revision() == before


def test_change_makes_a_new_version(registry: Registry) -> None:
    registry.apply(CITY)
    before = registry.revision()
    changes = registry.apply(loads("services: {fast: {from: gps, pipeline: [{filter: speed > 90}]}}"))
    assert (changes.changed, changes.added, changes.unchanged) == ({"fast": 2}, {}, {})
    assert registry.revision() > before
    assert registry.service("fast").version == 2
    assert [(past.version, past.forced) for past in registry.history("fast")] == [(1, False), (2, False)]
    assert (registry.history("fast")[0].document or {})["pipeline"] == [{"filter": "speed > 60"}]


def test_invalid_definitions_leave_no_trace(registry: Registry) -> None:
    registry.apply(CITY)
    before = registry.revision()
    text = "streams: {new: {schema: {a: bool}}}\nservices:\n  bad: {from: gsp}"
    with pytest.raises(DefinitionError) as caught:
        registry.apply(loads(text, "t.yaml"))
    assert str(caught.value) == "t.yaml:3: services.bad.from: unknown stream or service 'gsp'; did you mean 'gps'?"
    assert registry.definitions() == CITY
    assert registry.revision() == before


def test_change_is_checked_together_with_stored_definitions(registry: Registry) -> None:
    registry.apply(CITY)
    with pytest.raises(DefinitionError, match="unknown field 'speed'"):
        registry.apply(loads("streams: {gps: {schema: {vid: string, time: timestamp}, event_time: time}}"))


def test_breaking_change_is_refused_without_force(registry: Registry) -> None:
    registry.apply(CITY)
    smaller = loads("services: {cars: {from: fast, pipeline: [{project: {car: vid, time: time}}]}}")
    with pytest.raises(BreakingChange) as caught:
        registry.apply(smaller)
    assert caught.value.changes == {"cars": ("the attribute vid is gone",)}
    assert registry.definitions() == CITY
    assert registry.apply(smaller, force=True).changed == {"cars": 2}
    assert registry.service("cars").forced
    assert [past.forced for past in registry.history("cars")] == [False, True]


WINDOWS = """
services:
  counts:
    from: gps
    pipeline: [{aggregate: {count: n, by: [vid], window: {length: %s}}}]
"""


def test_change_that_loses_a_state_is_refused_without_force(registry: Registry) -> None:
    registry.apply(loads(STREAMS + WINDOWS % "10s"))
    with pytest.raises(BreakingChange) as caught:
        registry.apply(loads(STREAMS + WINDOWS % "20s"))
    assert str(caught.value).splitlines() == [
        "this loses the state of services, such as open windows (force applies it all the same):",
        "services.counts: the window of aggregate was 10s every 10s and is 20s every 20s",
    ]
    assert registry.service("counts").version == 1
    changes = registry.apply(loads(STREAMS + WINDOWS % "20s"), force=True)
    assert (changes.changed, changes.states["counts"].effect) == ({"counts": 2}, "starts anew")
    assert registry.apply(loads(STREAMS + WINDOWS % "30s"), backfill=True).changed == {"counts": 3}


def test_change_that_keeps_a_state_is_applied_and_says_so(registry: Registry) -> None:
    registry.apply(loads(STREAMS + WINDOWS % "10s"))
    more = (STREAMS + WINDOWS % "10s").replace("count: n", "count: n, max: {speed: top}")
    assert {name: str(each) for name, each in registry.apply(loads(more)).states.items()} == {
        "counts": "migrates: max(speed) begins with the next event"
    }
    later = more.replace("length: 10s", "length: 10s, lateness: 5s")
    assert {name: str(each) for name, each in registry.apply(loads(later)).states.items()} == {"counts": "keeps"}
    assert registry.apply(loads(later)).states == {}


def test_dry_run_changes_nothing(registry: Registry) -> None:
    registry.apply(loads(STREAMS + WINDOWS % "10s"))
    revision = registry.revision()
    changes = registry.apply(loads(STREAMS + WINDOWS % "20s"), dry_run=True, force=True)
    assert changes.changed == {"counts": 2}
    assert registry.service("counts").version == 1
    assert registry.revision() == revision


def test_change_that_breaks_a_downstream_service_is_refused(registry: Registry) -> None:
    registry.apply(loads(f"{STREAMS}services: {{all: {{from: gps}}, some: {{from: all}}}}"))
    text = "streams: {gps: {schema: {vid: string, speed: int64, time: timestamp}, event_time: time}}"
    with pytest.raises(BreakingChange) as caught:
        registry.apply(loads(text))
    assert list(caught.value.changes) == ["all", "some"]
    registry.apply(loads(text), force=True)
    assert registry.stream("gps").forced


def test_required_attribute_of_a_raw_stream_is_refused_without_force(registry: Registry) -> None:
    registry.apply(CITY)
    text = "streams: {gps: {schema: {vid: string, speed: float64, time: timestamp, level: int32%s}, event_time: time}}"
    with pytest.raises(BreakingChange) as caught:
        registry.apply(loads(text % ""))
    assert caught.value.changes == {}
    assert str(caught.value).splitlines() == [
        "this breaks existing producers (force applies it all the same):",
        "streams.gps: the attribute level is new and required: make it optional, int32?",
    ]
    assert registry.definitions() == CITY
    registry.apply(loads(text % "?"))
    registry.apply(loads(text % ""), force=True)
    assert registry.stream("gps").forced


TRUSTED = f"""{STREAMS}
  lines: {{schema: {{vid: string}}, source: {{files: /srv/lines.csv}}}}
services:
{FAST}
  joined: {{from: gps, pipeline: [{{custom: {{function: "os.path:join", schema: {{vid: string}}}}}}]}}
"""


def test_operator_who_reapplies_a_remote_definition_makes_a_new_version_if_it_needs_trust(
    registry: Registry,
) -> None:
    registry.apply(loads(TRUSTED), origin="remote")
    assert registry.service("joined").service.origin == "remote"
    changes = registry.apply(loads(TRUSTED))
    assert (changes.changed, changes.unchanged) == ({"lines": 2, "joined": 2}, {"gps": 1, "anpr": 1, "fast": 1})
    assert registry.service("joined").service.origin == registry.stream("lines").stream.origin == "operator"
    assert registry.apply(loads(TRUSTED)).changed == {}, "the operator has taken it over"
    changed = loads(f"{STREAMS}services:\n  joined: {{from: gps}}")
    assert registry.apply(changed, origin="remote", force=True).changed == {"joined": 3}
    assert registry.service("joined").service.origin == "remote", "a remote change removes the trust"


def test_operator_who_applies_other_definitions_imports_no_remote_code(
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


def test_force_marks_only_breaking_changes_as_forced(registry: Registry) -> None:
    registry.apply(CITY)
    registry.apply(loads("services: {fast: {from: gps, pipeline: [{filter: speed > 90}]}}"), force=True)
    assert not registry.service("fast").forced


def test_prune_removes_definitions_that_are_not_given(registry: Registry) -> None:
    registry.apply(CITY)
    changes = registry.apply(loads(f"{STREAMS}services:\n{FAST}"), prune=True)
    assert (changes.removed, changes.unchanged) == ({"cars": 1}, {"gps": 1, "anpr": 1, "fast": 1})
    assert list(registry.services()) == ["fast"]


def test_input_of_a_service_can_not_be_removed(registry: Registry) -> None:
    registry.apply(CITY)
    with pytest.raises(RegistryError, match="'gps' can't be removed: fast reads it"):
        registry.remove("gps")
    with pytest.raises(RegistryError, match="'fast' can't be removed: cars reads it"):
        registry.remove("fast")
    assert registry.definitions() == CITY


def test_re_added_name_continues_its_versions(registry: Registry) -> None:
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


def test_definitions_that_no_file_can_express_are_refused(registry: Registry) -> None:
    schema = Schema({"a": "bool"})
    with pytest.raises(DefinitionError, match=r"streams\._a: names that start with _ are reserved"):
        registry.apply(Definitions({"_a": Stream("_a", schema)}))
    custom = Custom("math:sqrt", schema, {"at": datetime(2026, 1, 1, tzinfo=UTC)})
    with pytest.raises(RegistryError, match="expected definitions of JSON values"):
        registry.apply(Definitions({"a": Stream("a", schema)}, {"s": Service("s", ("a",), (custom,))}))
    assert (registry.definitions(), registry.revision()) == (Definitions(), 0)


def test_stream_can_be_replaced_by_a_service(registry: Registry) -> None:
    registry.apply(CITY)
    registry.apply(loads("services: {anpr: {from: gps}}"))
    assert ("anpr" in registry.streams(), registry.service("anpr").version) == (False, 2)


def test_unknown_name_raises_with_a_hint(registry: Registry) -> None:
    registry.apply(CITY)
    with pytest.raises(RegistryError, match=r"there is no service 'fats'; did you mean 'fast'\?"):
        registry.service("fats")
    with pytest.raises(RegistryError, match="there is no stream 'fast'"):
        registry.stream("fast")
    with pytest.raises(RegistryError, match="there is no stream or service 'nothing'"):
        registry.remove("nothing")
    assert registry.history("nothing") == registry.history("nu\0l") == []
