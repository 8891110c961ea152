"""The helper that waits for a condition returns its value, and fails when it stays false."""

from __future__ import annotations

import asyncio

import pytest

from tests.polling import until, until_async


def test_value_of_the_condition_is_returned() -> None:
    values = iter(["", None, "found"])
    assert until(lambda: next(values), "a text") == "found"
    values = iter(["", None, "found"])
    assert asyncio.run(until_async(lambda: next(values), "a text")) == "found"


def test_condition_that_stays_false_fails_with_what_was_waited_for() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.01 s for the impossible"):
        until(lambda: False, "the impossible", 0.01)
    with pytest.raises(AssertionError, match=r"waited 0\.01 s for the impossible"):
        asyncio.run(until_async(lambda: False, "the impossible", 0.01))


def test_condition_that_is_true_from_the_start_is_checked_once() -> None:
    assert until(lambda: True, timeout_s=0.0)
