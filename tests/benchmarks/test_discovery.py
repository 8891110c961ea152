"""The measurements of the discovery benchmark, on small cases."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import benchmarks.discovery as area
from benchmarks.discovery import papers, registries, trials, workloads
from benchmarks.reporting import Row, Setting, Workload, measured
from tidegate.discovery.bloom import Bloom

QUICK = Setting(quick=True)


def two(_: Setting) -> Iterator[Row]:
    yield measured("fast", 30.0, "M vectors/s", least=20)


def test_results_and_figures_are_written_to_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(area, "WORKLOADS", {"some": two})
    monkeypatch.setattr(papers, "_means", lambda _m, _k, sizes, _some: [(0.5, 0.6)] * len(sizes))
    area.run(quick=True, as_json=True, out=tmp_path)
    printed = json.loads(capsys.readouterr().out)
    assert printed["tables"]["some"][0]["met"] is True
    assert {path.name for path in (tmp_path / "discovery").iterdir()} == {
        *("discovery.json", "figure-2.svg", "figure-3.svg", "figure-4.svg"),
    }
    assert "formula 2" in (tmp_path / "discovery" / "figure-2.svg").read_text()


def test_trials_are_those_of_the_paper() -> None:
    wrong, either, under = trials.compare(500, 3, 3_000, 1)
    assert 0.002 < wrong / 3_000 < 0.02
    assert wrong <= either
    assert under > 0
    assert trials.compare(500, 3, 3_000, 1) == (wrong, either, under)
    for sizes in ((50, 100, 20), (180, 40, 30)):
        found, noise = trials.mean(1_000, 2, *sizes, 2_000, 1)
        assert abs(found - Bloom(1_000, 2).expected_b_coverage(*sizes)) < 5 * noise + 0.001
    coverage, b_coverage = trials.by_size(1_000, 3, 100, 60, 500, 1)
    assert coverage == pytest.approx(0.3, abs=0.02)
    assert b_coverage > coverage


def test_table_iv_is_printed_beside_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "compare", lambda _m, _k, some, _seed: (some // 200, some // 100, some // 30))
    rows = list(papers.table_iv(QUICK))
    assert len(rows) == 17
    assert (rows[0]["value"], rows[0]["peer_value"], rows[0]["met"]) == (0.5, 0.48, True)


def test_services_and_requests_are_seeded() -> None:
    assert list(workloads.services(5)) == list(workloads.services(5))
    assert all(len(wanted) == 10 for wanted in workloads.requests(20))
    assert [offer.properties["price"] for offer in workloads.offers(3)] == [
        each["price"] for each in workloads.prices(3)
    ]
    assert len(set(workloads.wishes(4))) == 4


def test_memory_of_a_registry_does_not_count_what_was_freed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "SEARCHED", {True: 2_500})
    garbage: list[object] = [bytearray(b"x" * 300_000_000)]
    garbage.append(garbage)  # a cycle: only the garbage collector frees it
    gc.collect()  # so that it is in the oldest generation, which only a full collection frees
    del garbage
    rows = list(registries.million(QUICK))
    assert 0 <= rows[0]["value"] < 300


@pytest.mark.parametrize(
    "workload", [registries.million, registries.bitmaps, registries.directory, papers.fuzzy_services]
)
def test_small_registry_is_measured(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SEARCHED", "KEPT", "ASKED", "FITTED"):
        monkeypatch.setattr(workloads, name, {True: 2_500})
    rows = list(workload(QUICK))
    assert len(rows) >= 5
    assert all(row["value"] >= 0 for row in rows)
