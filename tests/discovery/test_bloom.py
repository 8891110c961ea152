"""Bloom vectors of attributes, and their statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.discovery.attributes import AttributeKey
from tidegate.discovery.bloom import Bloom, b_coverage, coverage
from tidegate.discovery.vectors import Vectors, each_bit, forms, packed, positions

keys = st.tuples(st.text("abcdef", min_size=1, max_size=3), st.sampled_from(["number", "text"]))
blooms = st.builds(Bloom, st.sampled_from([8, 64, 100, 500, 1_024]), st.integers(1, 4))


@given(blooms, st.sets(keys), st.sets(keys, min_size=1))
def test_count_of_whole_attributes_is_an_upper_bound_of_coverage(
    bloom: Bloom, service: set[AttributeKey], wanted: set[AttributeKey]
) -> None:
    vectors = Vectors(bloom.bits)
    slot = vectors.take("s")
    vectors.turn(slot, positions(bloom.vector(service)), on=True)
    counted = vectors.count(forms([[bloom.positions(key)] for key in wanted]), 1)[slot]
    assert counted >= round(coverage(service, wanted) * len(wanted))


def test_b_coverage_is_no_upper_bound_of_coverage() -> None:
    bloom = Bloom(500, 3)
    rng = np.random.default_rng(3)
    under = 0
    for _ in range(300):
        universe = [(f"a{n}", "number") for n in rng.permutation(10_000)[:200]]
        service = universe[: rng.integers(1, 120)]
        request = universe[rng.integers(0, 100) :][: rng.integers(1, 60)]
        under += b_coverage(bloom.vector(service), bloom.vector(request)) < coverage(service, request) - 1e-9
    assert under > 0


@given(blooms, st.sets(keys), st.sets(keys, min_size=1))
def test_counting_bits_is_b_coverage(bloom: Bloom, service: set[AttributeKey], request_: set[AttributeKey]) -> None:
    vectors = Vectors(bloom.bits)
    slot = vectors.take("s")
    row, wanted = bloom.vector(service), bloom.vector(request_)
    vectors.turn(slot, positions(row), on=True)
    assert vectors.row(slot).tolist() == row.tolist()
    shared = vectors.count(each_bit(wanted), 1)[slot]
    assert shared / len(positions(wanted)) == pytest.approx(b_coverage(row, wanted))


@given(st.sets(st.integers(0, 999)))
def test_vector_has_exactly_the_set_bits(bits: set[int]) -> None:
    assert positions(packed(sorted(bits), 1_000)).tolist() == sorted(bits)


@pytest.mark.parametrize(("m", "k"), [(500, 1), (500, 4), (1_000, 3), (2_000, 2)])
def test_formula_2_predicts_the_mean_b_coverage(m: int, k: int) -> None:
    bloom = Bloom(m, k)
    rng = np.random.default_rng(m + k)
    for sizes in ((100, 100, 50), (20, 100, 10), (150, 60, 0)):
        n1, n2, n = sizes
        actual = []
        for _ in range(60):
            universe = [(f"a{x}", "text") for x in rng.integers(0, 2**60, n1 + n2 - n)]
            actual.append(b_coverage(bloom.vector(universe[:n1]), bloom.vector(universe[n1 - n :])))
        assert np.mean(actual) == pytest.approx(
            bloom.expected_b_coverage(*sizes), abs=4 * np.std(actual) / 60**0.5 + 0.002
        )


def test_paper_example() -> None:
    service = [(name, "number") for name in ("n1", "n2", "n3", "n4")]
    request = [(name, "number") for name in ("n1", "n2", "n3", "n5")]
    assert coverage(service, request) == 0.75


def test_invalid_bloom_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 1 to 1,048,576 bits, not 0"):
        Bloom(0)
    with pytest.raises(ValueError, match="expected 1 to 8 hashes, not 9"):
        Bloom(hashes=9)
