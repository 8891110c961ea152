"""Custom functions of the tests: what a provider would write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

Batches = Iterable[pa.RecordBatch]


def doubled(batches: Batches, factor: int = 2) -> Iterator[pa.RecordBatch]:
    """One for one, without `_id`."""
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"k": batch["k"], "n": pc.multiply(batch["n"], factor)})


def kept(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Only some, with `_id`."""
    for batch in batches:
        yield batch.filter(pc.greater(batch["n"], 2))


def twice(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Two for one, with `_id`, last events first."""
    for batch in batches:
        places = pa.array([n for n in range(batch.num_rows - 1, -1, -1) for _ in range(2)])
        yield batch.take(places)


def nameless(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Fewer rows, and no word of where they come from."""
    for batch in batches:
        yield batch.select(["k", "n"]).slice(0, 1)


def invented(batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"k": batch["k"], "n": batch["n"], "_id": pa.array(["?"] * batch.num_rows)})


def raises(batches: Batches) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        raise RuntimeError("out of luck")
    yield from ()


def lacking(batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["k", "_id"])


def misfit(batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"k": batch["k"], "n": pa.array(["x"] * batch.num_rows)})


def typed(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Types that Spark has not."""
    for batch in batches:
        size = batch.num_rows
        yield pa.RecordBatch.from_pydict(
            {
                "u": pa.array([2**64 - 1] * size, pa.uint64()),
                "b": pa.array([255] * size, pa.uint8()),
                "e": pa.array(["ALPHA"] * size).dictionary_encode(),
                "t": batch["_time"],
            }
        )


def spread(batches: Batches) -> Iterator[pa.RecordBatch]:
    """One row a window: how many, from first to last."""
    for batch in batches:
        n = batch["n"].to_pylist()
        yield pa.RecordBatch.from_pydict({"size": [len(n)], "first": [n[0]], "last": [n[-1]]})


def latest(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The last event of each window."""
    for batch in batches:
        yield batch.slice(batch.num_rows - 1).select(["window_start", "window_end", "n"])


def unrelated(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Other columns than those of the schema."""
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"other": batch["_id"], "another": batch["_id"]})


def tabular(batches: Batches) -> Iterator[pa.Table]:
    """A table in place of batches."""
    for batch in batches:
        yield pa.Table.from_batches([batch])


def columns(batches: Batches) -> Iterator[dict[str, pa.Array]]:
    """A dictionary in place of batches."""
    for batch in batches:
        yield {"k": batch["k"], "n": batch["n"]}
