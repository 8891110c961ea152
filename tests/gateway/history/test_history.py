"""History as Arrow and Parquet over real HTTP, and from the client."""

from __future__ import annotations

import asyncio
import io
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.gateway.conftest import world
from tests.gateway.running import World
from tidegate.client import AsyncClient, Client, Refused
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.start import Start
from tidegate.errors import LogError
from tidegate.filters import Filter
from tidegate.gateway.history import reader, writers
from tidegate.gateway.history.columns import HistoryColumns
from tidegate.gateway.history.reader import HistorySpan, Slice, SpanReader
from tidegate.gateway.history.writers import ARROW, PARQUET, writer_of
from tidegate.gateway.settings import AccessSettings, Quotas
from tidegate.logs import SegmentLog
from tidegate.logs.log import RetentionLimits
from tidegate.model import Schema, timestamps

__all__ = ["world"]

PATH = "/v1/services/gps/events"


@pytest.fixture
def http(world: World) -> Iterator[httpx.Client]:
    with world.client() as client:
        yield client


def event(n: int, **more: Any) -> bytes:
    moment = timestamps.to_text(1_767_225_600_000_000 + n * 1_000_000)
    plain = {"_id": f"e{n}", "_src": f"s/0:{n}", "_time": moment, "vid": f"B{n % 10}", "speed": n / 2, "time": moment}
    return json.dumps({**plain, **more}).encode()


def table(content: bytes, kind: str = "arrow") -> pa.Table:
    return pa.ipc.open_stream(content).read_all() if kind == "arrow" else pq.read_table(io.BytesIO(content))


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_history_has_the_types_of_the_schema(world: World, http: httpx.Client, kind: str) -> None:
    world.log.append("gps", "gps_taxi.0", [event(n) for n in range(5_000)])
    answer = http.get(PATH, params={"format": kind, "filter": "speed >= 1"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, writers.MEDIA_TYPES[kind])
    found = table(answer.content, kind)
    assert found.column_names == ["_id", "_time", "vid", "speed", "time", "_more"]
    assert found.schema.field("time").type == pa.timestamp("us", "UTC")
    assert found.schema.field("speed").type == pa.float64()
    rows = found.to_pylist()
    assert [row["_id"] for row in rows] == [f"e{n}" for n in range(2, 5_000)]
    assert rows[0] == {
        "_id": "e2",
        "_time": timestamps.to_datetime(1_767_225_602_000_000),
        "vid": "B2",
        "speed": 1.0,
        "time": timestamps.to_datetime(1_767_225_602_000_000),
        "_more": None,
    }


def test_accept_names_the_format_too(world: World, http: httpx.Client) -> None:
    world.log.append("gps", "gps_taxi.0", [event(0)])
    for media_type, kind in ((ARROW, "arrow"), (PARQUET, "parquet")):
        answer = http.get(PATH, headers={"accept": f"text/html, {media_type};q=0.9"})
        assert answer.headers["content-type"] == media_type
        assert table(answer.content, kind).num_rows == 1


def test_spans_are_exact_and_leave_nothing_out(world: World, http: httpx.Client) -> None:
    order = list(range(100))
    random.Random(7).shuffle(order)
    world.log.append("gps", "gps_taxi.0", [event(n) for n in order])
    found: list[str] = []
    for begin in range(0, 100, 20):
        moments = [timestamps.to_text(1_767_225_600_000_000 + n * 1_000_000) for n in (begin, begin + 20)]
        answer = http.get(PATH, params={"format": "arrow", "from": moments[0], "to": moments[1]})
        ids = table(answer.content).column("_id").to_pylist()
        assert sorted(ids) == sorted(f"e{n}" for n in range(begin, begin + 20))
        found += ids
    assert len(set(found)) == 100


def test_selected_attributes_come_in_their_order(world: World, http: httpx.Client) -> None:
    world.log.append("gps", "gps_taxi.0", [event(0)])
    answer = http.get(PATH, params={"format": "arrow", "select": "speed,vid"})
    assert table(answer.content).column_names == ["_id", "_time", "speed", "vid", "_more"]


def test_what_does_not_fit_the_schema_is_kept_as_json(world: World, http: httpx.Client) -> None:
    world.log.append(
        "gps", "gps_taxi.0", [event(0, speed="fast", old=[1], _violations=["speed"]), event(1, speed=None)]
    )
    rows = table(http.get(PATH, params={"format": "parquet"}).content, "parquet").to_pylist()
    assert [row["speed"] for row in rows] == [None, None]
    assert json.loads(rows[0]["_more"]) == {"speed": "fast", "old": [1], "_violations": ["speed"]}
    assert rows[1]["_more"] is None


def test_service_without_events_has_a_history_with_its_columns(http: httpx.Client) -> None:
    for kind in ("arrow", "parquet"):
        found = table(http.get(PATH, params={"format": kind}).content, kind)
        assert (found.num_rows, found.column_names[2]) == (0, "vid")


@pytest.mark.parametrize(
    ("params", "detail"),
    [
        ({"format": "arrow", "wait": "1s"}, "wait: expected no such parameter for history"),
        ({"format": "arrow", "every": "1s"}, "every: expected no such parameter for history"),
        ({"format": "arrow", "to": "soon"}, "to: expected now, a moment such as 2026-01-01T00:00:00Z, or 10m"),
        ({"format": "arrow", "from": "1m", "to": "2m"}, "to: expected a moment that is not before from"),
        ({"format": "arrow", "filter": "sped > 1"}, "unknown field 'sped'"),
        ({"to": "1m"}, "to: expected format=arrow or format=parquet with it"),
        ({"format": "xml"}, "expected cloudevents or plain"),
    ],
)
def test_parameters_that_can_not_be_used_are_refused(http: httpx.Client, params: dict[str, str], detail: str) -> None:
    answer = http.get(PATH, params=params)
    assert answer.status_code in (400, 422), answer.text
    assert detail in answer.json()["detail"]


def test_unknown_service_has_no_history(http: httpx.Client) -> None:
    assert http.get("/v1/services/nothing/events", params={"format": "arrow"}).status_code == 404


def test_client_reads_history_as_arrow_pandas_and_parquet(world: World, tmp_path: Path) -> None:
    world.log.append("gps", "gps_taxi.0", [event(n) for n in range(3_000)])
    with Client(world.url) as client:
        history = client.history("gps", "speed < %0", params=[1_000], since="beginning", select="vid,speed")
        assert history.to_arrow().num_rows == 2_000
        frame = history.to_pandas()
        assert (len(frame), frame["speed"].max()) == (2_000, 999.5)
        assert sum(batch.num_rows for batch in history.batches()) == 2_000
        path = history.to_parquet(tmp_path / "gps.parquet")
        assert pq.read_table(path).num_rows == 2_000
        assert [entry.name for entry in tmp_path.glob("*.part")] == []
        with pytest.raises(Refused, match="unknown field 'sped'"):
            client.history("gps", "sped > 1").to_arrow()
        with pytest.raises(Refused):
            client.history("gps", "sped > 1").to_parquet(tmp_path / "bad.parquet")
        assert not (tmp_path / "bad.parquet").exists()


def test_asyncio_client_reads_history(world: World) -> None:
    world.log.append("gps", "gps_taxi.0", [event(n) for n in range(100)])

    async def read() -> int:
        async with AsyncClient(world.url) as client:
            history = client.history("gps")
            batches = [batch.num_rows async for batch in history.batches()]
            count: int = sum(batches) + (await history.to_arrow()).num_rows
            return count

    assert asyncio.run(read()) == 200


def test_history_counts_for_the_rate_of_its_caller(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.access = AccessSettings(quotas=Quotas(deliveries=1))
    with world.running(), world.client() as http:
        world.log.append("gps", "gps_taxi.0", [event(n) for n in range(300)])
        assert table(http.get(PATH, params={"format": "arrow"}).content).num_rows == 300
        answer = http.get(PATH, params={"format": "arrow"})
        assert (answer.status_code, answer.json()["quota"]) == (429, "deliveries")


def test_history_ends_incomplete_when_the_gateway_stops(world: World) -> None:
    world.log.append("gps", "gps_taxi.0", [event(n, vid="x" * 500) for n in range(60_000)])
    with world.client() as http, http.stream("GET", PATH, params={"format": "arrow"}) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        stopping = threading.Thread(target=world.stop)
        stopping.start()
        with pytest.raises(httpx.TransportError):
            for _ in pieces:
                pass
        stopping.join()


def test_events_that_expire_while_they_are_read_are_an_error(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, segment_bytes=50_000)
    log.create("gps", ["0"])
    for n in range(0, 10_000, 500):
        log.append("gps", "0", [event(m) for m in range(n, n + 500)])
    columns = HistoryColumns(Schema({"vid": "string"}), None)
    span = HistorySpan("gps", Start(beginning=True), None, None, Encoding("plain"))
    history = SpanReader(log, span, columns, writer_of(ARROW, columns.arrow))
    assert not history.next_slice().is_last
    log.expire("gps", RetentionLimits(size_bytes=1))
    with pytest.raises(LogError, match="expired while they were read; ask again"):
        _read_all(history)
    log.close()


def test_records_that_a_power_failure_lost_are_left_out(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    log.create("gps", ["0"])
    log.append("gps", "0", [event(n) for n in range(100)])
    log.close()
    (segment,) = (tmp_path / "gps" / "0").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:2_000])
    log = SegmentLog(tmp_path)
    log.append("gps", "0", [event(n) for n in range(100, 200)])
    columns = HistoryColumns(Schema({"vid": "string"}), None)
    span = HistorySpan("gps", Start(beginning=True), None, None, Encoding("plain"))
    slices = _read_all(SpanReader(log, span, columns, writer_of(ARROW, columns.arrow)))
    ids = table(b"".join(piece.data for piece in slices)).column("_id").to_pylist()
    assert ids[-100:] == [f"e{n}" for n in range(100, 200)]
    assert 0 < len(ids) - 100 < 20
    log.close()


def _read_all(history: SpanReader) -> list[Slice]:
    slices = [history.next_slice()]
    while not slices[-1].is_last:
        slices.append(history.next_slice())
    return slices


def test_slices_are_bounded_whatever_the_history_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "ROW_GROUP_BYTES", 1 << 20)
    log = SegmentLog(tmp_path)
    log.create("gps", ["0", "1"])
    for n in range(0, 20_000, 2_000):
        log.append("gps", str(n % 4_000 // 2_000), [event(m, vid="v" * 400) for m in range(n, n + 2_000)])
    schema = Schema({"vid": "string", "speed": "float64"})
    for media_type in (ARROW, PARQUET):
        columns = HistoryColumns(schema, None)
        span = HistorySpan("gps", Start(beginning=True), None, Filter("speed >= 0", schema), Encoding("plain"))
        slices = _read_all(SpanReader(log, span, columns, writer_of(media_type, columns.arrow)))
        assert sum(piece.events for piece in slices) == 20_000
        assert max(piece.events for piece in slices) <= reader.SLICE_ROWS + reader.READ
        assert max(len(piece.data) for piece in slices) < 3 << 20
    log.close()
