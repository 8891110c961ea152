"""Sends events over HTTP at a rate, in its own process: `python -m benchmarks.delivery.sender`."""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.delivery.events import event, moment
from benchmarks.delivery.listeners import unverified

HEADERS = {"content-type": "application/x-ndjson"}
if "TIDEGATE_KEY" in os.environ:
    HEADERS["authorization"] = f"Bearer {os.environ['TIDEGATE_KEY']}"


CONNECTIONS = 4
"""The number of connections at a fixed rate, so that a request does not wait for the previous response."""
MOST = 20
"""Maximum chunks per request: a late sender combines the chunks that are due, as a producer would."""


def send(
    port: int, stream: str, rate: int, seconds: float, cells: int, size: int, tls: bool = False
) -> tuple[int, float]:
    """Send events at a rate, in chunks of `size` as soon as each is due; rate 0: as fast as possible.

    An event's time is when its chunk was due, whenever it is sent: that a server makes its producer wait is in the
    latency. Gives how many were acknowledged, and in how many seconds.
    """
    lanes = CONNECTIONS if rate else 1
    begun, began = time.perf_counter(), time.time_ns()

    def work(lane: int) -> int:
        link = http.client.HTTPConnection("127.0.0.1", port)
        if tls:
            link = http.client.HTTPSConnection("127.0.0.1", port, context=unverified())
        k, count = lane, 0
        while (spent := time.perf_counter() - begun) < seconds:
            late = 1 if rate == 0 else (int(spent * rate / size) - k + lanes - 1) // lanes
            if late < 1:
                time.sleep(max(0.0, (k + 1) * size / rate - spent))
                continue
            chunks = range(k, k + lanes * min(MOST, late), lanes)
            body = b"\n".join(each for n in chunks for each in chunk(n))
            link.request("POST", f"/v1/streams/{stream}/events", body, HEADERS)
            answer = link.getresponse()
            said = answer.read()
            if answer.status != 200:
                raise RuntimeError(said.decode())
            k, count = chunks[-1] + lanes, count + len(chunks) * size
        return count

    def chunk(n: int) -> list[bytes]:
        now, text = moment(began + int((n + 1) * size / rate * 1e9) if rate else None)
        return [event(each, cells, now, text) for each in range(n * size, (n + 1) * size)]

    with ThreadPoolExecutor(lanes) as pool:
        count = sum(pool.map(work, range(lanes)))
    return count, time.perf_counter() - begun


if __name__ == "__main__":
    port_, stream_, rate_, seconds_, cells_, size_, tls_ = sys.argv[1:8]
    numbers = int(rate_), float(seconds_), int(cells_), int(size_)
    print(json.dumps(send(int(port_), stream_, *numbers, tls_ == "1")), flush=True)
