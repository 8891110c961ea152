"""Spaces built on Spark: the same bytes as the plain builder's."""

from __future__ import annotations

import bz2
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.semantics.spaces import WORDS
from tidegate import SpaceError
from tidegate.semantics.builder import build
from tidegate.semantics.corpora import open_corpus
from tidegate.semantics.storage import FILES, Parameters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def write_corpus(path: Path, count: int) -> None:
    chance = random.Random(7)
    words = [*WORDS, *(f"word{n}" for n in range(200)), "Zürich", "東京", "the"]
    texts = [" ".join(chance.choices(words, k=chance.randrange(30))) if n % 19 else None for n in range(count)]
    titles = [f"Title {n}" if n % 23 else None for n in range(count)]
    pq.write_table(pa.table({"id": range(count), "title": titles, "text": texts}), path, row_group_size=40)


def write_texts(folder: Path, count: int) -> None:
    chance = random.Random(8)
    for number in range(count):
        (folder / f"sub {number % 3}").mkdir(parents=True, exist_ok=True)
        text = " ".join(chance.choices([*WORDS, "Zürich"], k=chance.randrange(30)))
        (folder / f"sub {number % 3}" / f"text {number}.txt").write_text(text)


def write_dump(path: Path, count: int) -> None:
    chance = random.Random(9)
    pages = []
    for number in range(count):
        # Words that do not repeat much: so that bzip2 has blocks enough to be split between.
        words = [*chance.choices([*WORDS, "Zürich"], k=20), *(f"x{chance.getrandbits(40):x}" for _ in range(60))]
        kind = "<ns>1</ns>" if number % 11 == 0 else "<ns>0</ns>"
        text = f"<revision><text>'''{' '.join(words)}''' &lt;br/&gt;</text></revision>"
        pages.append(f"<page><title>Page {number}</title>{kind}{text}</page>")
    data = "<mediawiki xmlns='http://www.mediawiki.org/xml/export-0.11/'>\n" + "\n".join(pages) + "\n</mediawiki>\n"
    path.write_bytes(bz2.compress(data.encode(), 1) if path.suffix == ".bz2" else data.encode())


def same(a: Path, b: Path) -> None:
    for name in (*FILES, "space.json"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name


@pytest.fixture
def small_splits(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many tasks, several batches each."""
    from tidegate.pipelines import semantics

    monkeypatch.setattr(semantics, "_TEXTS", 7)
    changed = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
        "spark.sql.files.maxPartitionBytes": "32k",
        "spark.sql.files.openCostInBytes": "0",
    }
    before = {key: spark.conf.get(key, None) for key in changed}
    for key, value in changed.items():
        spark.conf.set(key, value)
    yield
    for key, old in before.items():
        if old is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, old)


@pytest.mark.usefixtures("small_splits")
@pytest.mark.parametrize("name", ["corpus.parquet", "tables", "texts", "dump.xml", "dump.xml.bz2"])
def test_spark_and_the_plain_builder_make_the_same_space(spark: SparkSession, tmp_path: Path, name: str) -> None:
    from tidegate.pipelines import semantics

    corpus = tmp_path / name
    if name == "corpus.parquet":
        write_corpus(corpus, 2_000)
    elif name == "tables":
        corpus.mkdir()
        for number in range(12):
            write_corpus(corpus / f"{number} %20.parquet", 40)
    elif name == "texts":
        write_texts(corpus, 40)
    else:
        write_dump(corpus, 700)
    parameters = Parameters(least_words=8, least_documents=3)
    build(open_corpus(corpus), tmp_path / "plain", parameters=parameters)
    told: list[float] = []
    semantics.build(spark, corpus, tmp_path / "spark", parameters=parameters, counted=told.append)
    same(tmp_path / "spark", tmp_path / "plain")
    assert all(0 <= each <= 1 for each in told)
    assert not (tmp_path / "spark.building").exists()


@pytest.mark.usefixtures("small_splits")
def test_bzip2_dump_is_read_in_several_splits(spark: SparkSession, tmp_path: Path) -> None:
    from tidegate.pipelines import semantics

    write_dump(tmp_path / "dump.xml.bz2", 700)
    frame, _ = semantics._documents(spark, open_corpus(tmp_path / "dump.xml.bz2"))
    assert frame.rdd.getNumPartitions() > 3


@pytest.mark.usefixtures("small_splits")
def test_failed_build_resumes_after_finished_parts(spark: SparkSession, tmp_path: Path) -> None:
    from tidegate.pipelines import semantics

    corpus = tmp_path / "texts"
    write_texts(corpus, 40)
    broken = sorted(corpus.rglob("*.txt"))[25]
    good, about = broken.read_bytes(), broken.stat()
    broken.write_bytes(b"\xff" * len(good))  # a disk that gives wrong bytes once: neither size nor time tell of it
    os.utime(broken, ns=(about.st_atime_ns, about.st_mtime_ns))
    with pytest.raises(SpaceError, match=rf"^{re.escape(str(broken))} can't be read as UTF-8: .* position 0"):
        semantics.build(spark, corpus, tmp_path / "space", parameters=Parameters(1, 1))
    parts = {part.name: part.stat().st_mtime_ns for part in (tmp_path / "space.building").glob("part-*")}
    assert 0 < len(parts) < 6
    broken.write_bytes(good)
    os.utime(broken, ns=(about.st_atime_ns, about.st_mtime_ns))
    told: list[float] = []
    semantics.build(spark, corpus, tmp_path / "space", parameters=Parameters(1, 1), counted=told.append)
    build(open_corpus(corpus), tmp_path / "plain", parameters=Parameters(1, 1))
    same(tmp_path / "space", tmp_path / "plain")


def test_truncated_dump_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    from tidegate.pipelines import semantics

    path = tmp_path / "dump.xml"
    write_dump(path, 30)
    data = path.read_bytes()
    for cut in (data[:-15], data[:-60]):
        path.write_bytes(cut)
        with pytest.raises(SpaceError, match=r"^the dump can't be read to its end: (it ends|mismatched|not well)"):
            semantics.build(spark, path, tmp_path / "space", parameters=Parameters(1, 1))
    path = tmp_path / "dump.xml.bz2"
    write_dump(path, 700)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SpaceError, match=r"dump.xml.bz2 can't be read to its end: (?!An error occurred)"):
        semantics.build(spark, path, tmp_path / "space", parameters=Parameters(1, 1))


def test_command_builds_with_its_own_spark(tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus.parquet", tmp_path / "space"
    write_corpus(corpus, 60)
    command = [sys.executable, "-m", "tidegate", "semantics", "build", str(corpus), "-o", str(out), "--spark"]
    told = subprocess.run(
        [*command, "--least-words", "8", "--least-documents", "3"], capture_output=True, text=True, check=True
    ).stdout
    assert told.startswith(f"{out}: ")
    build(open_corpus(corpus), tmp_path / "plain", name="corpus.parquet", parameters=Parameters(8, 3))
    assert (out / "space.json").read_bytes() == (tmp_path / "plain" / "space.json").read_bytes()


def test_files_of_a_folder_are_read_by_name(spark: SparkSession, tmp_path: Path) -> None:
    from tidegate import Space
    from tidegate.pipelines import semantics

    (tmp_path / "corpus").mkdir()
    for name, text in (("b", "car street"), ("a", "energy power")):
        pq.write_table(pa.table({"title": [name.upper()], "text": [text]}), tmp_path / "corpus" / f"{name}.parquet")
    semantics.build(spark, tmp_path / "corpus", tmp_path / "space", parameters=Parameters(1, 1))
    space = Space.open(tmp_path / "space", verify=True)
    assert [space.titles[0], space.titles[1]] == ["A", "B"]
    found = space.occurrences("car")
    assert found is not None
    assert found.documents.tolist() == [1]


def test_invalid_corpus_is_named(spark: SparkSession, tmp_path: Path) -> None:
    from tidegate.pipelines import semantics

    with pytest.raises(SpaceError, match=r"none does not exist: expected a folder"):
        semantics.build(spark, tmp_path / "none", tmp_path / "space")
    pq.write_table(pa.table({"title": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(SpaceError, match=r"a.parquet has no column 'text'; it has title"):
        semantics.build(spark, tmp_path / "a.parquet", tmp_path / "space")
    assert not (tmp_path / "space").exists()
