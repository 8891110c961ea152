"""Constraints that follow from the filters of a service."""

from __future__ import annotations

import pytest

from tidegate import Filter, UnsatisfiableFilter
from tidegate.services import loads, stream_schemas
from tidegate.services.derived import with_derived_constraints

STREAM = """
streams:
  gps:
    schema: {vid: string, speed: float64, "my lane": int32, pos: {x: float64}, time: timestamp}
    event_time: time
    constraints: {speed: ">= 0 OR speed IS NULL"}
services:
  fast: {from: gps, %s}
"""


def constraints(service: str) -> dict[str, str]:
    definitions = loads(STREAM % service)
    schema = stream_schemas(definitions)["fast"]
    return dict(with_derived_constraints(definitions.services["fast"], schema).constraints)


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("pipeline: [{filter: vid = 'B17'}]", {"speed": ">= 0 OR speed IS NULL", "vid": "= 'B17'"}),
        ("pipeline: [{filter: speed > 60}]", {"speed": "> 60 AND (speed >= 0 OR speed IS NULL)"}),
        (
            "pipeline: [{filter: \"NOT (pos.x <= 3 OR vid IN ('A'))\"}]",
            {"speed": ">= 0 OR speed IS NULL", "pos.x": "> 3", "vid": "NOT IN ('A')"},
        ),
        ("pipeline: [{filter: speed > 60 OR vid = 'A'}]", {"speed": ">= 0 OR speed IS NULL"}),
        ("pipeline: [{filter: speed * 2 > 60}]", {"speed": ">= 0 OR speed IS NULL"}),
        ("pipeline: [{filter: vid = 'A'}, {project: {vid: upper(vid), time: time}}]", {}),
        ("pipeline: [{filter: vid = 'A'}], mask: {vid: hmac}", {"speed": ">= 0 OR speed IS NULL"}),
        ("pipeline: []", {"speed": ">= 0 OR speed IS NULL"}),
    ],
)
def test_last_filters_constrain_the_output(service: str, expected: dict[str, str]) -> None:
    assert constraints(service) == expected


def test_filter_that_contradicts_a_derived_constraint_is_refused() -> None:
    definitions = loads(STREAM % "pipeline: [{filter: '\"my lane\" > 2'}, {filter: speed > 60}]")
    schema = with_derived_constraints(definitions.services["fast"], stream_schemas(definitions)["fast"])
    with pytest.raises(UnsatisfiableFilter, match="contradicts the constraint speed > 60"):
        Filter("speed * 3.6 < 100", schema)
    with pytest.raises(UnsatisfiableFilter, match='contradicts the constraint "my lane" > 2'):
        Filter('"my lane" = 1', schema)
    assert Filter("speed < 100", schema)
