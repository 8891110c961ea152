"""`tidegate semantics`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.semantics.spaces import CITY
from tidegate import MissingDependency, SpaceError
from tidegate.cli.main import app


def run(*args: str) -> str:
    result = CliRunner().invoke(app, ["semantics", *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "articles"
    folder.mkdir()
    for document in CITY:
        (folder / f"{document.title}.txt").write_text(document.text)
    return folder


@pytest.fixture
def space(corpus: Path) -> str:
    run("build", str(corpus), "-o", str(corpus.parent / "space"), "--least-words", "1", "--least-documents", "1")
    return str(corpus.parent / "space")


def test_build_prints_a_summary_of_the_space(corpus: Path) -> None:
    out = str(corpus.parent / "space")
    printed = run("build", str(corpus), "-o", out, "--least-words", "7", "--least-documents", "2")
    assert printed == f"{out}: 7 terms over 5 documents of articles (39 words; too short and left out: 1)\n"


def test_build_prints_json(corpus: Path) -> None:
    out = str(corpus.parent / "space")
    described = json.loads(run("build", str(corpus), "-o", out, "--least-documents", "3", "--json"))
    assert described["parameters"] == {"least_words": 1, "least_documents": 3}
    assert described["corpus"]["name"] == "articles"
    assert (described["space"], described["terms"], described["postings"]) == (out, 2, 7)


def test_build_leaves_out_short_documents_of_a_large_corpus_only(corpus: Path, tmp_path: Path) -> None:
    described = json.loads(run("build", str(corpus), "-o", str(tmp_path / "small"), "--json"))
    assert described["parameters"] == {"least_words": 1, "least_documents": 1}
    assert described["corpus"]["documents"] == len(CITY)
    for n in range(3):
        (corpus / f"long {n}.txt").write_text("energy and power of a laptop " * 13_000)
    described = json.loads(run("build", str(corpus), "-o", str(tmp_path / "large"), "--json"))
    assert described["parameters"] == {"least_words": 100, "least_documents": 3}
    assert described["corpus"]["documents"] == 3


def test_inspect_shows_related_terms_and_documents(space: str) -> None:
    lines = run("inspect", "the parking xyzzy", "--space", space, "--to", "garage", "--count", "2").splitlines()
    assert lines[:4] == ["the parking xyzzy = park xyzzi", "unknown here: xyzzi", "", "related"]
    assert lines[4].split()[1:] in (["garage", "by", "Garage,", "Parking"], ["garage", "by", "Parking,", "Garage"])
    shown = [line.split()[1] for line in lines[5:] if line.startswith("  ")]
    assert shown == ["Parking", "Garage", "car", "garag"]


def test_inspect_with_a_theme_weights_its_documents(space: str) -> None:
    everywhere = json.loads(run("inspect", "power", "--space", space, "--json"))
    themed = json.loads(run("inspect", "power", "--space", space, "--theme", "politics", "--json"))
    assert (everywhere["basis"], themed["basis"], themed["documents"]) == (6, 1, 6)
    assert len(everywhere["concepts"]) == 4
    first, second, *_ = themed["concepts"]
    assert first["concept"] == "Politics"
    assert first["weight"] > 2 * second["weight"]
    assert {row["concept"] for row in themed["concepts"]} == {row["concept"] for row in everywhere["concepts"]}
    assert {"presid", "influenc"} <= {row["term"] for row in themed["nearest"]}
    assert "in politics: 1 of 6 documents" in run("inspect", "power", "--space", space, "--theme", "politics")


def test_space_is_an_option_or_an_environment_variable(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    named = run("inspect", "power", "--semantics", space)
    monkeypatch.setenv("TIDEGATE_SEMANTICS", space)
    assert run("inspect", "power") == named


def test_inspect_reports_a_term_of_stop_words_only(space: str) -> None:
    assert run("inspect", "the of", "--space", space) == "the of = only stop words\n"


def test_build_on_spark_without_pyspark_names_the_extra(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyspark", "tidegate.pipelines.semantics"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=r"is not installed: pip install 'tidegate\[spark\]'"):
        run("build", str(corpus), "-o", str(corpus.parent / "space"), "--spark")


def test_inspect_without_a_space_says_how_to_build_one(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="'tidegate semantics build' makes one"):
        run("inspect", "power", "--space", str(tmp_path / "none"))
