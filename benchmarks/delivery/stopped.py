"""One subscriber of 500 stops reading: the effect on the others, and whether it gets all events later."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

from benchmarks.delivery.events import STREAM
from benchmarks.delivery.harness import Helper, appending, gateway_alone, listening, of, until
from benchmarks.delivery.listeners import Wanted
from benchmarks.reporting import Row, Setting, measured, plot
from benchmarks.significance import by_permutation

SERVICES = f"""
streams: {{taxi: {STREAM}}}
services: {{gps: {{from: taxi}}}}
"""
EVENTS = 2_000
"""Events per second; the stopped subscriber gets all of them, and 0.6 MB per second soon fill every buffer."""
OTHERS = 499
CELLS = 500
CHANCE = 0.05
"""The significance level: a larger probability shows no difference."""
CATCH_UP_S = 30.0


def stopped(setting: Setting) -> Iterator[Row]:
    """Alternate runs without and with a subscriber that does not read for a minute."""
    runs, stop_s, window_s, warm_s = (4, 10.0, 5.0, 5.0) if setting.quick else (5, 60.0, 30.0, 10.0)
    seconds = warm_s + runs * (stop_s + window_s + 1)
    without, with_, behind = [], [], []
    with (
        gateway_alone(SERVICES) as up,
        listening(up.port, [Wanted("gps", f"cell = {n}") for n in range(OTHERS)]) as others,
        listening(up.port, [Wanted("gps")], ids=True, small=True) as one,
        appending(up.log, ["gps"], EVENTS, seconds, CELLS) as appender,
    ):
        time.sleep(warm_s)
        for _ in range(runs):
            without.append(_p99(others, window_s))
            one.ask("stop")
            time.sleep(stop_s - window_s)
            with_.append(_p99(others, window_s))
            behind.append(up.metric('tidegate_subscribers{service="gps",state="behind"}'))
            one.ask("go")
            time.sleep(1)  # the subscriber catches up; not part of any run
        sent = int(appender.hear(seconds + 60))
        until(lambda: one.ask()["total"] >= sent, CATCH_UP_S)
        ids = one.ask("ids")["ids"]
        others.ask()
    yield from rows(without, with_, stop_s)
    yield measured("subscribers who were behind at the end of a stop, least of all runs", min(behind), "", least=1)
    yield measured(f"the one that stopped, of {sent:,} events: missed", missed(ids, sent), "events", 0)
    yield measured(f"the one that stopped, of {sent:,} events: more than once", len(ids) - len(set(ids)), "events", 0)
    yield measured(f"the one that stopped, of {sent:,} events: not in order", disorder(ids), "events", 0)


def rows(without: Sequence[float], with_: Sequence[float], stop_s: float) -> Iterator[Row]:
    """Yield rows with the latencies of the others, run by run, and whether they differ."""
    what = f"{OTHERS} SSE subscribers, {EVENTS:,} events/s"
    yield measured(f"{what}: p99, mean of {len(without)} runs", statistics.fmean(without), "ms") | {"runs": without}
    meanwhile = f"{what}: p99 while one has stopped for {stop_s:g} s"
    yield measured(meanwhile, statistics.fmean(with_), "ms") | {"runs": with_}
    likely = by_permutation(with_, without)
    points = {
        "all read": list(enumerate(without, 1)),
        "one has stopped": list(enumerate(with_, 1)),
    }
    chart = plot(f"{what}: p99 of those who read", "run", "milliseconds", points, log=False)
    unlike = measured(f"{what}: chance that the runs differ so by themselves", likely, "", least=CHANCE)
    yield unlike | {"charts": {"stopped": chart}}


def missed(ids: Sequence[int], sent: int) -> int:
    """Return the number of missing events from 0 on, plus those that arrived but were never sent."""
    return len(set(range(sent)) ^ set(ids))


def disorder(ids: Sequence[int]) -> int:
    """Return how often an event is older than the previous one."""
    return sum(a > b for a, b in pairwise(ids))


def _p99(others: Helper, window_s: float) -> float:
    others.ask()
    time.sleep(window_s)
    return of(others.ask(), "p99")
