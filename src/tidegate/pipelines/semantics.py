"""A semantic space built on Spark: documents are counted where they are read, by all cores, and the driver merges.

The same bytes as the plain builder's, of every kind of corpus. A task counts its split of the corpus into a part,
beside the space; a part that is whole is not counted again when a build that was killed is started anew. On several
machines that place must be a folder that all of them see.

    Parquet, a dump, texts ──split──▶ task ──count──▶ part 0, part 1, ... ──merge──▶ the space
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.errors import SpaceError
from tidegate.pipelines.session import local_session
from tidegate.semantics.build_folder import BuildFolder, counting, is_finished, plan_of
from tidegate.semantics.builder import write
from tidegate.semantics.corpora import (
    Corpus,
    Document,
    Folder,
    WikipediaDump,
    article,
    open_corpus,
    plain_text,
    text_file,
)
from tidegate.semantics.storage import Parameters

_FILE = 1 << 40
"""Rows that a file may have: a document's place is the rank of its file, times this, and its row."""
_SPLIT = 1 << 24
"""Pages that a split of a dump may have: a document's place is where its split begins, times this, and its page."""
_TEXTS = 500
"""Text files that a task counts."""
_SPLIT_BYTES = 8 << 20
"""Bytes of a file that a task counts: as few as keep what is lost with a task in seconds."""
_CLOSING = "</page>"

Placed = tuple[int, Document]
Reader = Callable[[Iterable[pa.RecordBatch]], Iterator[Placed]]
"""Documents out of what Spark has read, each with its place in the corpus."""


def session() -> SparkSession:
    """A local Spark as a build needs it: small splits of files and small batches, as text grows when it is unpacked."""
    settings = {
        "spark.sql.files.maxPartitionBytes": str(_SPLIT_BYTES),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
    }
    return local_session("tidegate-semantics", os.cpu_count() or 2, settings)


def build(
    spark: SparkSession,
    corpus: Path | str,
    folder: Path | str,
    *,
    name: str = "",
    parameters: Parameters | None = None,
    counted: Callable[[float], None] | None = None,
) -> None:
    """Make a space of a corpus in a folder that is not there yet.

    Documents are numbered as the plain builder does. `counted` is called from time to time with the part that has been
    counted, from 0 to 1, by another thread.
    """
    parameters = parameters or Parameters()
    found = open_corpus(corpus)
    frame, reader = _documents(spark, found)
    tasks = frame.rdd.getNumPartitions()
    # Who cuts a corpus otherwise makes other parts of it: what was finished is of use only where the cuts are the same.
    plan = plan_of(found.fingerprint, parameters, f"spark, {tasks} splits")
    with BuildFolder(Path(folder), parameters, plan) as parts:
        if not parts.is_counted:
            with _told(parts, tasks, counted):
                _count(frame.mapInArrow(_counting(parts.folder.resolve(), reader, parameters), "part int"), corpus)
            parts.all_counted()
        write(parts, Path(folder), name or found.name, parameters)


def _documents(spark: SparkSession, corpus: Corpus) -> tuple[DataFrame, Reader]:
    """What Spark reads of a corpus, and how that becomes documents."""
    if isinstance(corpus, Folder):
        tasks = -(-len(corpus.files) // _TEXTS)
        return spark.range(0, len(corpus.files), 1, tasks), _texts(corpus.path, corpus.files)
    if isinstance(corpus, WikipediaDump):
        # A page a line: so Spark splits a dump wherever it likes, bzip2 too.
        lines = spark.read.option("lineSep", _CLOSING).text(str(corpus.path))
        return lines.select(F.col("_metadata.file_block_start").alias("start"), "value"), _pages
    rows = spark.read.parquet(*map(str, corpus.files))
    ranks = {each.name: rank for rank, each in enumerate(corpus.files)}
    seen = (row[0] for row in rows.select("_metadata.file_path").distinct().collect())
    files = sorted(seen, key=lambda uri: ranks[unquote(uri.rpartition("/")[2])])
    rank = F.array_position(F.lit(files), F.col("_metadata.file_path")) - 1
    place = (rank * _FILE + F.col("_metadata.row_index")).alias("place")
    return rows.select(place, F.col("title").cast("string"), F.col("text").cast("string")).dropna(), _rows


def _texts(folder: Path, files: list[Path]) -> Reader:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[Placed]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield place, text_file(files[place], folder)

    return read


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Placed]:
    for batch in batches:
        for place, title, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield place, Document(title, text)


def _pages(batches: Iterable[pa.RecordBatch]) -> Iterator[Placed]:
    """A split's pages come one after the other; splits may be in any order."""
    split = page = 0
    for batch in batches:
        for start, line in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            split, page = start, page + 1 if start == split else 0
            begin = line.find("<page>")
            if begin < 0 and "</mediawiki>" not in line:
                raise SpaceError("the dump can't be read to its end: it ends before </mediawiki>")
            if begin < 0:
                continue
            try:
                found = article(ElementTree.fromstring(line[begin:] + _CLOSING))
            except ElementTree.ParseError as exc:
                raise SpaceError(f"the dump can't be read to its end: {exc}") from exc
            if found is not None:
                yield start * _SPLIT + page, Document(found[0], plain_text(found[1]))


def _counting(folder: Path, reader: Reader, parameters: Parameters) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        number = task.partitionId() if task is not None else 0
        if not is_finished(folder, number):
            with counting(folder, number, parameters) as part:
                for place, document in reader(batches):
                    part.add(place, document.title, document.text)
        yield pa.RecordBatch.from_pydict({"part": pa.array([number], pa.int32())})

    return count


def _count(tasks: DataFrame, corpus: Path | str) -> None:
    """Run the tasks; what one of them says of the corpus is told as the plain builder would."""
    try:
        tasks.collect()
    except (PySparkException, Py4JError) as exc:
        ours = re.search(r"SpaceError: (.+)", str(exc))
        told = ours[1] if ours else f"{corpus} can't be read to its end: {_cause(str(exc))}"
        raise SpaceError(told) from exc


def _cause(told: str) -> str:
    """What went wrong at the bottom of all that Spark tells: the last error named in it.

    >>> _cause("An error occurred while calling o1.collect.\\nCaused by: java.io.IOException: bad block\\n\\tat a.b")
    'bad block'
    """
    errors: list[str] = re.findall(r"^(?:Caused by: )?[\w.$]+(?:Error|Exception): (.+)", told, re.MULTILINE)
    return (errors or told.splitlines())[-1].strip()


@contextmanager
def _told(parts: BuildFolder, tasks: int, counted: Callable[[float], None] | None) -> Iterator[None]:
    """Say how far it has come, twice a second, until the block ends."""
    if counted is None:
        yield
        return
    over = threading.Event()

    def tell() -> None:
        while not over.wait(0.5):
            counted(len(parts.finished()) / max(1, tasks))

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
