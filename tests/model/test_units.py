"""Lengths of time and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model import units


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_a_length_of_time_reads_back(length: float) -> None:
    assert units.seconds(units.duration_text(length)) == length


@given(st.integers(min_value=0, max_value=10**18))
def test_a_size_reads_back(size: int) -> None:
    assert units.size_bytes(units.size_text(size)) == size


@pytest.mark.parametrize("text", ["", "s", "60", "60 sec", "-1s", "1e3s", "sixty", "1s2m", "\u0661s", f"{'9' * 400}s"])
def test_what_is_no_length_of_time(text: str) -> None:
    assert units.seconds(text) is None


@pytest.mark.parametrize(("text", "size"), [("1gb", 10**9), ("1 KiB", 1024), ("0.5MB", 500_000), ("7B", 7)])
def test_sizes(text: str, size: int) -> None:
    assert units.size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "10", "10 megabytes", "-1B"])
def test_what_is_no_size(text: str) -> None:
    assert units.size_bytes(text) is None
