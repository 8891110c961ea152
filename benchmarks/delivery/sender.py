"""Sends events over HTTP at a rate, in a process of its own: `python -m benchmarks.delivery.sender`."""

from __future__ import annotations

import http.client
import json
import sys
import time

from benchmarks.delivery.events import event, moment

HEADERS = {"content-type": "application/x-ndjson"}


MOST = 20
"""Chunks that a request has at most: who is late sends what has come due together, as a producer would."""


def send(port: int, stream: str, rate: int, seconds: float, cells: int, size: int) -> tuple[int, float]:
    """Send so many events a second, in chunks of `size` as soon as each is due; rate 0: as fast as it goes.

    An event's time is when its chunk was due, whenever it is sent: that a server makes its producer wait is in the
    latency. Gives how many were acknowledged, and in how many seconds.
    """
    link = http.client.HTTPConnection("127.0.0.1", port)
    n, begun, began = 0, time.perf_counter(), time.time_ns()
    while (spent := time.perf_counter() - begun) < seconds:
        chunks = 1 if rate == 0 else min(MOST, (int(spent * rate) - n) // size)
        if chunks < 1:
            time.sleep((n + size) / rate - spent)
            continue
        body = []
        for first in range(n, n + chunks * size, size):
            due = time.time_ns() if rate == 0 else began + int((first + size) / rate * 1e9)
            now, text = moment(due)
            body += [event(k, cells, now, text) for k in range(first, first + size)]
        link.request("POST", f"/v1/streams/{stream}/events", b"\n".join(body), HEADERS)
        answer = link.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(said.decode())
        n += chunks * size
    return n, time.perf_counter() - begun


if __name__ == "__main__":
    port_, stream_, rate_, seconds_, cells_, size_ = sys.argv[1:7]
    print(json.dumps(send(int(port_), stream_, int(rate_), float(seconds_), int(cells_), int(size_))), flush=True)
