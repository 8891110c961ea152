"""The output of the matching benchmark, also if an engine or a peer is missing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import measure
from benchmarks.matching import figures, harness, large, million, report, workloads
from benchmarks.matching.harness import Row, Setting, SkippedError
from benchmarks.peers import event_ruler
from tidegate.cli.main import app

QUICK = Setting(quick=True)


def two_rows(_: Setting) -> Iterator[Row]:
    yield harness.row("fast", 1_200_000.0, "events/s", at_least=1_000_000, per_cpu_s=1.3e6)
    yield harness.row("slow", 2.0, "ms", below=1, **harness.compared(2.0, "a peer", 4.0))


def nothing(setting: Setting) -> Iterator[Row]:
    if setting.quick:
        raise SkippedError("it is not there")
    yield from ()


def drawn(_: Setting) -> figures.Figure:
    return figures.Figure("figure-1", "One", "filters", True, {"tree": [(1, 2.0), (10, 1.0)], "none": []}, ["a note"])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "STEPS", {"some": two_rows, "none": nothing})
    monkeypatch.setattr(report, "FIGURES", {"figure 1": drawn})


@pytest.mark.usefixtures("small")
def test_results_are_one_folder_of_json_and_charts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.run(quick=True, as_json=True, out=tmp_path)
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "matching" / "matching.json").read_text())
    assert {"commit", "cpu", "cores", "python", "numba", "event-ruler"} <= set(printed["environment"])
    fast, slow = printed["tables"]["some"]
    assert (fast["target"], fast["met"], slow["target"], slow["met"]) == (">= 1,000,000", True, "< 1", False)
    assert slow["ratio"] == 0.5
    assert printed["tables"]["none"] == [{"what": "none", "skipped": "it is not there"}]
    assert printed["figures"]["figure-1"]["series"] == {"tree": [[1, 2.0], [10, 1.0]], "none": []}
    assert "tree" in (tmp_path / "matching" / "figure-1.svg").read_text()


@pytest.mark.usefixtures("small")
def test_terminal_shows_values_targets_and_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    done = CliRunner().invoke(app, ["bench", "matching", "--quick", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for text in ("1.2 M events/s", ">= 1,000,000", "yes", "a peer: 4, ratio 0.5", "it is not there", "a note"):
        assert text in done.output


def test_command_lists_the_area() -> None:
    assert "filters, matching" in CliRunner().invoke(app, ["bench", "--help"]).output


def test_unknown_engine_or_option_is_skipped() -> None:
    with pytest.raises(SkippedError, match="unknown engine 'columns'"):
        harness.filled([], "columns")
    with pytest.raises(SkippedError, match="colour"):
        harness.filled([], colour="red")


def test_refused_form_of_events_is_skipped() -> None:
    with pytest.raises(SkippedError, match="expected"):
        harness.speed(QUICK, harness.filled(["speed > 3"]), [object()])


def test_filling_ends_at_its_limit() -> None:
    with pytest.raises(SkippedError, match="adding more than 1 filters to scan takes longer than 0 s"):
        harness.filled(["speed > 3", "speed > 4"], "scan", limit_s=0)


def test_filters_are_made_once() -> None:
    workload = workloads.Workload("some", 20)
    ten = harness.made(workload, 10)
    assert [f.text for f in harness.made(workload)] == list(workload.texts())
    assert all(a is b for a, b in zip(ten, harness.made(workload), strict=False))


def test_quick_run_leaves_out_a_million_filters() -> None:
    assert [row["skipped"] for row in million.million(QUICK)] == ["--quick"]


def test_million_filters_run_in_their_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "MILLION", replace(workloads.MILLION, count=50))
    monkeypatch.setattr(million, "LASTING_S", 0.01)
    speed, memory = million.million(Setting(quick=False))
    assert speed["value"] > 0
    assert speed["build_s"] > 0
    assert 0.01 < memory["at_start_gb"] <= memory["value"] < 2


def test_million_filters_that_fail_or_take_too_long_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "MILLION", replace(workloads.MILLION, count=-1))
    (failed,) = million.million(Setting(quick=False))
    assert failed["skipped"].startswith("failed: ")
    monkeypatch.setattr(million, "LIMIT_S", 0.01)
    (late,) = million.million(Setting(quick=False))
    assert late["skipped"] == "not done within 0.01 s"


def test_changes_are_measured_while_batches_are_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "batches", lambda: [workloads.batch(workloads.columns(50))])
    workload = workloads.Workload("some", 40)
    matcher = harness.filled(workload.filters(), "scan")
    found = large._sustained(matcher, workload.filters(40, 20), 0.05)
    assert found["unit"] == "changes/s"
    assert found["value"] > 0


def test_figure_has_a_line_for_every_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "BATCH", 100)
    figure = figures.Figure("f", "F", "filters", log_x=False)
    figures._by_engine(QUICK, figure, [(3, workloads.Workload("some", 3).filters())])
    assert set(figure.series) == set(figures.ENGINES)
    assert all(len(figure.series[engine]) == 1 for engine in ("scan", "tree", "counting", "columnar"))


def test_unavailable_peer_gives_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(event_ruler, "JARS", tmp_path / "jars")
    with pytest.raises(event_ruler.UnavailableError, match="mvn is not installed"):
        event_ruler.time([], [], warm_up_s=0, measure_s=0, timeout_s=1)


def test_failing_or_hanging_client_is_reported_with_its_message() -> None:
    with pytest.raises(event_ruler.UnavailableError, match="sh failed: no such thing"):
        event_ruler._run(["sh", "-c", "echo no such thing >&2; exit 3"], 10)
    with pytest.raises(event_ruler.UnavailableError, match=r"sleep did not end within 0\.05 s"):
        event_ruler._run(["sleep", "5"], 0.05)


def test_percentiles_and_medians_are_of_what_was_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [measure.percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    calls: list[int] = []
    taken = measure.taken(calls.append, [1, 2], repeats=5, budget_s=10)
    assert calls == [1, 1, 2, 1, 2, 1]
    assert taken.wall_s >= 0


def test_large_index_is_skipped_if_time_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "HUNDRED_THOUSAND", workloads.Workload("some", 60))
    monkeypatch.setattr(large, "FIRST", 20)
    (only,) = large.hundred_thousand(Setting(quick=True, until=time.perf_counter() + 1))
    assert "--quick: it would take" in only["skipped"]


def test_large_index_is_measured_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "HUNDRED_THOUSAND", workloads.Workload("some", 120))
    monkeypatch.setattr(large, "FIRST", 20)
    monkeypatch.setattr(large, "ONCE", {True: 30})
    monkeypatch.setattr(large, "LAG", 10)
    monkeypatch.setattr(large, "LASTING_S", {True: 0.05})
    for module in (large, harness):
        monkeypatch.setattr(module, "batches", lambda: [workloads.batch(workloads.columns(50))])
    rows = list(large.hundred_thousand(QUICK))
    assert len(rows) == 11
    assert all(row["value"] > 0 for row in rows)
