"""The benchmark of matching by meaning, on a space and a thesaurus of a few words."""

from __future__ import annotations

from pathlib import Path

from benchmarks.thematic_speed import measured
from tests.semantics.spaces import CITY, make

EUROVOC = {
    "concepts": {
        "1": {"pref": "motor car", "alt": ["automobile"], "rt": [2, 99], "top": True},
        "2": {"pref": "bus", "alt": [], "rt": [], "top": False},
    }
}


def test_benchmark_counts_matches(tmp_path: Path) -> None:
    make(tmp_path / "space", CITY)
    found = measured(str(tmp_path / "space"), EUROVOC, 105, 0.9, batches=1, size=200)
    assert found.events == 200
    assert found.index["filters"] > 90
    assert found.matches_per_event > 0
    assert min(found.events_per_s, found.dicts_per_s) > 0
