"""Two processes of `tidegate up` share a registry: the second takes over where the first ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.runner import Feed, Runner, raw, up
from tests.conftest import LENGTH
from tests.kafka_broker import Broker
from tests.polling import until
from tests.postgres_server import Server, postgres_or_skip, serving
from tests.registry import stores
from tidegate.logs import KafkaLog

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.xdist_group("broker"),
    pytest.mark.skipif(LENGTH != "soak", reason="starts three Sparks: in the soak only"),
]

SERVICES = """
streams: {raw_TAG: {schema: {n: int64, kind: string, time: timestamp}, event_time: time, partitions: 2}}
services:
  all_TAG: {from: raw_TAG, pipeline: [{filter: n >= 0}]}
  counted_TAG:
    from: raw_TAG
    pipeline: [{aggregate: {count: n, by: [kind], window: {length: 60s}, emit: updates}}]
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(postgres_or_skip()) as server:
        yield server


@pytest.fixture
def log(broker: Broker) -> Iterator[KafkaLog]:
    log = KafkaLog(broker.address)
    yield log
    log.close()


def kill(runner: Runner) -> None:
    runner.process.kill()
    runner.process.wait()


def pause(runner: Runner) -> None:
    """Stop the process, but not the JVM that it has started."""
    runner.process.send_signal(signal.SIGSTOP)


FAULTS: dict[str, tuple[str, Callable[[Runner], None]]] = {
    "killed, another folder": ("second", kill),
    "killed, the same folder": ("first", kill),
    "paused, another folder": ("second", pause),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_standby_goes_on_where_the_first_process_ended(
    server: Server, broker: Broker, log: KafkaLog, tmp_path: Path, fault: str
) -> None:
    second_name, end = FAULTS[fault]
    profile = f"log: {{kafka: '{broker.address}'}}\nregistry: '{stores.new_schema(server.url)}'\n"
    profile += f"checkpoints: {tmp_path / 'states'}\n"
    first_data, second_data = tmp_path / "first", tmp_path / second_name
    tag = str(list(FAULTS).index(fault))
    services, stream, output = SERVICES.replace("TAG", tag), f"raw_{tag}", f"all_{tag}"
    with ExitStack() as started:
        first = started.enter_context(up(tmp_path, profile, services, first_data, name="one"))
        first.wait_for("^ready: ")
        second = started.enter_context(up(tmp_path, profile, services, second_data, name="two"))
        second.wait_for("standing by")
        with Feed(log, stream, ("0", "1")) as feed:
            until(lambda: _written(log, output) > 200, "events to be written")
            end(first)
            ended_at = time.monotonic()
            second.wait_for("service runs")
            print(f"takeover after {time.monotonic() - ended_at:.1f} s")
            before = feed.count
            until(lambda: feed.count > before + 50, "more events")
            count = feed.stop()
        until(lambda: _written(log, output) >= count, "all events", 120)
        until(lambda: _written(log, f"counted_{tag}") >= count, "all counts", 120)
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(90) != 0  # it was killed, or has lost its lease
        second.stop()
    assert sorted(event["n"] for event in raw(log, output)) == list(range(count))
    counts = sorted((event["kind"], event["n"]) for event in raw(log, f"counted_{tag}"))
    assert counts == sorted((f"k{n % 2}", n // 2 + 1) for n in range(count))


def _written(log: KafkaLog, stream: str) -> int:
    return sum(log.end(stream).offsets.values())
