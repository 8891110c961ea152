"""Ten thousand subscriptions on a hundred WebSockets, from a producer's POST through Spark to the socket."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from benchmarks.delivery.events import CONSTRAINTS, STREAM
from benchmarks.delivery.harness import helper, of, sending, whole
from benchmarks.reporting import Row, Setting, measured

SERVICES = f"""
streams: {{taxi: {STREAM}}}
services:
  gps: {{from: taxi, constraints: {CONSTRAINTS}, mask: {{vid: hmac}}}}
"""
RATE = 10_000
SOCKETS, EACH = 100, 100
CELLS = 5_000
"""The number of keys; a subscription selects one of them, 0.02 % of the events."""
KEEPS_UP = 0.99
"""The minimum share of the expected deliveries in a period."""


def websockets(setting: Setting) -> Iterator[Row]:
    """10,000 events per second, each for two of 10,000 subscriptions."""
    seconds = setting.warm_s + setting.measured_s
    with (
        whole(SERVICES) as up,
        helper("benchmarks.delivery.sockets", up.port, "gps", SOCKETS, EACH, CELLS) as sockets,
    ):
        heard = sockets.hear()
        assert heard == "connected", heard
        with sending(up.port, "taxi", RATE, seconds, CELLS, RATE // 200) as sender:
            time.sleep(setting.warm_s)
            before, began, cpu_s = sockets.ask(), time.monotonic(), up.cpu_s()
            time.sleep(setting.measured_s - 2)
            found = sockets.ask()
            spent, cpu_s = time.monotonic() - began, up.cpu_s() - cpu_s
            count, sent_s = json.loads(sender.hear())
    due = count / sent_s * spent * SOCKETS * EACH / CELLS
    delivered = found["total"] - before["total"]
    what = f"{SOCKETS * EACH:,} subscriptions on {SOCKETS} WebSockets, 0.02 % each, {RATE:,} events/s"
    yield measured(f"{what}: p50", of(found, "p50"), "ms")
    yield measured(f"{what}: p99", of(found, "p99"), "ms", 200.0)
    yield measured(f"{what}: longest", of(found, "longest"), "ms")
    yield measured(f"{what}: acknowledged", count / sent_s, "1/s", least=KEEPS_UP * RATE)
    yield measured(f"{what}: delivered of what was due", 100 * delivered / due, "%", least=100 * KEEPS_UP)
    yield measured(f"{what}: frames", (found["received"] - before["received"]) / spent, "1/s")
    yield measured(f"{what}: a second frame for one event and socket", found["repeated"], "frames", 0)
    yield measured(f"{what}: the gateway's CPU", 100 * cpu_s / spent, "% of a core")
