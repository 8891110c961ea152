"""The parts of the delivery workloads: subscriptions, events, frames, rows, and the compared servers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from benchmarks import measure
from benchmarks.delivery import appender, consoles, demands, encrypted, fanout, models, sockets, stopped
from benchmarks.delivery.events import event
from benchmarks.delivery.harness import Serving, appending, gateway_alone, helper, listening, until
from benchmarks.delivery.listeners import Wanted
from benchmarks.reporting import Row, Setting, run
from tidegate import Filter
from tidegate.logs import SegmentLog

SOME = 10


def rows_of(log: Path, stream: str) -> list[dict[str, object]]:
    reader = SegmentLog(log)
    found = reader.read(stream, reader.begin(stream), 100_000).records
    reader.close()
    return [orjson.loads(each) for each in found]


def test_appended_events_take_turns_and_are_the_same_but_for_their_times(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    for stream in ("a", "b", "c"):
        log.create(stream)
    log.close()
    assert appender.append(tmp_path, ["a", "b", "c"], 10_010, 0.05, 97) == 500
    found = {name: rows_of(tmp_path, name) for name in "abc"}
    for at, name in enumerate("abc"):
        numbers = list(range(at, 500, 3))
        assert [each["_id"] for each in found[name]] == [f"{name}:0:{n}" for n in numbers]
        assert [each["cell"] for each in found[name]] == [n * 7_919 % 97 for n in numbers]


@pytest.mark.parametrize("deliveries", [1_000, 50_000, 1_000_000])
def test_windows_together_get_what_they_are_to(deliveries: int) -> None:
    wanted = fanout.windows(deliveries)
    events = [orjson.loads(event(n, fanout.CELLS, 0, b"")) for n in range(fanout.CELLS)]
    cells = sorted(each["cell"] for each in events)
    assert cells == list(range(fanout.CELLS))
    sizes = [sum(map(Filter(each.filter).matches, events)) for each in wanted[:3] + wanted[-3:]]
    assert sizes == [deliveries // fanout.EVENTS * fanout.CELLS // fanout.SUBSCRIBERS or 1] * 6


def test_more_than_everything_can_not_be_delivered() -> None:
    with pytest.raises(ValueError, match="expected 1 to 1000 cells for each subscriber, not 2000"):
        fanout.windows(2_000_000)


def test_climbing_ends_at_the_first_step_that_does_not_go() -> None:
    def measured(due: int) -> fanout.Step:
        return fanout.Step(due, due, 1.0, 1.0 if due < 20 else 101.0, 0.5, 0.1)

    assert [each.due for each in fanout.climb((5, 10, 20, 30), measured)] == [5, 10, 20]
    late, behind = fanout.Step(100, 100, 1, 101, 0.5, 0), fanout.Step(100, 97, 1, 10, 0.5, 0)
    assert not late.goes
    assert not behind.goes
    steps = [fanout.Step(10_000, 10_000, 1, 9, 0.5, 0.2), fanout.Step(50_000, 40_000, 9, 2_000, 1.0, 0.5)]
    rows = list(fanout.rows({"gateway": steps, "queues": steps[:1]}))
    assert rows[-1]["value"] == 10_000
    assert rows[-1]["met"] is False
    assert rows[-1]["ratio"] == 1.0
    assert next(row for row in rows if row["what"].endswith("CPU of a delivery"))["value"] == 50.0


def test_demands_are_those_of_table_4_and_fewer_begin_more() -> None:
    asked = demands.demands(2_000)
    assert asked[:10] == demands.demands(10)
    assert [row["value"] for row in models.tables()] == [126, 6, 132, 4, 4, 2]
    events = [orjson.loads(event(n, demands.CELLS, 0, b"")) for n in range(4_000)]
    matched = [sum(map(Filter(each.filter).matches, events)) for each in asked[:60]]
    assert 0.0005 < sum(matched) / len(matched) / len(events) < 0.002


def test_models_that_kept_up_are_compared_by_what_arrived() -> None:
    plan = models.QUICK
    good = models.Point(10, 1.0, 5.0, 100, 100, 0.5, 0.1, 100.0, 1.0)
    behind = models.Point(10, 1.0, 9_000.0, 60, 60, 0.5, 0.1, 100.0, 1.0)
    other = models.Point(10, 1.0, 5.0, 10_001, 10_001, 0.5, 0.1, 100.0, 1.0)
    many = models.Point(10, 1.0, 5.0, 10_000, 10_000, 0.5, 0.1, 100.0, 1.0)
    assert list(models.rows({"a": [good], "b": [good], "c": [behind]}, plan))[-1]["met"] is True
    assert list(models.rows({"a": [many], "b": [other]}, plan))[-1]["met"] is False
    charts = list(models.rows({"a": [good], "b": [behind]}, plan))[-1]["charts"]
    assert {f"figure-8{letter}" for letter in "abcd"} <= charts.keys()


def test_cost_of_consoles_is_compared_pair_by_pair() -> None:
    without = [consoles.Phase(5.0 + n, 20.0, 30.0, 0.2) for n in range(5)]
    dear = [consoles.Phase(7.0 + n, 20.0, 30.0, 0.3) for n in range(5)]
    rows = {row["what"].rpartition(": ")[2]: row for row in consoles.rows(without, dear, {"/v1/overview": 100}, 10.0)}
    assert rows["p50, what five consoles add"]["runs"] == [2.0] * 5
    assert rows["p50, chance that pairs differ so by themselves"]["met"] is False
    assert rows["p99, chance that pairs differ so by themselves"]["met"] is True
    assert rows["CPU of the gateway that five consoles add"]["value"] == pytest.approx(10.0)
    assert rows["calls of five consoles"]["by_path"] == {"/v1/overview": 2.0}


def test_events_of_the_stopped_subscriber_are_compared_exactly() -> None:
    assert stopped.missed([0, 1, 2], 3) == 0
    assert stopped.missed([0, 2], 3) == 1
    assert stopped.missed([0, 1, 2, 3], 3) == 1
    assert stopped.disorder([0, 1, 2]) == 0
    assert stopped.disorder([0, 2, 1, 3]) == 1
    rows = list(stopped.rows([10.0, 11.0, 12.0], [30.0, 31.0, 32.0], 10.0))
    assert rows[-1]["value"] == pytest.approx(1 / 20)


def test_frames_are_complete_however_they_are_split() -> None:
    texts = [b"{}", b"x" * 125, b"y" * 126, b"z" * 70_000]
    heads = [b"\x81\x02", b"\x81\x7d", b"\x81\x7e\x00\x7e", b"\x81\x7f" + (70_000).to_bytes(8)]
    data = b"".join(head + text for head, text in zip(heads, texts, strict=True))
    for size in (1, 3, 1_000, len(data)):
        found, rest = [], b""
        for at in range(0, len(data), size):
            some, rest = sockets.frames(rest + data[at : at + size])
            found += [message for opcode, message in some if opcode == 1]
        assert (found, rest) == (texts, b"")


def test_charts_of_rows_are_written_beside_the_results(tmp_path: Path) -> None:
    def workload(_: Setting) -> Iterator[Row]:
        yield from fanout.rows({"gateway": [fanout.Step(10, 10, 1, 9, 0.5, 0.2)], "queues": []})

    run("delivery", {"fanout": workload}, True, True, tmp_path)
    written = json.loads((tmp_path / "delivery" / "delivery.json").read_text())
    assert written["tables"]["fanout"][-1]["met"] is False
    assert (tmp_path / "delivery" / "fanout-p99.svg").read_text().startswith("<svg")


def test_process_that_ends_or_is_silent_is_reported() -> None:
    with helper("benchmarks.delivery.sender", "nonsense") as one, pytest.raises(RuntimeError, match="has ended with 1"):
        one.hear()
    with helper("benchmarks.delivery.listeners") as one, pytest.raises(TimeoutError, match=r"waited 0\.05 s"):
        one.hear(0.05)


TOLD = """
import sys, time
from pathlib import Path
from benchmarks.delivery import fanout
from benchmarks.reporting import run

def workload(setting):
    with fanout._queues() as up:
        print(up.group, up.folder, flush=True)
        time.sleep(60)
        yield {}

run("delivery", {"fanout": workload}, True, True, Path(sys.argv[1]))
"""


def test_stopped_process_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        group, folder = process.stdout.readline().split()
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{group}").exists()
    assert not Path(folder).exists()


def got(up: Serving, wanted: list[Wanted], streams: list[str], cells: int, due: int) -> dict[str, float]:
    """Return the events that subscribers get in 0.2 s at 1,000 events per second."""
    with listening(up.port, wanted) as subscribers:
        with appending(up.log, streams, 1_000, 0.2, cells) as sender:
            assert sender.hear() == "200"
        until(lambda: subscribers.ask()["total"] >= due, 120)
        return subscribers.ask()


def test_every_model_without_spark_gives_the_same_data() -> None:
    asked = [
        demands.Demand("gps", "cell BETWEEN 0 AND 600", ("vid", "time")),
        demands.Demand("plates", "cell BETWEEN 100 AND 900", ("cell",)),
    ]
    events = [orjson.loads(event(n, demands.CELLS, 0, b"")) for n in range(200)]
    due = sum(
        demands.STREAMS[n % 4] in each.streams and matches(e) and e["satellites"] >= 4
        for each, matches in [(each, Filter(each.filter).matches) for each in asked]
        for n, e in enumerate(events)
    )
    assert due > 50
    for model in (demands.TRADITIONAL, demands.TOPIC, demands.CONTENT):
        with model.serve() as up:
            wanted = [each for demand in asked for each in model.wanted(demand)]
            assert got(up, wanted, list(demands.STREAMS), demands.CELLS, due)["total"] == due, model.name
            assert measure.group_cpu_s(up.group) > 0
            assert measure.group_memory_bytes(up.group) > 10e6


def test_plain_server_delivers_the_same_as_the_gateway() -> None:
    wanted = [Wanted("gps", "cell BETWEEN 0 AND 499"), Wanted("gps", "cell BETWEEN 400 AND 999")]
    cells = [n * 7_919 % 1_000 for n in range(200)]
    due = sum(cell <= 499 for cell in cells) + sum(cell >= 400 for cell in cells)
    with fanout._queues() as up:
        assert got(up, wanted, ["gps"], 1_000, due)["total"] == due


def test_stopped_reader_resumes_and_websockets_count_subscriptions() -> None:
    with (
        gateway_alone(stopped.SERVICES) as up,
        listening(up.port, [Wanted("gps")], ids=True, small=True) as one,
        helper("benchmarks.delivery.sockets", up.port, "gps", 2, SOME, 1) as all_,
    ):
        assert all_.hear() == "connected"
        one.ask("stop")
        with appending(up.log, ["gps"], 1_000, 0.2, 1) as sender:
            sender.hear()
        assert until(lambda: all_.ask()["total"] == 200 * 2 * SOME, 120)
        assert all_.ask()["received"] == 200 * 2
        assert all_.ask()["repeated"] == 0
        assert one.ask("go")["total"] == 0
        assert until(lambda: one.ask()["total"] == 200, 10)
        assert one.ask("ids")["ids"] == list(range(200))
        assert up.metric('tidegate_subscribers{service="gps",state="live"}') == 1 + 2 * SOME
    assert not Path(f"/proc/{up.group}").exists()


def test_cost_of_tls_is_the_median_of_the_ratios_of_rounds() -> None:
    def figures(micros: float) -> encrypted.Figures:
        steps = tuple(fanout.Step(due, due, 1.0, 2.0, micros * due / 1e6, 0.1) for due in encrypted.DELIVERIES)
        return encrypted.Figures(steps, 1_000.0, micros, 2.0)

    rounds = [(figures(10.0), figures(15.0)), (figures(20.0), figures(40.0)), (figures(10.0), figures(90.0))]
    found = {row["what"]: row for row in encrypted.rows(rounds)}
    delivery = found["TLS, 500 SSE subscribers, 10,000 deliveries/s: CPU of a delivery"]
    assert (delivery["value"], delivery["peer_value"]) == pytest.approx((40.0, 10.0))
    assert delivery["ratios"] == pytest.approx([1.5, 2.0, 9.0])
    assert delivery["ratio"] == pytest.approx(2.0)
    assert found["TLS, NDJSON in batches of 500: CPU of the gateway for an event"]["ratio"] == pytest.approx(2.0)


@pytest.mark.processes
def test_subscribers_and_senders_reach_a_gateway_with_tls() -> None:
    with gateway_alone(encrypted.SERVICES, encrypted.self_signed) as up:
        assert up.tls
        assert encrypted._ingested(up, 0.2)[0] > 0
        step = encrypted._delivered(up, encrypted.DELIVERIES[0], 0.5, 1.0)
        assert step.delivered > 0
