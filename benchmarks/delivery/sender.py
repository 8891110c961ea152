"""Sends events over HTTP at a rate, in a process of its own: `python -m benchmarks.delivery.sender`."""

from __future__ import annotations

import http.client
import json
import sys
import time

from benchmarks.delivery.events import event, moment

HEADERS = {"content-type": "application/x-ndjson"}


def send(port: int, stream: str, rate: int, seconds: float, cells: int, size: int) -> tuple[int, float]:
    """Send so many events a second, `size` in a request, as soon as each is due; rate 0: as fast as it goes.

    Gives how many were acknowledged, and in how many seconds.
    """
    link = http.client.HTTPConnection("127.0.0.1", port)
    n, begun = 0, time.perf_counter()
    while (spent := time.perf_counter() - begun) < seconds:
        due = n + size if rate == 0 else int(spent * rate)
        if due < n + size:
            time.sleep((n + size - due) / rate)
            continue
        link.request("POST", f"/v1/streams/{stream}/events", _body(n, size, cells), HEADERS)
        answer = link.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(said.decode())
        n += size
    return n, time.perf_counter() - begun


def _body(n: int, size: int, cells: int) -> bytes:
    now, text = moment()
    return b"\n".join(event(k, cells, now, text) for k in range(n, n + size))


if __name__ == "__main__":
    port_, stream_, rate_, seconds_, cells_, size_ = sys.argv[1:7]
    print(json.dumps(send(int(port_), stream_, int(rate_), float(seconds_), int(cells_), int(size_))), flush=True)
