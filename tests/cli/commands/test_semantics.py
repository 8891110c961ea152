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
    ran = CliRunner().invoke(app, ["semantics", *args], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


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


def test_a_space_is_made_and_told(corpus: Path) -> None:
    out = str(corpus.parent / "space")
    told = run("build", str(corpus), "-o", out, "--least-words", "7", "--least-documents", "2")
    assert told == f"{out}: 7 terms over 5 documents of articles (39 words; too short and left out: 1)\n"


def test_a_space_is_described_for_programs(corpus: Path) -> None:
    out = str(corpus.parent / "space")
    found = json.loads(run("build", str(corpus), "-o", out, "--least-documents", "3", "--json"))
    assert found["parameters"] == {"least_words": 1, "least_documents": 3}
    assert found["corpus"]["name"] == "articles"
    assert (found["space"], found["terms"], found["postings"]) == (out, 2, 7)


def test_of_a_small_corpus_nothing_is_left_out_and_of_a_large_one_stubs_are(corpus: Path, tmp_path: Path) -> None:
    found = json.loads(run("build", str(corpus), "-o", str(tmp_path / "small"), "--json"))
    assert (found["parameters"], found["corpus"]["documents"]) == ({"least_words": 1, "least_documents": 1}, len(CITY))
    for n in range(3):
        (corpus / f"long {n}.txt").write_text("energy and power of a laptop " * 13_000)
    found = json.loads(run("build", str(corpus), "-o", str(tmp_path / "large"), "--json"))
    assert (found["parameters"], found["corpus"]["documents"]) == ({"least_words": 100, "least_documents": 3}, 3)


def test_a_term_is_looked_into(space: str) -> None:
    lines = run("inspect", "the parking xyzzy", "--space", space, "--to", "garage", "--count", "2").splitlines()
    assert lines[:4] == ["the parking xyzzy = park xyzzi", "unknown here: xyzzi", "", "related"]
    assert lines[4].split()[1:] in (["garage", "by", "Garage,", "Parking"], ["garage", "by", "Parking,", "Garage"])
    shown = [line.split()[1] for line in lines[5:] if line.startswith("  ")]
    assert shown == ["Parking", "Garage", "car", "garag"]


def test_a_term_is_looked_into_in_a_theme(space: str) -> None:
    everywhere = json.loads(run("inspect", "power", "--space", space, "--json"))
    themed = json.loads(run("inspect", "power", "--space", space, "--theme", "politics", "--json"))
    assert (everywhere["basis"], themed["basis"], themed["documents"]) == (6, 1, 6)
    assert len(everywhere["concepts"]) == 4
    first, second, *_ = themed["concepts"]
    assert first["concept"] == "Politics"
    assert first["weight"] > 2 * second["weight"]
    assert {each["concept"] for each in themed["concepts"]} == {each["concept"] for each in everywhere["concepts"]}
    assert {"presid", "influenc"} <= {each["term"] for each in themed["nearest"]}
    assert "in politics: 1 of 6 documents" in run("inspect", "power", "--space", space, "--theme", "politics")


def test_a_space_is_named_as_elsewhere(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    named = run("inspect", "power", "--semantics", space)
    monkeypatch.setenv("TIDEGATE_SEMANTICS", space)
    assert run("inspect", "power") == named


def test_a_term_that_means_nothing_says_so(space: str) -> None:
    assert run("inspect", "the of", "--space", space) == "the of = only stop words\n"


def test_spark_that_is_not_installed_is_named(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyspark", "tidegate.pipelines.semantics"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=r"is not installed: pip install 'tidegate\[spark\]'"):
        run("build", str(corpus), "-o", str(corpus.parent / "space"), "--spark")


def test_a_space_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="'tidegate semantics build' makes one"):
        run("inspect", "power", "--space", str(tmp_path / "none"))
