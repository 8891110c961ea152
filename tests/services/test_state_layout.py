"""The effect of a new version of a service on its state."""

from __future__ import annotations

import pytest

from tidegate.services import check, loads
from tidegate.services.operators.state_layout import StateChange, StateLayout, compare_layouts

STREAMS = """
streams:
  a: {schema: {vid: string, speed: float64, n: int64, time: timestamp}, event_time: time, key: vid}
  b: {schema: {vid: string, level: int64, time: timestamp}, event_time: time, key: vid}
"""
COUNTS = "{aggregate: {count: c, by: [vid], window: {length: 10s}}}"


def layouts(pipeline: str, inputs: str = "a", streams: str = STREAMS) -> tuple[StateLayout, ...]:
    shapes = check(loads(f"{streams}services: {{out: {{from: {inputs}, pipeline: [{pipeline}]}}}}"))
    return shapes["out"].layouts


def change(old: str, new: str, inputs: str = "a") -> str:
    return str(compare_layouts(layouts(old, inputs), layouts(new, inputs)))


@pytest.mark.parametrize(
    ("old", "new", "inputs"),
    [
        (COUNTS, f'{{filter: "n > 3"}}, {COUNTS}', "a"),
        (COUNTS, COUNTS.replace("10s", "10s, lateness: 3s"), "a"),
        (COUNTS, COUNTS.replace("count: c", "count: events"), "a"),
        (COUNTS.replace("count: c", "count: c, sum: {n: total}"), COUNTS, "a"),
        (COUNTS, COUNTS.replace("}}}", "}, having: c > 3}}"), "a"),
        (COUNTS, COUNTS, "[a]"),
        (COUNTS, f"{COUNTS}, {{project: {{vid: vid, c: c}}}}", "a"),
        (
            "{sort: {by: [n], window: {length: 10s}}}",
            "{sort: {by: [-speed], limit: 3, window: {length: 10s}}}",
            "a",
        ),
        ("{join: {on: vid, within: 2s}}", "{join: {on: vid, within: 9s, how: left}}", "[a, b]"),
        ("{deduplicate: {by: [vid]}}", "{deduplicate: {by: [vid], within: 1m}}", "a"),
        ("{lookup: {from: b, on: vid}}", "{lookup: {from: b, on: vid, required: true}}", "a"),
        (
            "{pattern: {by: [vid], steps: [{slow: speed < 1, for: 5m}]}}",
            "{pattern: {by: [vid], steps: [{slow: speed < 2, for: 6m}], within: 1h}}",
            "a",
        ),
    ],
)
def test_change_keeps_the_state(old: str, new: str, inputs: str) -> None:
    assert change(old, new, inputs) == "keeps"


@pytest.mark.parametrize(
    ("old", "new", "inputs", "reason"),
    [
        (COUNTS, COUNTS.replace("10s", "20s"), "a", "the window of aggregate was 10s every 10s and is 20s every 20s"),
        (COUNTS, COUNTS.replace("by: [vid], ", ""), "a", "the by of aggregate was vid (string) and is nothing"),
        (COUNTS, COUNTS.replace("}}}", "}, emit: updates}}"), "a", "the emit of aggregate was final and is updates"),
        (
            COUNTS,
            COUNTS.replace("10s", "10 events"),
            "a",
            "aggregate is now aggregate by count",
        ),
        (COUNTS, COUNTS.replace("length: 10s", "session: 10s"), "a",
         "the window of aggregate was 10s every 10s and is sessions with gaps of 10s"),
        (COUNTS, f"{COUNTS}, {{deduplicate: {{by: [vid]}}}}", "a", "the pipeline has 2 steps with state, and had 1"),
        (COUNTS, '{filter: "n > 3"}', "a", "the pipeline has 0 steps with state, and had 1"),
        ("{join: {on: vid, within: 2s}}", "{join: {on: [], within: 2s}}", "[a, b]",
         "the on of join was vid (string) and is nothing"),
        ("{join: {on: vid, within: 2s}}", "{join: {on: vid, window: {length: 4 events}}}", "[a, b]",
         "join is now join by count"),
        (
            "{pattern: {by: [vid], steps: [{slow: speed < 1, for: 5m}]}}",
            "{pattern: {by: [vid], steps: [{slow: speed < 1, times: 3}]}}",
            "a",
            "the steps of pattern was slow 1..1 lasting and is slow 3..3",
        ),
    ],
)  # fmt: skip
def test_changed_layout_discards_the_state(old: str, new: str, inputs: str, reason: str) -> None:
    assert change(old, new, inputs) == f"starts anew: {reason}"


def test_new_aggregates_and_attributes_migrate_the_state() -> None:
    more = COUNTS.replace("count: c", "count: c, max: {speed: top}, percentile: {speed: {middle: 0.5}}")
    assert change(COUNTS, more) == (
        "migrates: max(speed) begins with the next event; percentile(speed) begins with the next event"
    )
    ordered = "{sort: {by: [n], window: {length: 10s}}}"
    assert change(ordered, f"{{project: {{vid: vid, speed: speed, n: n, time: time, twice: n * 2}}}}, {ordered}") == (
        "migrates: twice begins with the next event"
    )


def test_changed_attribute_type_discards_the_state() -> None:
    wider = STREAMS.replace("n: int64", "n: float64")
    sums = "{aggregate: {sum: {n: total}, by: [vid], window: {length: 10s}}}"
    changed = compare_layouts(layouts(sums), layouts(sums, streams=wider))
    assert str(changed) == "starts anew: sum(n) in aggregate was int64 and is float64"


def test_layout_survives_json() -> None:
    for layout in layouts("{join: {on: vid, within: 2s}}", "[a, b]"):
        assert StateLayout.from_dict(layout.to_dict()) == layout


def test_service_without_state_has_no_layout() -> None:
    assert layouts('{filter: "n > 3"}') == ()
    assert compare_layouts((), ()) == StateChange("keeps")
