"""Runs the conformance file, which any implementation of the language can run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tidegate import Filter, Schema, TidegateError
from tidegate.model import arrow

FILE = Path(__file__).parents[2] / "conformance" / "filters.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").split("\n") if line]


def value(given: Any) -> Any:
    """Return a JSON value, with {"$nan": true}, {"$inf": 1} and {"$inf": -1} for what JSON can't express."""
    match given:
        case {"$nan": True}:
            return math.nan
        case {"$inf": sign}:
            return math.inf * sign
        case dict():
            return {key: value(item) for key, item in given.items()}
        case list():
            return [value(item) for item in given]
    return given


def schema_of(case: dict[str, Any]) -> Schema | None:
    if "schema" not in case:
        return None
    return Schema(case["schema"], constraints=case.get("constraints"), terms=case.get("terms"))


def make(case: dict[str, Any], text: str) -> Filter:
    return Filter(text, schema_of(case), case.get("params", ()), **case.get("options", {}))


def having(*keys: str) -> Any:
    return [pytest.param(case, id=case["id"]) for case in CASES if all(key in case for key in keys)]


@pytest.mark.parametrize("case", having("truth"))
def test_truth(case: dict[str, Any]) -> None:
    built, event = make(case, case["text"]), value(case["event"])
    assert built.truth(event) is case["truth"]
    assert built.matches(event) is (case["truth"] is True)
    if "degree" in case:
        assert built.degree(event) == pytest.approx(case["degree"], abs=1e-9)


# Without a schema an event may mix types that no Arrow column holds.
@pytest.mark.parametrize("case", having("truth", "schema"))
def test_truth_over_arrow(case: dict[str, Any]) -> None:
    schema = schema_of(case)
    assert schema is not None
    built = make(case, case["text"])
    batch = arrow.to_batch([value(case["event"])], schema)
    assert built.mask(batch).tolist() == [case["truth"] is True]
    if "degree" in case:
        assert built.degrees(batch)[0] == pytest.approx(case["degree"], abs=1e-9)


@pytest.mark.parametrize("case", having("error"))
def test_error(case: dict[str, Any]) -> None:
    with pytest.raises(TidegateError) as caught:
        make(case, case["text"])
    assert isinstance(caught.value, getattr(tidegate, case["error"]))
    if "at" in case:
        assert isinstance(caught.value, tidegate.FilterError)
        assert caught.value.position == case["at"]


@pytest.mark.parametrize("case", having("equal"))
def test_equal(case: dict[str, Any]) -> None:
    one, other = make(case, case["text"]), make(case, case["equal"])
    assert one == other
    assert (hash(one), str(one)) == (hash(other), str(other))


@pytest.mark.parametrize("case", having("unequal"))
def test_unequal(case: dict[str, Any]) -> None:
    assert make(case, case["text"]) != make(case, case["unequal"])


@pytest.mark.parametrize("case", having("covers"))
def test_covers(case: dict[str, Any]) -> None:
    one, other = make(case, case["text"]), make(case, case["covers"])
    assert one.covers(other) is case["expected"]
    if "witness" in case:
        event = value(case["witness"])
        assert other.matches(event)
        assert not one.matches(event)


@pytest.mark.parametrize("case", [case for case in CASES if "error" not in case], ids=lambda case: case["id"])
def test_canonical_text_of_each_case_parses_back(case: dict[str, Any]) -> None:
    built = make(case, case["text"])
    assert Filter(str(built), schema_of(case)) == built


def test_every_conformance_case_has_an_expectation() -> None:
    verdicts = {"truth", "error", "equal", "unequal", "covers"}
    assert all(len(verdicts & case.keys()) == 1 for case in CASES)
    assert len({case["id"] for case in CASES}) == len(CASES) > 1_000
