"""What the benchmark of thematic matching counts."""

from __future__ import annotations

import pytest

from benchmarks.thematic import best_f1, equal, exchangeable, measured, workload

EUROVOC = {
    "concepts": {
        "1": {"pref": "motor car", "alt": ["automobile"], "rt": [2, 99]},
        "2": {"pref": "bus", "alt": [], "rt": []},
    }
}


def test_a_perfect_ranking_is_one_and_ties_count_against_us() -> None:
    assert best_f1([[0.9, 0.8, 0.1]], [[True, True, False]]) == 1
    assert best_f1([[0.5, 0.5]], [[True, False]]) == pytest.approx(2 / 3)
    assert best_f1([[0.9, 0.1], [0.3, 0.3]], [[True, False], [False, False]]) == 1  # nothing is asked of the second


def test_words_are_exchanged_for_labels_of_their_concept_and_of_related_ones() -> None:
    assert exchangeable(EUROVOC) == {"motor car": ["automobile", "bus"], "automobile": ["bus", "motor car"], "bus": []}


def test_the_workload_is_the_same_each_time_and_not_to_be_solved_letter_by_letter() -> None:
    given = workload(exchangeable(EUROVOC))
    assert given == workload(exchangeable(EUROVOC))
    assert any(any(row) for row in given.relevant)
    assert measured(workload({}), equal)[0] == 1
    assert measured(given, equal)[0] < 1
