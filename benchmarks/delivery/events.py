"""The sent events: vehicles and cameras of a city. The n-th event is always the same, except for its time."""

from __future__ import annotations

import time

SCHEMA = (
    "{t: int64, cell: int64, vid: string, time: timestamp, longitude: float64, latitude: float64, speed: float64, "
    "direction: float64, satellites: int32}"
)
STREAM = f"{{schema: {SCHEMA}, event_time: time, key: vid}}"
CONSTRAINTS = '{longitude: "BETWEEN 115.25 AND 117.30", latitude: "BETWEEN 39.26 AND 41.03", speed: ">= 0"}'


def moment(nanos: int | None = None) -> tuple[int, bytes]:
    """Return a time, or now, in microseconds since 1970 and in RFC 3339."""
    now = (time.time_ns() if nanos is None else nanos) // 1_000
    whole, micros = divmod(now, 1_000_000)
    return now, f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{micros:06d}Z".encode()


def event(n: int, cells: int, now: int, text: bytes) -> bytes:
    """Return the n-th event, with the time `now`, in the cell of its number; all cells are equally frequent."""
    return (
        b'{"t":%d,"cell":%d,"vid":"V%d","time":"%s","longitude":%.5f,"latitude":%.5f,"speed":%.1f,"direction":%d.5,'
        b'"satellites":%d}'
        % (
            now,
            n * 7_919 % cells,
            n % 2_000,
            text,
            115.3 + n % 1_000 / 512,
            39.3 + n % 997 / 640,
            n % 120,
            n % 360,
            3 + n % 11,
        )
    )
