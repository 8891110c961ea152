"""A semantic space built on Spark: documents are counted where they are, and the driver writes what comes back.

The same bytes as the plain builder's. A document goes by the place of its row among all files until it is known how
many before it were too short; then it gets its number.

    Parquet ──count──▶ a row a document: place, title, words, peak   ──ordered by place──▶ titles, numbers
                       a row a term and chunk: places, counts        ──grouped by term, ordered──▶ postings
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.errors import SpaceError
from tidegate.pipelines.session import local_session
from tidegate.semantics.builder import Postings, Writing
from tidegate.semantics.storage import Array, Parameters
from tidegate.semantics.words import Analyser

_FILE = 1 << 40
"""Rows that a file may have: a document's place is the rank of its file, times this, and its row."""
_CHUNK = 1_000_000
"""Postings that a task holds before it sends them on, grouped by term."""

_COUNTED = pa.schema(
    [
        *(("place", pa.int64()), ("title", pa.string()), ("words", pa.int64()), ("peak", pa.int64())),
        *(("term", pa.string()), ("size", pa.int64()), ("places", pa.binary()), ("counts", pa.binary())),
    ]
)
_COUNTED_IN_SPARK = (
    "place long, title string, words long, peak long, term string, size long, places binary, counts binary"
)


def session() -> SparkSession:
    """A local Spark as a build needs it: small splits of files and small batches, as text grows when it is unpacked."""
    settings = {
        "spark.sql.files.maxPartitionBytes": "16m",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
        "spark.sql.shuffle.partitions": "8",
    }
    return local_session("tidegate-semantics", os.cpu_count() or 2, settings)


def build(
    spark: SparkSession, corpus: Path | str, folder: Path | str, *, name: str = "", parameters: Parameters | None = None
) -> None:
    """Make a space of Parquet with `title` and `text`, a file or a folder of them, in a folder that is not there yet.

    Documents are numbered by the names of their files and by their rows.
    """
    parameters = parameters or Parameters()
    documents = _documents(spark, Path(corpus))
    with Writing(folder, name or Path(corpus).name, parameters) as writing:
        counted = documents.mapInArrow(_counting(parameters), _COUNTED_IN_SPARK).persist(StorageLevel.DISK_ONLY)
        try:
            kept = _note_documents(counted, writing, parameters)
            writing.finish(_postings(counted, kept, parameters))
        finally:
            counted.unpersist()


def _documents(spark: SparkSession, corpus: Path) -> DataFrame:
    """The documents with their places."""
    try:
        rows = spark.read.parquet(str(corpus))
    except AnalysisException as exc:
        raise SpaceError(f"{corpus} can't be read as Parquet: {str(exc).splitlines()[0]}") from exc
    for column in ("title", "text"):
        if column not in rows.columns:
            raise SpaceError(f"{corpus} has no column {column!r}; it has {', '.join(rows.columns)}")
    files = sorted(row[0] for row in rows.select("_metadata.file_path").distinct().collect())
    rank = F.array_position(F.lit(files), F.col("_metadata.file_path")) - 1
    place = (rank * _FILE + F.col("_metadata.row_index")).alias("place")
    return rows.select(place, F.col("title").cast("string"), F.col("text").cast("string")).dropna()


def _counting(parameters: Parameters) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        analyser = Analyser()
        waiting: dict[str, tuple[list[int], list[int]]] = {}
        size = 0
        for batch in batches:
            told = []
            for row in batch.to_pylist():
                counts = analyser.counts(row["text"])
                words = sum(counts.values())
                peak = max(counts.values(), default=0)
                told.append({"place": row["place"], "title": row["title"], "words": words, "peak": peak})
                if parameters.keeps(words):
                    size += len(counts)
                    for term, times in counts.items():
                        places, occurrences = waiting.setdefault(term, ([], []))
                        places.append(row["place"])
                        occurrences.append(times)
            yield pa.RecordBatch.from_pylist(told, _COUNTED)
            if size >= _CHUNK:
                yield _grouped(waiting)
                waiting, size = {}, 0
        yield _grouped(waiting)

    return count


def _grouped(waiting: dict[str, tuple[list[int], list[int]]]) -> pa.RecordBatch:
    """A row a term; numbers as bytes, which Spark hands on as they are."""
    nothing = pa.nulls(len(waiting), pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            *(nothing, pa.nulls(len(waiting), pa.string()), nothing, nothing),
            pa.array(waiting.keys(), pa.string()),
            pa.array([len(places) for places, _ in waiting.values()], pa.int64()),
            pa.array([np.array(places, "<i8").tobytes() for places, _ in waiting.values()], pa.binary()),
            pa.array([np.array(times, "<u4").tobytes() for _, times in waiting.values()], pa.binary()),
        ],
        schema=_COUNTED,
    )


def _note_documents(counted: DataFrame, writing: Writing, parameters: Parameters) -> Array:
    """Write the documents down in their order; give the places of those that are kept, by number."""
    rows = counted.where("term IS NULL").select("place", "title", "words", "peak").orderBy("place")
    kept: list[int] = []
    for row in rows.toLocalIterator():
        writing.note(row["title"], row["words"], row["peak"])
        if parameters.keeps(row["words"]):
            kept.append(row["place"])
    return np.array(kept, np.int64)


def _postings(counted: DataFrame, kept: Array, parameters: Parameters) -> Iterator[Postings]:
    """The postings of each term in the order of terms; those of its chunks put together."""
    grouped = (
        counted.where("term IS NOT NULL")
        .groupBy("term")
        .agg(F.sum("size").alias("size"), F.collect_list(F.struct("places", "counts")).alias("chunks"))
        .where(F.col("size") >= parameters.least_documents)
        .orderBy("term")
    )
    for row in grouped.toLocalIterator(prefetchPartitions=True):
        places = _joined([chunk["places"] for chunk in row["chunks"]], "<i8")
        counts = _joined([chunk["counts"] for chunk in row["chunks"]], "<u4")
        order = np.argsort(places)
        yield Postings(row["term"], np.searchsorted(kept, places[order]), counts[order])


def _joined(chunks: list[Any], kind: str) -> Array:
    return np.frombuffer(b"".join(chunks), kind)
