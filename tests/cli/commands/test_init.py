"""`tidegate init`: the file that it writes is valid, and reads the sample without a loss."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.ingress.kit import events as stored
from tidegate.cli.input.service_file import stream_name, written
from tidegate.cli.main import app
from tidegate.errors import EnvironmentProblem, SchemaError, SourceError
from tidegate.ingress.feeds import sources
from tidegate.ingress.feeds.feed import FeedContext, FeedRequest
from tidegate.ingress.feeds.sample import sample_messages
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import SegmentLog
from tidegate.model import events as model_events
from tidegate.services import check, load, loads
from tidegate.services.sample import infer


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, ["init", *arguments], catch_exceptions=False).output


def read(file: Path, log: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the accepted and the refused records of a stream of a service file."""
    definitions = load(file)
    assert len(check(definitions)) in (1, 2)
    (stream,) = definitions.streams.values()
    made = SegmentLog(log)
    try:
        request = FeedRequest(stream, RawStreamWriter(made, stream), FeedContext(made), print)
        sources.make_feed(request).run(Event())
        appended = stored(made, stream.name)
        for event in appended:
            known = {name: value for name, value in event.items() if stream.schema.get(name) or name.startswith("_")}
            model_events.validate(known, stream.schema)
        return appended, stored(made, f"{stream.name}.quarantine")
    finally:
        made.close()


def test_csv_file_becomes_a_service_file_that_reads_it(tmp_path: Path) -> None:
    rows = [f"B{n % 3},{1_767_225_600 + n},{n / 2},{n},007,{'' if n % 4 else 'x'},true" for n in range(40)]
    sample = tmp_path / "My buses.csv.gz"
    sample.write_bytes(gzip.compress(("vid,ts,speed,n,code,note,on\n" + "\n".join(rows)).encode()))
    output = tmp_path / "out.yaml"
    assert f"wrote {output}" in run(str(sample), "-o", str(output))
    document = yaml.safe_load(output.read_text())
    assert document["streams"] == {
        "My-buses": {
            "source": {"files": {"path": str(sample), "times": "epoch_s"}},
            "schema": {
                "vid": "string",
                "ts": "timestamp",
                "speed": "float64",
                "n": "int64",
                "code": "string",
                "note": "string?",
                "on": "bool",
            },
            "event_time": "ts",
            "key": "vid",
        }
    }
    assert set(document["services"]) == {"My-buses-all", "My-buses-per-minute"}
    assert "# 3 values, such as 'B0'" in output.read_text()
    assert "missing in 75 % of the events" in output.read_text()
    appended, refused = read(output, tmp_path / "log")
    assert (len(appended), refused) == (40, [])
    assert appended[1]["ts"] == "2026-01-01T00:00:01.000000Z"


def test_ndjson_with_objects_lists_and_missing_values(tmp_path: Path) -> None:
    sample = tmp_path / "x.ndjson"
    lines = [
        {"id": "a", "at": "2026-01-01T00:00:00Z", "pos": {"x": 1, "t": 1767225600000}, "tags": ["q"], "_id": "1"},
        {"id": "a", "at": "2026-01-01T00:00:01Z", "pos": {"x": 1.5, "t": 1767225600001}, "_id": "2"},
        {"id": "b", "at": "2026-01-01T00:00:02Z", "tags": [], "mixed": 7, "_id": "3"},
        {"id": "b", "at": "2026-01-01T00:00:03Z", "mixed": "eight", "_id": "4", "stamps": [1767225600]},
    ]
    sample.write_text("\n".join(map(json.dumps, lines)))
    output = tmp_path / "x.yaml"
    run(str(sample), "-o", str(output))
    stream = yaml.safe_load(output.read_text())["streams"]["x"]
    assert stream["schema"] == {
        "id": "string",
        "at": "timestamp",
        "pos": "{x: float64, t: timestamp}?",
        "tags": "string[]?",
        "mixed": "string?",
        "stamps": "int64[]?",
    }
    assert (stream["event_time"], stream["key"]) == ("at", "id")
    assert stream["source"]["files"]["times"] == {"pos.t": "epoch_ms"}
    assert "# _id: left out" in output.read_text()


def test_patterns_of_times_are_found(tmp_path: Path) -> None:
    sample = tmp_path / "x.csv"
    sample.write_text("when,v\n31.12.2026 23:59:59,1\n01.01.2027 00:00:01,2\n")
    output = tmp_path / "x.yaml"
    run(str(sample), "-o", str(output))
    appended, refused = read(output, tmp_path / "log")
    assert [event["when"] for event in appended] == ["2026-12-31T23:59:59.000000Z", "2027-01-01T00:00:01.000000Z"]
    assert refused == []


def test_csv_without_a_header_line(tmp_path: Path) -> None:
    sample = tmp_path / "x.csv"
    sample.write_text("a,1\nb,2\na,3\nb,4\n")
    output = tmp_path / "x.yaml"
    run(str(sample), "--columns", "vid, n", "-o", str(output))
    appended, _ = read(output, tmp_path / "log")
    assert [(event["vid"], event["n"]) for event in appended] == [("a", 1), ("b", 2), ("a", 3), ("b", 4)]


def test_existing_file_is_kept_without_force(tmp_path: Path) -> None:
    sample, output = tmp_path / "x.csv", tmp_path / "x.yaml"
    sample.write_text("a\n1\n")
    output.write_text("mine")
    with pytest.raises(EnvironmentProblem, match="exists; overwrite it with --force"):
        run(str(sample), "-o", str(output))
    assert output.read_text() == "mine"
    run(str(sample), "-o", str(output), "--force")
    assert output.read_text() != "mine"


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("x.txt", b"a\n1\n", SourceError, "'x.txt' ends in none of .csv"),
        ("x.csv", b"", EnvironmentProblem, "has no event: 0 records could not be read"),
        ("x.ndjson", b"[1]\nno\n", EnvironmentProblem, "has no event: 2 records could not be read"),
        ("x.csv.gz", b"no", SourceError, "the compressed file is damaged"),
        ("x.csv", b"a,a\n1,2\n", SourceError, "names that differ from each other"),
        (
            "x.ndjson",
            json.dumps({f"a{n}": 1 for n in range(1001)}).encode(),
            SchemaError,
            "the sample has more than 1000 attributes",
        ),
        ("x.ndjson", b"{}\n", SchemaError, "the sample has no event with attributes"),
    ],
)
def test_sample_that_can_not_be_used(
    tmp_path: Path, name: str, content: bytes, error: type[Exception], message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error) as caught:
        run(str(tmp_path / name), "-o", "-")
    assert message in str(caught.value)


def test_topics_are_named_with_their_broker() -> None:
    with pytest.raises(EnvironmentProblem, match=r"no file 'gps'; a topic is written as kafka:gps or mqtt:gps"):
        run("gps", "-o", "-")


def test_topic_without_messages() -> None:
    with pytest.raises(SourceError, match="no message came; wait longer with --wait"):
        sample_messages([], 10)


@pytest.mark.parametrize(
    ("message", "kind", "count"),
    [
        (b'{"a":1}', "json", 1),
        (b'{"a":1,\n"b":2}', "json", 1),
        (b'[{"a":1},{"a":2}]', "json", 2),
        (b'{"a":1}\n{"a":2}\n', "ndjson", 2),
        (b"a,b\n1,2\n3,4", "csv", 2),
    ],
)
def test_format_of_messages_is_found(message: bytes, kind: str, count: int) -> None:
    sample = sample_messages([message], 10)
    assert (sample.format, len(sample.events), sample.refused) == (kind, count, 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.text(min_size=1, max_size=6), JSON, min_size=1, max_size=5), min_size=1, max_size=4))
def test_any_events_give_a_valid_file(sample: list[dict[str, Any]]) -> None:
    if all(name.startswith("_") for event in sample for name in event):
        return
    inferred = infer(sample)
    text = written("s", {"files": {"path": "/x\n.csv"}}, inferred, command="c\n: {", refused=1)
    check(loads(text))


@given(st.text(max_size=80))
def test_any_text_gives_a_stream_name(text: str) -> None:
    check(loads(f"streams: {{{json.dumps(stream_name(text))}: {{schema: {{x: int32}}}}}}"))
