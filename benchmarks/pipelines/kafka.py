"""Latency from append to readable through a stateless service, with a real Kafka broker on this machine.

One process appends, one has Spark and reads the output; the broker is a third. On
two cores that is tight: what is measured is a machine that is busy.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import environment, percentile
from tests.kafka_broker import need_kafka, running
from tidegate.logs import Cursor, KafkaLog
from tidegate.services import check, loads

TEXT = """
streams:
  gps: {schema: {vid: string, speed: float64, sent: int64, time: timestamp}, event_time: time, key: vid}
services:
  moving:
    from: gps
    pipeline: [{filter: speed > 1}, {project: {vid: vid, kmh: speed * 3.6, sent: sent, time: time}}]
    constraints: {kmh: ">= 0"}
"""
PREFIX = "bench."
WARM_S = 10.0
"""A complete warm-up run: the JVM compiles."""
STEP_S = 0.002
"""Seconds between two appends."""


def latency(rate: int = 5_000, seconds: float = 20) -> dict[str, Any]:
    """Measure percentiles in milliseconds at a rate."""
    need_kafka()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as brokers:
        return _measure(brokers, Path(folder), rate, seconds)


def _measure(brokers: str, folder: Path, rate: int, seconds: float) -> dict[str, Any]:
    from tidegate.pipelines.engine import Engine
    from tidegate.pipelines.kafka import KafkaStreams
    from tidegate.pipelines.session import service_session

    definitions = loads(TEXT)
    check(definitions)
    log = KafkaLog(brokers, prefix=PREFIX)
    log.create("gps")
    spark = service_session("tidegate-bench", threads=8, kafka=True)
    engine = Engine(spark, log, KafkaStreams(spark, log, brokers), folder / "checkpoints", key=b"bench")
    job = engine.start(definitions.services["moving"], 1, {"gps": definitions.streams["gps"].schema})
    while not engine.is_ready(job):
        time.sleep(0.1)
    cursor, _, _ = _run(log, brokers, rate, WARM_S, log.begin("moving"))
    engine.metrics("moving")
    load = os.getloadavg()[0]
    _, taken, elapsed_s = _run(log, brokers, rate, seconds, cursor)
    inside = engine.metrics("moving")["latency_ms"]
    engine.stop(job)
    spark.stop()
    log.close()
    return {
        "rate": rate,
        "events": len(taken),
        "read_per_s": round(len(taken) / elapsed_s),
        **{f"p{q}_ms": round(percentile(taken, q / 100) / 1e3, 2) for q in (50, 90, 99)},
        "max_ms": round(max(taken) / 1e3, 2),
        "appended_to_written_p50_ms": inside["p50"],
        "load_before": load,
    }


def _feed(brokers: str, rate: int, seconds: float) -> None:
    """Append events when they are due, a few at a time, each with the time of its append."""
    log = KafkaLog(brokers, prefix=PREFIX)
    begin = time.perf_counter()
    sent, total = 0, int(rate * seconds)
    while sent < total:
        due = min(total, int((time.perf_counter() - begin) * rate) + 1)
        now = time.time_ns() // 1_000
        records = [
            b'{"vid":"V%d","speed":%d.5,"sent":%d,"time":"2026-01-01T00:00:00Z"}' % (n % 100, n % 50 + 1, now)
            for n in range(sent, due)
        ]
        log.append("gps", "0", records)
        sent = due
        time.sleep(max(0.0, begin + sent / rate + STEP_S - time.perf_counter()))
    log.close()


def _run(log: KafkaLog, brokers: str, rate: int, seconds: float, cursor: Cursor) -> tuple[Cursor, list[int], float]:
    """Return the latency of each event in microseconds, and the duration of the run."""
    taken: list[int] = []
    begin = time.perf_counter()
    feeding = multiprocessing.get_context("spawn").Process(target=_feed, args=(brokers, rate, seconds))
    feeding.start()
    while len(taken) < int(rate * seconds):
        if not log.wait("moving", cursor, 60.0):
            raise RuntimeError(f"{len(taken)} of {rate * seconds:g} events came")
        read = log.read("moving", cursor, 10_000)
        if not taken:
            begin = time.perf_counter()
        now = time.time_ns() // 1_000
        cursor = read.cursor
        for record in read.records:
            at = record.index(b'"sent":') + 7
            taken.append(now - int(record[at : record.index(b",", at)]))
    feeding.join()
    return cursor, taken, time.perf_counter() - begin


if __name__ == "__main__":
    print(json.dumps({**environment(), "latency": latency()}, indent=2))
