"""Durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model import units


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_duration_survives_a_round_trip(length: float) -> None:
    assert units.seconds(units.duration_text(length)) == length


@given(st.integers(min_value=0, max_value=10**18))
def test_size_survives_a_round_trip(size: int) -> None:
    assert units.size_bytes(units.size_text(size)) == size


@pytest.mark.parametrize("text", ["", "s", "60", "60 sec", "-1s", "1e3s", "sixty", "1s2m", "\u0661s", f"{'9' * 400}s"])
def test_invalid_duration_is_none(text: str) -> None:
    assert units.seconds(text) is None


@pytest.mark.parametrize(("text", "size"), [("1gb", 10**9), ("1 KiB", 1024), ("0.5MB", 500_000), ("7B", 7)])
def test_sizes(text: str, size: int) -> None:
    assert units.size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "10", "10 megabytes", "-1B"])
def test_invalid_size_is_none(text: str) -> None:
    assert units.size_bytes(text) is None
