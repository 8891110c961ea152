"""The writer in Python, without Spark: appended and skipped rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from tidegate.logs.files import Partition
from tidegate.services import loads, stream_schemas

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from tidegate.pipelines.compiler import plan_service  # noqa: E402 - needs pyspark
from tidegate.pipelines.plain.metrics import PlainMetrics  # noqa: E402
from tidegate.pipelines.plain.progress import BatchProgress  # noqa: E402
from tidegate.pipelines.plain.source import (  # noqa: E402
    MAX_BATCH_BYTES,
    SEEN,
    SILENT_BATCH_MICROS,
    PartitionRange,
    PlainReader,
    positions,
)
from tidegate.pipelines.plain.writer import BatchWriter, ConstraintViolated, WriterOutputs  # noqa: E402
from tidegate.pipelines.plain.written import resume, save_mark  # noqa: E402

ROW = {"verdict": "pass", "partition": "a.0", "key": None, "revision": 0, "child": 0, "id": "x", "source": "a/0:0"}


class Written:
    """A service's writer over a folder, with its metrics."""

    def __init__(
        self, folder: Path, identity: Literal["position", "key", "revision"] = "position", **known: Any
    ) -> None:
        self.folder, self.metrics = folder, PlainMetrics()
        outputs = WriterOutputs(folder / "out", folder / "out.quarantine", identity, **known)
        progress = BatchProgress(folder, folder / "checkpoint", {}, self.metrics, None)
        self.writer = BatchWriter(outputs, self.metrics, progress, 1_000_000)

    def write(self, *rows: dict[str, Any]) -> None:
        found = [{**ROW, "arrived": 1, "body": "{}", "own": "0", **row} for row in rows]
        strings = {name: pyarrow.string() for name in ("key", "partition")}
        schema = pyarrow.schema([(name, strings.get(name, pyarrow.infer_type([v]))) for name, v in found[0].items()])
        self.writer.write(pyarrow.Table.from_pylist(found, schema))

    def records(self, stream: str = "out", partition: str = "a.0") -> list[bytes]:
        return Partition(self.folder / stream / partition).read(None, 1_000).records


def test_each_verdict_goes_to_its_stream(tmp_path: Path) -> None:
    here = Written(tmp_path)
    verdicts = ("pass", "flag", "quarantine", "drop", "pass")
    here.write(*({"verdict": verdict, "revision": n, "id": f"{n}"} for n, verdict in enumerate(verdicts)))
    assert here.records() == [b'{"_id":"%d","_src":"a/0:0"}' % n for n in (0, 1, 4)]
    assert here.records("out.quarantine") == [b'{"_id":"2","_src":"a/0:0"}']
    found = here.metrics.snapshot()
    assert [found[name] for name in ("written", "flagged", "quarantined", "dropped")] == [3, 1, 1, 1]


def test_rows_before_a_failure_are_written(tmp_path: Path) -> None:
    here = Written(tmp_path)
    with pytest.raises(ConstraintViolated, match=r"on_violation is fail: n: 5 violates n < 3 in event x$"):
        here.write({}, {"verdict": "fail", "revision": 1, "body": "n: 5 violates n < 3 in event x"}, {"revision": 2})
    assert len(here.records()) == 1


def test_positions_that_were_written_are_left_out_after_a_restart(tmp_path: Path) -> None:
    first = Written(tmp_path)
    first.write({"revision": 7, "source": "a/0:7"}, {"revision": 7, "child": 1, "source": "a/0:7.1"})
    first.writer.close()
    second = Written(tmp_path)
    rows = [{"revision": 7, "child": n, "source": f"a/0:7.{n}"} for n in range(3)]
    second.write({"revision": 3}, *rows)
    assert len(second.records()) == 3
    assert second.metrics.snapshot()["skipped"] == 3


def test_keys_are_known_by_their_last_revision(tmp_path: Path) -> None:
    def revised(n: int) -> dict[str, Any]:
        return {"key": 'a "b"', "revision": n, "id": f'a "b"#{n}', "partition": None, "source": None}

    first = Written(tmp_path, "revision")
    first.write(revised(1), revised(2), revised(1))
    first.writer.close()
    second = Written(tmp_path, "revision")
    second.write(revised(2), revised(3))
    second.writer.close()
    assert [json.loads(each)["_id"] for each in second.records(partition="0")] == [f'a "b"#{n}' for n in (1, 2, 3)]
    third = Written(tmp_path, "revision", floor={"0": Partition(tmp_path / "out" / "0").end()})
    third.write(revised(1))
    assert len(third.records(partition="0")) == 4, "what another version wrote does not count"


def test_reader_respects_its_limit_and_returns_complete_records(tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    folder = tmp_path / "a"
    (folder / "0").mkdir(parents=True)
    record = b"x" * 999
    (folder / "0" / f"{0:020d}.log").write_bytes((record + b"\n") * (MAX_BATCH_BYTES // 1_000 + 10) + b"torn")
    reader = PlainReader(folder, {})
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (piece,) = reader.partitions(start, end)
    assert piece.end % 1_000 == 0
    assert MAX_BATCH_BYTES <= piece.end < MAX_BATCH_BYTES + 1_000
    last = reader.latestOffset(end, ReadAllAvailable())
    assert positions(last) == {"0": (MAX_BATCH_BYTES // 1_000 + 10) * 1_000}
    assert reader.latestOffset(last, ReadAllAvailable()) == last, "the same text, or Spark makes a batch of nothing"
    batches = list(reader.read(PartitionRange("0", 2_000, 5_000, 42)))
    read = {"partition": ["0"] * 3, "position": [2_000, 3_000, 4_000], "arrived": [42] * 3}
    read |= {"value": [record.decode()] * 3, "tick": [None] * 3, "caught_up": [None] * 3}
    assert [each.to_pydict() for each in batches] == [read]


def test_reader_with_ticks_makes_batches_in_silence_and_ends_each_with_a_tick_per_state_partition(
    tmp_path: Path,
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

    folder = tmp_path / "a"
    (folder / "0").mkdir(parents=True)
    (folder / "0" / f"{0:020d}.log").write_bytes(b"one\ntwo\n")
    reader = PlainReader(folder, {}, ticks=2)
    half = reader.latestOffset(reader.initialOffset(), ReadMaxBytes(2))
    whole = reader.latestOffset(half, ReadAllAvailable())
    before = dict.fromkeys(half, 0)
    for offset, values in ((half, ["one"]), (whole, ["one", "two"])):
        (piece,) = reader.partitions(before, offset)
        records, ticks = (batch.to_pydict() for batch in reader.read(piece))
        assert records["value"] == values
        assert (ticks["value"], ticks["tick"]) == ([None, None], [0, 1])
        seen = int(offset[SEEN])
        assert ticks["caught_up"] == ([None, None] if offset is half else [seen, seen])
    assert reader.latestOffset(whole, ReadAllAvailable()) == whole, "the last batch was less than a second ago"
    silent = {**whole, SEEN: str(int(whole[SEEN]) - SILENT_BATCH_MICROS)}
    later = reader.latestOffset(silent, ReadAllAvailable())
    assert (positions(later), later != silent) == (positions(whole), True)
    (piece,) = reader.partitions(silent, later)
    (ticks_only,) = reader.read(piece)
    assert ticks_only.column("tick").to_pylist() == [0, 1]


def test_resume_offset_is_the_later_of_mark_and_last_record(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "a.0"
    assert resume(folder) is None
    here = Written(tmp_path)
    here.write({"revision": 70, "source": "a/0:70"})
    assert resume(folder) == 70
    save_mark(folder, 50)
    assert resume(folder) == 70
    save_mark(folder, 90)
    assert resume(folder) == 90


def test_plan_names_the_missing_connector_first() -> None:
    definitions = loads(
        """
streams: {a: {schema: {n: int64, time: timestamp}, event_time: time}}
services:
  plain: {from: a}
  sorted: {from: a, pipeline: [{sort: {by: [n], window: {length: 10s}}}]}
"""
    )
    inputs = {"a": stream_schemas(definitions)["a"]}
    plain, ordered = (plan_service(each, inputs, obstacle="no javac") for each in definitions.services.values())
    assert (plain.mode, plain.reason, plain.output, plain.stages) == ("micro-batch", "no javac", "append", 0)
    assert (ordered.reason, ordered.stages) == ("no javac", 1)
