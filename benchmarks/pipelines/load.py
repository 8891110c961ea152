"""Appends events to streams at a rate, in its own process: `python -m benchmarks.pipelines.load`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tidegate.logs import SegmentLog

TICKS = 200
"""Appends per second."""


def send(folder: Path, streams: list[str], rate: int, seconds: float, cameras: int = 50) -> int:
    """Append events at a rate, spread over the streams; `t` of each is the time of its append.

    The same events for a rate and length, but for their times.
    """
    log = SegmentLog(folder)
    each = max(1, rate // TICKS // len(streams))
    n, due = 0, time.perf_counter()
    end = due + seconds
    while due < end:
        now = time.time()
        whole, micros = divmod(round(now * 1e6), 1_000_000)
        moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{micros:06d}Z"
        for stream in streams:
            log.append(stream, "0", [_event(n + k, now, moment, cameras) for k in range(each)])
            n += each
        due += 1 / TICKS
        time.sleep(max(0.0, due - time.perf_counter()))
    log.close()
    return n


def _event(n: int, now: float, moment: str, cameras: int) -> bytes:
    return (
        b'{"n":%d,"t":%.6f,"vid":"V%d","cid":"C%d","time":"%s","longitude":%.5f,"latitude":%.5f,"speed":%.1f,'
        b'"direction":%d.5,"satellites":%d}'
        % (
            n,
            now,
            n % 2_000,
            n % cameras,
            moment.encode(),
            115.3 + n % 1_000 / 512,
            39.3 + n % 997 / 640,
            n % 120,
            n % 360,
            3 + n % 11,
        )
    )


if __name__ == "__main__":
    root, names, wanted, length, cameras = sys.argv[1:6]
    print(send(Path(root), names.split(","), int(wanted), float(length), int(cameras)))
