"""Builds a semantic space on Spark: tasks on all cores count the terms of documents, and the driver merges the counts.

The result has the same bytes as that of the plain builder, for every kind of corpus. A task counts its split of the
corpus into a part, in a folder next to the space. A build that is started again after it was killed skips finished
parts. With several machines, all of them must see that folder.

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
"""Most rows of a file. The place of a document is the rank of its file times this, plus its row."""
_SPLIT = 1 << 24
"""Most pages of a split of a dump. The place of a document is the start of its split times this, plus its page."""
_TEXTS = 500
"""Text files per task."""
_SPLIT_BYTES = 8 << 20
"""Bytes of a file per task: small, so that a task that is lost costs seconds."""
_CLOSING = "</page>"

PlacedDocument = tuple[int, Document]
Reader = Callable[[Iterable[pa.RecordBatch]], Iterator[PlacedDocument]]
"""Converts batches that Spark has read to documents with their places in the corpus."""


def session() -> SparkSession:
    """Start a local Spark with small splits and small batches, since text grows when it is decompressed."""
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
    """Build the space of a corpus in a folder that does not exist yet. Raises SpaceError.

    Documents have the same numbers as with the plain builder. Another thread calls `counted` twice per second with the
    finished share, from 0 to 1.
    """
    parameters = parameters or Parameters()
    opened = open_corpus(corpus)
    frame, reader = _documents(spark, opened)
    tasks = frame.rdd.getNumPartitions()
    # Finished parts can only be used again by a build with the same splits.
    plan = plan_of(opened.fingerprint, parameters, f"spark, {tasks} splits")
    with BuildFolder(Path(folder), parameters, plan) as parts:
        if not parts.is_counted:
            with _reported(parts, tasks, counted):
                _count(frame.mapInArrow(_counting(parts.folder.resolve(), reader, parameters), "part int"), corpus)
            parts.all_counted()
        write(parts, Path(folder), name or opened.name, parameters)


def _documents(spark: SparkSession, corpus: Corpus) -> tuple[DataFrame, Reader]:
    """Return the frame of a corpus, and the reader that converts its batches to documents."""
    if isinstance(corpus, Folder):
        tasks = -(-len(corpus.files) // _TEXTS)
        return spark.range(0, len(corpus.files), 1, tasks), _texts(corpus.path, corpus.files)
    if isinstance(corpus, WikipediaDump):
        # One page per line, so that Spark can split a dump anywhere, also with bzip2.
        lines = spark.read.option("lineSep", _CLOSING).text(str(corpus.path))
        return lines.select(F.col("_metadata.file_block_start").alias("start"), "value"), _pages
    rows = spark.read.parquet(*map(str, corpus.files))
    ranks = {file.name: rank for rank, file in enumerate(corpus.files)}
    uris = (row[0] for row in rows.select("_metadata.file_path").distinct().collect())
    files = sorted(uris, key=lambda uri: ranks[unquote(uri.rpartition("/")[2])])
    rank = F.array_position(F.lit(files), F.col("_metadata.file_path")) - 1
    place = (rank * _FILE + F.col("_metadata.row_index")).alias("place")
    return rows.select(place, F.col("title").cast("string"), F.col("text").cast("string")).dropna(), _rows


def _texts(folder: Path, files: list[Path]) -> Reader:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[PlacedDocument]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield place, text_file(files[place], folder)

    return read


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[PlacedDocument]:
    for batch in batches:
        for place, title, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield place, Document(title, text)


def _pages(batches: Iterable[pa.RecordBatch]) -> Iterator[PlacedDocument]:
    """Read pages of a dump. The pages of a split are in order; splits may be in any order."""
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
                parsed = article(ElementTree.fromstring(line[begin:] + _CLOSING))
            except ElementTree.ParseError as exc:
                raise SpaceError(f"the dump can't be read to its end: {exc}") from exc
            if parsed is not None:
                yield start * _SPLIT + page, Document(parsed[0], plain_text(parsed[1]))


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
    """Run the tasks. Raises SpaceError with the message that the plain builder would give."""
    try:
        tasks.collect()
    except (PySparkException, Py4JError) as exc:
        ours = re.search(r"SpaceError: (.+)", str(exc))
        message = ours[1] if ours else f"{corpus} can't be read to its end: {_cause(str(exc))}"
        raise SpaceError(message) from exc


def _cause(message: str) -> str:
    """Return the root cause in a message of Spark: the last error that it names.

    >>> _cause("An error occurred while calling o1.collect.\\nCaused by: java.io.IOException: bad block\\n\\tat a.b")
    'bad block'
    """
    errors: list[str] = re.findall(r"^(?:Caused by: )?[\w.$]+(?:Error|Exception): (.+)", message, re.MULTILINE)
    return (errors or message.splitlines())[-1].strip()


@contextmanager
def _reported(parts: BuildFolder, tasks: int, counted: Callable[[float], None] | None) -> Iterator[None]:
    """Call `counted` with the finished share twice per second, until the block ends."""
    if counted is None:
        yield
        return
    finished = threading.Event()

    def report() -> None:
        while not finished.wait(0.5):
            counted(len(parts.finished()) / max(1, tasks))

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        finished.set()
        reporter.join()
