"""Files: typed, paced, each record once despite failures."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingress.kit import CrashError, FragileLog, HandClock, events
from tidegate.errors import SourceError
from tidegate.ingress.feeds import file_formats, files
from tidegate.ingress.feeds.files import FilesFeed
from tidegate.ingress.feeds.resume_position import StoredIds
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import SegmentLog
from tidegate.model import Schema
from tidegate.services.definitions import Files, Stream

SCHEMA = Schema(
    {
        "vid": "string",
        "time": "timestamp",
        "speed": "float64?",
        "n": "int32?",
        "big": "uint64?",
        "on": "bool?",
        "pos": {"x": "float64?"},
        "tags": "string[]?",
    },
    event_time="time",
)
T = "2026-01-01T00:00:00Z"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    made = SegmentLog(tmp_path / "log")
    yield made
    made.close()


def feed(log: SegmentLog, path: Path | str, clock: HandClock | None = None, **more: Any) -> FilesFeed:
    state = more.pop("state", None)
    stream = Stream("s", SCHEMA, key="vid", partitions=more.pop("partitions", 1))
    return FilesFeed(Files(str(path), **more), RawStreamWriter(log, stream), state, clock or HandClock(end_s=10))


def run(*args: Any, **more: Any) -> None:
    feed(*args, **more).run(Event())


def test_csv_values_are_typed_by_the_schema(log: SegmentLog, tmp_path: Path) -> None:
    file = tmp_path / "taxis.csv"
    file.write_bytes(
        b"\xef\xbb\xbfvid,time,speed,n,big,on,pos.x,tags,other\r\n"
        b'a,2026-01-01T00:00:00Z, 1.5,-7,18446744073709551615,TRUE,2,"[""x"",""y""]",7\r\n'
        b"\r\n"
        b'"b, ""c""\nd",2026-01-01 00:00:01,,,,0,,,\r\n'
        b"e,,,,,,,,"
    )
    run(log, file)
    assert events(log, "s.quarantine") == []
    assert events(log, "s") == [
        {"_id": "taxis.csv:1", "vid": "a", "time": T, "speed": 1.5, "n": -7, "big": 18446744073709551615, "on": True}
        | {"pos": {"x": 2.0}, "tags": ["x", "y"], "other": "7"},
        {"_id": "taxis.csv:2", "vid": 'b, "c"\nd', "time": "2026-01-01 00:00:01", "on": False},
        {"_id": "taxis.csv:3", "vid": "e"},
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a,1", "expected 4 cells, one for each column, not 2"),
        (b"a,1,2,3,4", "expected 4 cells, one for each column, not 5"),
        (b"a,fast,,", "speed: expected a number, not 'fast'"),
        (b"a,1_0,,", "speed: expected a number, not '1_0'"),
        (b"a,nan,,", "speed: expected a number, not 'nan'"),
        (b"a,1e999,,", "speed: expected a number, not '1e999'"),
        (b"a,,1.0,", "n: expected a whole number from -2147483648 to 2147483647, not '1.0'"),
        (b"a,,2147483648,", "n: expected a whole number from -2147483648 to 2147483647, not '2147483648'"),
        (b"a,,,yes", "on: expected true or false, not 'yes'"),
        (b'"a,,,', "unexpected end of data"),
        (b'"a"x,,,', "',' expected after '\"'"),
        (b"\xff,,,", "'utf-8' codec can't decode"),
    ],
)
def test_only_bad_lines_are_quarantined(log: SegmentLog, tmp_path: Path, line: bytes, reason: str) -> None:
    file = tmp_path / "taxis.csv"
    file.write_bytes(b"vid,speed,n,on\nfirst,1,1,true\n" + line + b"\nlast,2,2,false\n")
    run(log, file)
    assert [event["vid"] for event in events(log, "s")] == ["first", "last"]
    (refused,) = events(log, "s.quarantine")
    assert refused["_id"] == "taxis.csv:2"
    assert reason in refused["_reason"]
    assert refused.get("_raw", "").encode() == line or "_raw64" in refused


def test_bad_header_refuses_only_its_file(log: SegmentLog, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("vid,vid\n1,2\n")
    (tmp_path / "in" / "b.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "in" / "c.csv").write_text("vid\nx\n")
    (tmp_path / "in" / "d.txt").write_text("not for us")
    run(log, tmp_path / "in")
    assert [event["_id"] for event in events(log, "s")] == ["c.csv:1"]
    assert [refused["_id"] for refused in events(log, "s.quarantine")] == ["a.csv", "b.parquet"]


def test_ndjson_lines_are_taken_as_they_are(log: SegmentLog, tmp_path: Path) -> None:
    file = tmp_path / "x.ndjson"
    file.write_text('{"vid":"a","n":1.50}\n\nnot json\n[1]\n{"_id":"own","vid":"b"}')
    run(log, file)
    assert events(log, "s") == [{"_id": "x.ndjson:1", "vid": "a", "n": 1.5}, {"_id": "own", "vid": "b"}]
    assert [(each["_id"], each["_raw"]) for each in events(log, "s.quarantine")] == [
        ("x.ndjson:2", "not json"),
        ("x.ndjson:3", "[1]"),
    ]


def test_line_without_end_is_refused_unread(log: SegmentLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_formats, "MAX_RECORD_BYTES", 2_000)
    file = tmp_path / "x.ndjson"
    file.write_bytes(b'{"vid":"a"}\n' + b"x" * 9_000 + b'\n{"vid":"b"}\n')
    run(log, file)
    assert [event["_id"] for event in events(log, "s")] == ["x.ndjson:1", "x.ndjson:3"]
    (refused,) = events(log, "s.quarantine")
    assert "more than 2000 bytes" in refused["_reason"]


def parquet(path: Path, rows: Sequence[dict[str, Any]], group: int = 3) -> None:
    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=group)


def test_parquet_rows_become_objects(log: SegmentLog, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    moment = datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    parquet(
        file,
        [
            {"vid": "a", "time": moment, "speed": 1.5, "big": 2**60, "pos": {"x": 1.0}, "tags": ["u"]},
            {"vid": "b", "time": None, "speed": float("nan"), "big": None, "pos": None, "tags": None},
        ],
    )
    run(log, file)
    assert events(log, "s") == [
        {"_id": "x.parquet:1", "vid": "a", "time": "2026-01-01T00:00:00.000005Z", "speed": 1.5, "big": 2**60}
        | {"pos": {"x": 1.0}, "tags": ["u"]},
        {"_id": "x.parquet:2", "vid": "b"},
    ]


def write(kind: str, path: Path, numbers: Sequence[int]) -> None:
    rows = [{"vid": f"v{n % 7}", "n": n} for n in numbers]
    if kind == "parquet":
        parquet(path, rows)
    elif kind == "csv":
        path.write_text("vid,n\n" + "".join(f"{row['vid']},{row['n']}\n" for row in rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
@pytest.mark.parametrize("stateful", [True, False])
def test_every_record_is_appended_once_however_often_the_feed_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, stateful: bool
) -> None:
    monkeypatch.setattr(files, "MAX_BATCH_RECORDS", 10)
    monkeypatch.setattr(files, "SAVE_INTERVAL_S", 0.0)
    (tmp_path / "in").mkdir()
    for n in range(3):
        write(kind, tmp_path / "in" / f"{n}.{kind}", range(n * 100, n * 100 + 100))
    if kind != "parquet":
        with (tmp_path / "in" / f"1.{kind}").open("a") as file:
            file.write("a,b,c\n" * 5)
    chance = random.Random(5)
    state = tmp_path / "state" if stateful else None
    for _ in range(40):
        log = FragileLog(tmp_path / "log", segment_bytes=2_000)
        log.fuse = chance.randrange(1, 30)
        try:
            run(log, tmp_path / "in", partitions=3, state=state)
        except CrashError:
            continue
        finally:
            log.close()
        break
    log = FragileLog(tmp_path / "log")
    run(log, tmp_path / "in", partitions=3, state=state)
    assert sorted(event["n"] for event in events(log, "s")) == list(range(300))
    assert len(events(log, "s.quarantine")) == (0 if kind == "parquet" else 5)
    if state is not None:
        (state / "s.json").unlink()  # a short cut, no promise
        run(log, tmp_path / "in", partitions=3, state=state)
        (state / "s.json").write_text("{")
        run(log, tmp_path / "in", partitions=3, state=state)
        assert len(events(log, "s")) == 300


def test_records_lost_by_a_power_failure_are_read_again(tmp_path: Path) -> None:
    write("csv", tmp_path / "x.csv", range(100))
    log = SegmentLog(tmp_path / "log")
    run(log, tmp_path / "x.csv", state=tmp_path / "state")
    log.close()
    (segment,) = (tmp_path / "log" / "s" / "0").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:1_000])
    log = SegmentLog(tmp_path / "log")
    run(log, tmp_path / "x.csv", state=tmp_path / "state")
    assert [event["n"] for event in events(log, "s")] == list(range(100))


def test_records_with_own_ids_are_appended_once(tmp_path: Path) -> None:
    rows = [{"_id": f"own-{n}" if n % 2 else f"x.ndjson:{n + 5}", "vid": "a", "n": n} for n in range(50)]
    (tmp_path / "x.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = SegmentLog(tmp_path / "log")
    for _ in range(3):
        run(log, tmp_path / "x.ndjson")
    assert [event["n"] for event in events(log, "s")] == list(range(50))


class Script(HandClock):
    """Does something at each wait of a feed that looks for files."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__(end_s=len(steps) + 2)
        self.steps = list(steps)

    def wait(self, stop: Event, seconds: float) -> bool:
        if self.steps:
            self.steps.pop(0)()
        return super().wait(stop, seconds)


def test_later_files_and_added_lines_are_read(log: SegmentLog, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    write("csv", folder / "b.csv", [1])
    whole = tmp_path / "whole.parquet"
    write("parquet", whole, [6, 7])
    seen: list[list[int]] = []

    def look() -> None:
        seen.append([event["n"] for event in events(log, "s")])

    def add(path: Path, data: bytes) -> Callable[[], None]:
        def step() -> None:
            look()
            with path.open("ab") as file:
                file.write(data)

        return step

    clock = Script(
        add(folder / "a.csv", b"vid,n\nx,2\ny"),
        add(folder / "a.csv", b",3\nz,4"),
        look,  # a line without end waits until its file does not change
        add(folder / "deep" / "c.csv", b"vid,n\nx,5\n"),
        add(folder / "d.parquet", whole.read_bytes()[:100]),
        add(folder / "d.parquet", whole.read_bytes()[100:]),
        look,
    )
    run(log, f"{folder}/**/*.*", clock)
    assert seen == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7]]
    assert [event["_id"] for event in events(log, "s")][-3:] == ["deep/c.csv:1", "d.parquet:1", "d.parquet:2"]
    assert events(log, "s.quarantine") == []


def test_replay_is_as_fast_as_the_events_times_say(log: SegmentLog, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    seconds = [0, 10, 10, 5, 40]
    file.write_text("vid,time\n" + "".join(f"a,2026-01-01T00:00:{s:02d}Z\n" for s in seconds) + "b,\n")
    clock = HandClock()
    run(log, file, clock, speed=10)
    assert clock.waits == pytest.approx([1.0, 3.0])
    assert [event["vid"] for event in events(log, "s")] == ["a"] * 5 + ["b"]


def test_stopped_replay_resumes_where_it_ended(log: SegmentLog, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("vid,time\n" + "".join(f"v{s},2026-01-01T00:00:{s:02d}Z\n" for s in range(60)))
    for end in (20.5, 20.5, 60.0):
        run(log, file, HandClock(end_s=end), speed=1, state=tmp_path / "state")
    assert [event["vid"] for event in events(log, "s")] == [f"v{s}" for s in range(60)]


def test_shrunk_file_is_reported(log: SegmentLog, tmp_path: Path) -> None:
    write("csv", tmp_path / "x.csv", range(9))
    told: list[str] = []
    for n in (9, 3):
        write("csv", tmp_path / "x.csv", range(n))
        stream = Stream("s", SCHEMA)
        FilesFeed(
            Files(str(tmp_path / "x.csv")), RawStreamWriter(log, stream), tmp_path / "st", report=told.append
        ).run(Event())
    assert told == ["x.csv is shorter than the part that was read: 21 of 51 bytes"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Files("x.csv", speed=0), "speed: expected a number above 0, not 0"),
        (Files("x.csv", format="xml"), "format: expected csv, ndjson, parquet, not 'xml'"),  # type: ignore[arg-type]
        (Files("no/such.csv"), "path: no file or folder 'no/such.csv'"),
        (Files("pyproject.toml"), "path: 'pyproject.toml' ends in none of .csv, .ndjson, .jsonl, .parquet"),
    ],
)
def test_bad_source_is_refused(log: SegmentLog, source: Files, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        FilesFeed(source, RawStreamWriter(log, Stream("s", SCHEMA))).run(Event())
    assert message in str(caught.value)


def test_speed_needs_event_times(log: SegmentLog) -> None:
    with pytest.raises(SourceError, match="needs an event_time"):
        FilesFeed(Files("x.csv", speed=1), RawStreamWriter(log, Stream("s", Schema({"vid": "string"}))))


ids = st.builds("{}{}".format, st.sampled_from(["a:", "b:x:", ":", "", "a:0"]), st.integers(0, 12)) | st.text(
    max_size=3
)


@given(st.lists(ids), ids)
def test_tracked_offsets_are_those_that_were_added(added: list[str], asked: str) -> None:
    seen = StoredIds()
    for id_ in added:
        seen.add(id_)
    assert all(map(seen.has, added))
    assert seen.has(asked) == (asked in added)
