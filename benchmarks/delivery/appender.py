"""Appends events to streams at a rate, in its own process: `python -m benchmarks.delivery.appender`.

As ingest, or a service, would: each record with its id and time in front. The events are the same for a rate and
a length, but for their times: what subscribers get of them can be counted beforehand.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.delivery.events import event, moment
from tidegate.logs import SegmentLog

TICKS = 200
"""Appends per second."""


def append(folder: Path, streams: list[str], rate: int, seconds: float, cells: int) -> int:
    """Append events at a rate, one stream after the other; return their number."""
    log = SegmentLog(folder)
    n, begun = 0, time.perf_counter()
    for tick in range(1, round(seconds * TICKS) + 1):
        time.sleep(max(0.0, begun + tick / TICKS - time.perf_counter()))
        due = tick * rate // TICKS
        now, text = moment()
        for at, stream in enumerate(streams):
            first = n + (at - n) % len(streams)
            records = [
                b'{"_id":"%s:0:%d","_time":"%s",%s' % (stream.encode(), k, text, event(k, cells, now, text)[1:])
                for k in range(first, due, len(streams))
            ]
            if records:
                log.append(stream, "0", records)
        n = due
    log.close()
    return n


if __name__ == "__main__":
    root, names, rate_, length, cells_ = sys.argv[1:6]
    print(append(Path(root), names.split(","), int(rate_), float(length), int(cells_)), flush=True)
