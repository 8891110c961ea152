"""The latency that a link between two brokers adds to the delivery of an event.

Two gateways, each a process, linked over loopback. A service's output at the one is appended to at a steady rate; one
subscriber listens there by server-sent events, another at the other end of the link, in the same run, so that what the
machine does to one it does to both.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import httpx
import numpy as np

from benchmarks.delivery.harness import Serving, make_streams, serving
from benchmarks.pipelines.harness import wait_for
from benchmarks.reporting import Row, Setting, measured
from benchmarks.reporting import run as _run
from tidegate.logs import SegmentLog
from tidegate.registry import SqliteRegistry
from tidegate.services import loads

RATE = 2_000
"""Events per second."""
EVERY_S = 0.005
"""Seconds between two appends of ten events each."""
MOST_MS = 5.0
"""The maximum that a link may add to the median."""
WARM_S = 3.0
SECRET = "a secret that both ends of a link know"
OWN = """
streams: {raw: {schema: {n: int64, sent: int64}}}
services: {numbers: {from: raw}}
"""
NONE = "streams: {raw: {schema: {n: int64}}}\nservices: {}"
_SENT = re.compile(r'"sent":([0-9]+)')


@contextmanager
def _broker(name: str, services: str) -> Iterator[Serving]:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        registry = SqliteRegistry(Path(folder) / "registry.sqlite")
        registry.apply(loads(services))
        make_streams(Path(folder), list(registry.services()))
        registry.close()
        command = [sys.executable, "-m", "tidegate", "gateway", "--data", folder, "--port", "0", "--broker", name]
        with serving(Path(folder), command) as found:
            yield found


def _link(here: Serving, there: Serving) -> None:
    with httpx.Client(timeout=20) as http:
        one, other = (f"http://127.0.0.1:{each.port}" for each in (here, there))
        http.post(f"{other}/v1/links", json={"name": "here", "secret": SECRET}).raise_for_status()
        http.post(f"{one}/v1/links", json={"name": "there", "url": other, "secret": SECRET}).raise_for_status()
        wait_for(lambda: "numbers@there" in http.get(f"{one}/v1/services").text, "the service to be known")


class _Listener(threading.Thread):
    """Subscribes, and records the age of each event at its arrival."""

    def __init__(self, serving: Serving, service: str) -> None:
        super().__init__(daemon=True)
        self._url = f"http://127.0.0.1:{serving.port}/v1/services/{service}/events"
        self.ages_ms: list[tuple[float, float]] = []
        """Arrival time and age of each event."""

    def run(self) -> None:
        headers = {"accept": "text/event-stream"}
        with httpx.stream("GET", self._url, headers=headers, timeout=None) as stream:
            for text in stream.iter_text():
                now = time.time_ns()
                self.ages_ms += [(now / 1e9, (now / 1e3 - int(sent)) / 1e3) for sent in _SENT.findall(text)]

    def between(self, begin: float, end: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the ages of the events that arrived in a period."""
        return np.array([age for at, age in list(self.ages_ms) if begin <= at < end])


def _append(log: SegmentLog, until: float) -> None:
    """Append at the rate, until a time."""
    begun, numbers = time.time(), count()
    for turn in count():
        late_s = begun + turn * EVERY_S - time.time()
        if late_s > 0:
            time.sleep(late_s)
        if time.time() >= until:
            return
        now = time.time_ns() // 1_000
        some = [next(numbers) for _ in range(int(RATE * EVERY_S))]
        log.append("numbers", "0", [b'{"_id":"%d","n":%d,"sent":%d}' % (n, n, now) for n in some])


def link(setting: Setting) -> Iterator[Row]:
    """Measure the latencies of both subscribers at a steady rate, and the brokers' CPU time."""
    with _broker("here", NONE) as here, _broker("there", OWN) as there:
        _link(here, there)
        near, far = _Listener(there, "numbers"), _Listener(here, "numbers@there")
        near.start()
        far.start()
        entries = f"http://127.0.0.1:{there.port}/v1/links/here"
        wait_for(lambda: bool(httpx.get(entries).json()["entries"]), "it to be asked for")
        log = SegmentLog(there.log)
        begin = time.time() + WARM_S
        end = begin + setting.measured_s
        sender = threading.Thread(target=_append, args=(log, end + 1.0))
        sender.start()
        time.sleep(begin - time.time())
        cpu = [here.cpu_s(), there.cpu_s()]
        time.sleep(end - time.time())
        cpu = [now - then for now, then in zip((here.cpu_s(), there.cpu_s()), cpu, strict=True)]
        sender.join()
        log.close()
        ages = {"at the origin": near.between(begin, end), "over the link": far.between(begin, end)}
        for where, each in ages.items():
            yield measured(f"events a second, {where}", len(each) / setting.measured_s, "", least=RATE * 0.98)
            for share in (50, 99):
                yield measured(f"p{share} {where}", float(np.percentile(each, share)), "ms")
        medians = [float(np.percentile(each, 50)) for each in ages.values()]
        yield measured("p50 that a link adds", medians[1] - medians[0], "ms", most=MOST_MS)
        yield measured("CPU of the origin's gateway", cpu[1] / setting.measured_s * 100, "%")
        yield measured("CPU of the other gateway", cpu[0] / setting.measured_s * 100, "%")


run = partial(_run, "federation_link", {"link": link})
