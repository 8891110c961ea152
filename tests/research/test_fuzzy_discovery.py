"""The fuzzy discovery algorithm of the paper, as printed and corrected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.test_fits import CHEAP, rows
from tidegate import Filter
from tidegate.research.fuzzy_discovery import PaperMatching


def test_algorithm_as_printed_matches_a_service_without_any_membership() -> None:
    nothing = {"price": 100, "rate": 20, "region": "north"}
    printed, corrected = (PaperMatching.of(CHEAP, corrected=item) for item in (False, True))
    assert printed.degree(nothing) == 1.0
    assert printed.matches(nothing)
    assert corrected.degree(nothing) is None
    assert not corrected.matches(nothing)
    assert not CHEAP.matches(nothing)


@given(st.lists(rows, max_size=8))
def test_corrected_algorithm_agrees_with_a_fuzzy_group(services: list[dict[str, Any]]) -> None:
    corrected = PaperMatching.of(CHEAP)
    expected = [n for n, row in enumerate(services) if CHEAP.matches(row)]
    assert corrected.match(services) == expected
    for n in expected:
        assert corrected.degree(services[n]) == pytest.approx(CHEAP.degree(services[n]))


def test_paper_algorithm_accepts_one_fuzzy_group_only() -> None:
    with pytest.raises(ValueError, match=r"expected one fuzzy group, such as FUZZY.*, not price < 3"):
        PaperMatching.of(Filter("price < 3"))
