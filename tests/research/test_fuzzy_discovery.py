"""The fuzzy discovery algorithm of the paper, as printed and corrected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.test_fits import CHEAP, rows
from tidegate import Filter
from tidegate.research.fuzzy_discovery import PaperMatching


def test_as_printed_a_service_that_fits_not_at_all_matches_fully() -> None:
    nothing = {"price": 100, "rate": 20, "region": "north"}
    printed, corrected = (PaperMatching.of(CHEAP, corrected=each) for each in (False, True))
    assert printed.degree(nothing) == 1.0
    assert printed.matches(nothing)
    assert corrected.degree(nothing) is None
    assert not corrected.matches(nothing)
    assert not CHEAP.matches(nothing)


@given(st.lists(rows, max_size=8))
def test_the_mended_algorithm_is_a_fuzzy_group_with_the_papers_thresholds(services: list[dict[str, Any]]) -> None:
    corrected = PaperMatching.of(CHEAP)
    expected = [n for n, row in enumerate(services) if CHEAP.matches(row)]
    assert corrected.match(services) == expected
    for n in expected:
        assert corrected.degree(services[n]) == pytest.approx(CHEAP.degree(services[n]))


def test_the_algorithm_takes_one_group() -> None:
    with pytest.raises(ValueError, match=r"expected one fuzzy group, such as FUZZY.*, not price < 3"):
        PaperMatching.of(Filter("price < 3"))
