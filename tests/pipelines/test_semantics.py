"""Spaces built on Spark: the same bytes as the plain builder's."""

from __future__ import annotations

import random
import subprocess
import sys
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
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def write_corpus(path: Path, count: int) -> None:
    chance = random.Random(7)
    words = [*WORDS, *(f"word{n}" for n in range(200)), "Zürich", "東京", "the"]
    texts = [" ".join(chance.choices(words, k=chance.randrange(30))) if n % 19 else None for n in range(count)]
    titles = [f"Title {n}" if n % 23 else None for n in range(count)]
    pq.write_table(pa.table({"id": range(count), "title": titles, "text": texts}), path, row_group_size=40)


def test_spark_and_the_plain_builder_make_the_same_space(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate.pipelines import semantics

    monkeypatch.setattr(semantics, "_CHUNK", 500)  # several chunks of a term
    corpus = tmp_path / "corpus.parquet"
    write_corpus(corpus, 400)
    parameters = Parameters(least_words=8, least_documents=3)
    build(open_corpus(corpus), tmp_path / "plain", name="corpus.parquet", parameters=parameters)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "16")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "8k")
    try:
        semantics.build(spark, corpus, tmp_path / "spark", parameters=parameters)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    for name in (*FILES, "space.json"):
        assert (tmp_path / "spark" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes(), name


def test_the_command_builds_on_a_spark_of_its_own(tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus.parquet", tmp_path / "space"
    write_corpus(corpus, 60)
    command = [sys.executable, "-m", "tidegate", "semantics", "build", str(corpus), "-o", str(out), "--spark"]
    told = subprocess.run([*command, "--least-words", "8"], capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"{out}: ")
    build(open_corpus(corpus), tmp_path / "plain", name="corpus.parquet", parameters=Parameters(8, 3))
    assert (out / "space.json").read_bytes() == (tmp_path / "plain" / "space.json").read_bytes()


def test_a_folder_of_files_is_read_by_their_names(spark: SparkSession, tmp_path: Path) -> None:
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


def test_what_is_no_corpus_is_named(spark: SparkSession, tmp_path: Path) -> None:
    from tidegate.pipelines import semantics

    with pytest.raises(SpaceError, match=r"none can't be read as Parquet: .*PATH_NOT_FOUND"):
        semantics.build(spark, tmp_path / "none", tmp_path / "space")
    pq.write_table(pa.table({"title": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(SpaceError, match=r"a.parquet has no column 'text'; it has title"):
        semantics.build(spark, tmp_path / "a.parquet", tmp_path / "space")
    assert not (tmp_path / "space").exists()
