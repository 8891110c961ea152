"""Sends events over HTTP at a rate, in a process of its own: `python -m benchmarks.delivery.sender`."""

from __future__ import annotations

import http.client
import json
import sys
import time

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
    now = time.time_ns() // 1_000
    whole, micros = divmod(now, 1_000_000)
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{micros:06d}Z".encode()
    return b"\n".join(
        b'{"t":%d,"cell":%d,"vid":"V%d","time":"%s","longitude":%.5f,"latitude":%.5f,"speed":%.1f,"direction":%d.5,'
        b'"satellites":%d}'
        % (
            now,
            k * 7_919 % cells,
            k % 2_000,
            moment,
            115.3 + k % 1_000 / 512,
            39.3 + k % 997 / 640,
            k % 120,
            k % 360,
            3 + k % 11,
        )
        for k in range(n, n + size)
    )


if __name__ == "__main__":
    port_, stream_, rate_, seconds_, cells_, size_ = sys.argv[1:7]
    print(json.dumps(send(int(port_), stream_, int(rate_), float(seconds_), int(cells_), int(size_))))
