"""Processes of `tidegate up` over a Kafka, and numbered events to feed them with."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.polling import until
from tidegate.logs import KafkaLog

START_S = 240.0
"""How long a start on a busy machine may take."""


class Runner:
    """A process of `tidegate up`."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process, self._output = process, output

    @property
    def output(self) -> str:
        """All that it has written."""
        return self._output.read_text()

    def wait_for(self, pattern: str) -> None:
        """Wait until a line of the output matches a pattern."""
        until(
            lambda: re.search(pattern, self.output, re.M) or self.process.poll() is not None,
            f"{pattern!r} in the output",
            START_S,
        )
        assert self.process.poll() is None, self.output[-4_000:]

    def stop(self) -> None:
        """End it with SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(90) == 0, self.output[-4_000:]


@contextmanager
def up(folder: Path, profile: str, services: str, data: Path, *more: str, name: str = "up") -> Iterator[Runner]:
    """Start `tidegate up` without a gateway, and do not wait for it. `name` is that of the file with its output."""
    (folder / "profile.yaml").write_text(profile)
    (folder / "services.yaml").write_text(services)
    output = folder / f"{name}.txt"
    options = ("--no-gateway", "--data", str(data), "--profile", str(folder / "profile.yaml"), *more)
    with output.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", "up", str(folder / "services.yaml"), *options],
            stdout=written,
            stderr=written,
        )
    try:
        yield Runner(process, output)
    finally:
        process.send_signal(signal.SIGCONT)
        if process.poll() is None:
            process.kill()
            process.wait()


class Feed:
    """Appends numbered events to the partitions of a stream in turn, until it is stopped."""

    def __init__(self, log: KafkaLog, stream: str, partitions: Sequence[str], pause_s: float = 0.01) -> None:
        self._log, self._stream, self._partitions, self._pause_s = log, stream, partitions, pause_s
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self.count = 0

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Stop, and return how many events there are."""
        self._stop.set()
        self._thread.join()
        return self.count

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            partition = self._partitions[self.count % len(self._partitions)]
            event = {"n": self.count, "kind": f"k{partition}", "time": "2026-01-01T00:00:10Z"}
            self._log.append(self._stream, partition, [json.dumps(event).encode()])
            self.count += 1


def raw(log: KafkaLog, stream: str) -> list[dict[str, Any]]:
    """Return all records of a stream's topic, repeats too."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": log._brokers, "group.id": "raw", "enable.auto.commit": False}
    settings |= {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    found = []
    for name, end in log.end(stream).offsets.items():
        consumer.assign([TopicPartition(log.topic(stream), int(name), 0)])
        while end:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                break  # the end of the partition
            found.append(json.loads(message.value() or b"null"))
    consumer.close()
    return found
