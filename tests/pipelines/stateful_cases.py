"""The expected results of the services in stateful.yaml, by obvious Python: every operator with state."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.pipelines import obvious_state as obvious
from tests.pipelines.obvious_pattern import Pattern, Step
from tests.pipelines.obvious_state import HOUR, SECOND, Event, Key, Reading, Windows, id_time, spans

BEGIN_US = 1_711_670_400_000_000
"""2024-03-29: two days before the clocks change in Europe. Long past, so the wall clock closes no window."""
END_US = BEGIN_US + 20 * 24 * HOUR
"""The time of the last event of each stream, which closes all windows before it."""
COUNTS = {"a": 120, "b": 60, "c": 40, "d": 60, "e": 40}
LAST: dict[str, Event] = {"a": {"n": 99}, "b": {"level": 49}, "c": {"mark": "r"}, "d": {"n": 99}, "e": {"n": 99}}
"""Attributes of the last event of each stream."""
ALLOWS_ALL = 90
"""A lateness in seconds that refuses no event of the streams by seconds."""

Expected = list[Event]


@dataclass(frozen=True)
class Case:
    """A service and its output."""

    name: str
    reads: str
    """The streams that it reads, by their letters."""
    expected: Callable[[Reading], Expected]
    order: str | None = None
    """The attribute for each value of which the results come in this order; empty: all do; None: in any."""
    late: Callable[[Reading], Sequence[Event]] | None = None
    """The events that are refused as late; None: none are."""
    may_restart: bool = True
    """False: what comes again after a restart may come in another order, and the result depends on it."""


def made(seed: int) -> dict[str, list[Event]]:
    """Streams in nearly the order of time: a few seconds out of it, and some events much later."""
    rng = random.Random(seed)
    found: dict[str, list[Event]] = {}
    for stream, count in COUNTS.items():
        step = 2 * HOUR if stream == "d" else 400_000
        events = []
        for n in range(count):
            time = BEGIN_US + n * step - rng.randrange(10) * step
            if rng.random() < 0.06:
                time -= rng.randrange(20, 60) * step
            events.append(_event(rng, stream, n, rng.choice("xyz"), time))
        # No filter removes it: one that is removed moves the watermark only with the next tick.
        events.append({**_event(rng, stream, count, "end", END_US), **LAST[stream]})
        found[stream] = events
    return found


def _event(rng: random.Random, stream: str, n: int, vid: str, time: int) -> Event:
    own: Event = {"_id": f"{stream}{n}", "_n": n, "_time": time, "vid": vid, "time": time}
    if stream in "ae":
        speed = None if rng.random() < 0.05 else float(rng.randrange(-5, 60))
        return {**own, "speed": speed, "n": rng.randrange(100)}
    if stream == "b":
        return {**own, "level": rng.randrange(50)}
    return {**own, "mark": rng.choice("pqr")} if stream == "c" else {**own, "n": rng.randrange(100)}


def plain(event: Event | None, *names: str) -> Event:
    """The attributes of an event, all or some."""
    if event is None:
        return {}
    return {name: value for name, value in event.items() if (name in names if names else not name.startswith("_"))}


def same(event: Event) -> Event:
    """An event that goes out as it came."""
    return {"_id": event["_id"], "_time": event["_time"], **plain(event)}


# Aggregates --------------------------------------------------------------------

Aggregates = dict[str, tuple[str, str | None, float]]

FEW: Aggregates = {"c": ("count", None, 0), "total": ("sum", "n", 0)}
ALL: Aggregates = {
    **FEW,
    "cs": ("count", "speed", 0),
    "mean": ("avg", "speed", 0),
    "dev": ("stddev", "speed", 0),
    "low": ("min", "speed", 0),
    "high": ("max", "speed", 0),
    "n1": ("first", "n", 0),
    "n2": ("last", "n", 0),
    "kinds": ("distinct", "n", 0),
    "about": ("approx_distinct", "n", 0),
    "p90": ("percentile", "speed", 0.9),
    "all": ("collect", "n", 0),
}


def aggregates(events: Sequence[Event], wanted: Aggregates) -> Event:
    return {name: obvious.aggregate(function, events, of, share) for name, (function, of, share) in wanted.items()}


def keys(by: Sequence[str], key: Key) -> tuple[Event, str]:
    return dict(zip(by, key, strict=True)), "|".join(map(str, key)) or "*"


def windowed(windows: Windows, by: Sequence[str], wanted: Aggregates, *, revised: bool = False) -> Expected:
    """One result for each window, or for each of its revisions."""
    found = []
    for key, start, end, events in windows.given:
        named, text = keys(by, key)
        id_ = f"{text}@{id_time(end)}" + (f"#{len(events)}" if revised else "")
        bounds = {"window_start": start, "window_end": end}
        found.append({"_id": id_, "_time": end, **named, **aggregates(events, wanted), **bounds})
    return found


def timed(
    length: float, slide: float, wanted: Aggregates, lateness: float = ALLOWS_ALL, offset: float = 0
) -> Callable[[Reading], Expected]:
    return lambda reading: windowed(Windows(reading, spans(length, slide, offset), ["vid"], lateness), ["vid"], wanted)


def late_of(length: float, lateness: float, kept: int = 0) -> Callable[[Reading], Sequence[Event]]:
    return lambda reading: Windows(reading, spans(length, length), ["vid"], lateness, kept=kept).late


def _kept(reading: Reading) -> Expected:
    windows = Windows(reading, spans(10, 10), ["vid"], 5, kept=HOUR)
    return windowed(windows, ["vid"], FEW, revised=True)


def _updates(reading: Reading) -> Expected:
    return windowed(Windows(reading, spans(10, 5), ["vid"], ALLOWS_ALL, updates=True), ["vid"], FEW, revised=True)


def _days(reading: Reading) -> Expected:
    days = Windows(reading, obvious.local_days("Europe/Berlin", 6), ["vid"], 10 * 24 * 3600)
    return windowed(days, ["vid"], FEW)


def _sessions(reading: Reading) -> Expected:
    found = []
    for key, start, end, events in obvious.sessions(reading, ["vid"], 3, ALLOWS_ALL):
        own = {**aggregates(events, ALL), "window_start": start, "window_end": end}
        found.append({"_id": f"{key[0]}@{id_time(start)}", "_time": end, "vid": key[0], **own})
    return found


def counted(
    by: Sequence[str], length: int, slide: int, wanted: Aggregates, *, so_far: bool = False
) -> Callable[[Reading], Expected]:
    def expected(reading: Reading) -> Expected:
        found = []
        for key, number, events in obvious.by_count(reading, by, length, slide, so_far=so_far):
            named, text = keys(by, key)
            times = [event["_time"] for event in events]
            bounds = {"window_start": min(times), "window_end": max(times)}
            found.append(
                {"_id": f"{text}@{number}", "_time": max(times), **named, **aggregates(events, wanted), **bounds}
            )
        return found

    return expected


def _counted(reading: Reading) -> Expected:
    """A window by count collects events in order of arrival."""
    found = counted(["vid"], 4, 2, ALL)(reading)
    for each, (_, _, events) in zip(found, obvious.by_count(reading, ["vid"], 4, 2), strict=True):
        each["all"] = [event["n"] for event in events]
    return found


def _running(reading: Reading) -> Expected:
    found = []
    for key, number, events in obvious.by_count(reading, ["vid"], 1, 1, so_far=True):
        times = [event["_time"] for event in events]
        bounds = {"window_start": min(times), "window_end": max(times)}
        found.append(
            {"_id": f"{key[0]}#{number}", "_time": max(times), "vid": key[0], **aggregates(events, ALL), **bounds}
        )
    return found


def totals(length: float, slide: float) -> Callable[[Reading], Expected]:
    """All events so far at the end of each window that has events; between two ends a sliding window gives more."""

    def expected(reading: Reading) -> Expected:
        found = []
        for key, _, end, _ in Windows(reading, spans(slide, slide), ["vid"], ALLOWS_ALL).given:
            events = [e for _, e in reading if e["vid"] == key[0] and e["_time"] < end]
            bounds = {"window_start": end - round(length * SECOND), "window_end": end}
            id_ = f"{key[0]}@{id_time(end)}"
            found.append({"_id": id_, "_time": end, "vid": key[0], **aggregates(events, ALL), **bounds})
        return found

    return expected


def _fastest(reading: Reading) -> Expected:
    """The whole event with the greatest speed of each window with more than two events with a speed."""
    found = []
    for key, start, end, events in Windows(reading, spans(10, 10), ["vid"], ALLOWS_ALL).given:
        held = [event for event in events if event["speed"] is not None]
        if len(events) > 2:
            best = max(held, key=lambda event: (event["speed"], event["_id"]), default=None)
            own = {"c": len(events), "window_start": start, "window_end": end}
            id_ = f"{key[0]}@{id_time(end)}"
            found.append({"_id": id_, "_time": end, **plain(best), "vid": key[0], **own})
    return found


# Sort ----------------------------------------------------------------------------


def sorted_by(events: Sequence[Event], *names: str) -> list[Event]:
    """Sort by attributes, `-` descending, missing values last, equal ones by time."""
    found = obvious.in_order(events)
    for name in reversed(names):
        attribute, sign = name.lstrip("-"), -1 if name[0] == "-" else 1
        found.sort(key=lambda e, a=attribute, s=sign: (e[a] is None, 0 if e[a] is None else s * e[a]))  # type: ignore[misc]
    return found


def placed(event: Event, place: str) -> Event:
    return {**same(event), "_id": f"{event['_id']}@{place}"}


def ordered(by: Sequence[str], per: Sequence[str] = (), limit: int | None = None) -> Callable[[Reading], Expected]:
    def expected(reading: Reading) -> Expected:
        windows = Windows(reading, spans(10, 10), per, ALLOWS_ALL)
        return [
            placed(event, id_time(end))
            for _, _, end, events in sorted(windows.given, key=lambda each: (each[2], str(each[0])))
            for event in sorted_by(events, *by)[:limit]
        ]

    return expected


def _sorted_by_count(reading: Reading) -> Expected:
    return [
        placed(event, str(number))
        for _, number, events in obvious.by_count(reading, [], 6, 3)
        for event in _in_reading(events, "-n")
    ]


def _in_reading(events: Sequence[Event], name: str) -> list[Event]:
    """Sort by an attribute, descending; equal values in order of arrival."""
    return sorted(events, key=lambda event: -event[name[1:]])


def _top(reading: Reading) -> Expected:
    """The two largest means of each window, of an aggregate before."""
    means: dict[int, Expected] = {}
    wanted: Aggregates = {"mean": ("avg", "speed", 0)}
    for each in windowed(Windows(reading, spans(10, 10), ["vid"], ALLOWS_ALL), ["vid"], wanted):
        means.setdefault(each["window_end"], []).append(each)
    found = []
    for end, every in sorted(means.items()):
        best = sorted(every, key=lambda e: (e["mean"] is None, -(e["mean"] or 0), e["_id"]))[:2]
        found += [{**event, "_id": f"{event['_id']}@{id_time(end)}"} for event in best]
    return found


# Joins ---------------------------------------------------------------------------

RENAMED = {
    "A": {name: f"a_{name}" for name in ("vid", "speed", "n", "time")},
    "b": {"time": "b_time", "vid": "b_vid"},
    "c": {"time": "c_time", "vid": "c_vid"},
}
"""`A` is the stream `a`, read a second time."""


def combined(
    streams: str, on: Sequence[str], combinations: Sequence[obvious.Combination], *, full: bool = False
) -> Expected:
    found = []
    for events in combinations:
        there = next(event for event in events if event is not None)
        own: Event = {"_id": "+".join("" if e is None else e["_id"] for e in events), "_time": there["_time"]}
        for stream, event in zip(streams, events, strict=True):
            names = {} if stream == streams[0] else {k: v for k, v in RENAMED[stream].items() if k not in on}
            own |= {names.get(name, name): value for name, value in plain(event).items()}
        found.append({**own, "time": there["_time"]} if full else own)
    return found


def join(
    streams: str, on: Sequence[str], within: float, how: str = "inner", lateness: float = ALLOWS_ALL
) -> Callable[[Reading], Expected]:
    def expected(reading: Reading) -> Expected:
        combinations, _ = obvious.joined(reading, streams, on, within, lateness, how)
        return combined(streams, on, combinations, full=how == "full")

    return expected


def _late_for_join(reading: Reading) -> Sequence[Event]:
    return obvious.joined(reading, "ab", ["vid"], 2, 3, "full")[1]


def _three(reading: Reading) -> Expected:
    kept = [(s, e) for s, e in reading if s != "c" or e["mark"] != "p"]
    return join("abc", ["vid"], 3)(kept)


def _middle(reading: Reading) -> Expected:
    kept = [(s, e) for s, e in reading if (s == "a" and e["n"] > 20) or (s == "b" and e["level"] > 10)]
    found = join("ab", ["vid"], 2)(kept)
    return [
        {"_id": e["_id"], "_time": e["_time"], "vid": e["vid"], "both": e["n"] + e["level"], "time": e["time"]}
        for e in found
    ]


def _twice(reading: Reading) -> Reading:
    return [(letter, event) for _, event in reading for letter in "aA"]


def _itself(reading: Reading) -> Expected:
    kept = [(s, e) for s, e in _twice(reading) if s == "a" or e["n"] > 50]
    return join("aA", ["vid"], 1, "left")(kept)


def _tuples(reading: Reading) -> Expected:
    return combined("ab", ["vid"], obvious.tuple_joined(reading, "ab", ["vid"], 4, 2))


# The latest events -----------------------------------------------------------------


def _lookup(reading: Reading) -> Expected:
    found = []
    for event, other in obvious.looked_up(reading, "a", ["vid"]):
        latest = {} if other is None else {"level": other["level"], "b_time": other["time"]}
        found.append({**same(event), **latest})
    return found


def _lookup_required(reading: Reading) -> Expected:
    kept = [(s, e) for s, e in reading if s == "a" or e["level"] > 20]
    return [event for event in _lookup(kept) if "level" in event]


def previous(by: Sequence[str], back: int) -> Callable[[Reading], Expected]:
    def expected(reading: Reading) -> Expected:
        return [
            {**same(events[-1]), "before": None if len(events) <= back else events[-1 - back]["n"]}
            for _, _, events in obvious.by_count(reading, by, 1, 1, so_far=True)
        ]

    return expected


def distinct(by: Sequence[str], within: float) -> Callable[[Reading], Expected]:
    return lambda reading: [same(event) for event in obvious.deduplicated(reading, by, within)]


# Patterns ----------------------------------------------------------------------------


def matches(pattern: Pattern) -> Callable[[Reading], Expected]:
    def expected(reading: Reading) -> Expected:
        found = []
        for key, match in pattern.search(reading):
            own: Event = {"match_start": match.start, "match_end": match.end, "vid": key[0]}
            for step, events in zip(pattern.steps, match.events, strict=True):
                if not step.is_absent:
                    is_list = step.lasting >= 0 or (step.least, step.most) != (1, 1)
                    own[step.name] = list(map(plain, events)) if is_list else plain(events[0])
            id_ = f"{key[0]}@{id_time(match.start)}+{id_time(match.end)}"
            found.append({"_id": id_, "_time": match.end, **own})
        return found

    return expected


def _speed(test: Callable[[float], bool]) -> Callable[[Event], bool]:
    return lambda event: event["speed"] is not None and test(event["speed"])


FAST, SLOW = _speed(lambda speed: speed > 40), _speed(lambda speed: speed < 15)

MEDIUM = _speed(lambda speed: 15 <= speed <= 40)
SILENT = Step("absent", lambda _: True, lasting=3, is_absent=True)

PATTERNS = {
    "pattern_order": Pattern([Step("fast", FAST), Step("slow", SLOW, 2, 2), Step("back", FAST)], ["vid"], 12),
    "pattern_range": Pattern([Step("slow", SLOW, 1, 3), Step("fast", FAST, 2, 1 << 31)], ["vid"], span=("n", 60)),
    "pattern_not": Pattern([Step("fast", FAST), Step("absent", SLOW, is_absent=True), Step("again", FAST)], ["vid"]),
    "pattern_range_not": Pattern(
        [Step("slow", SLOW, 2, 1 << 31), Step("absent", MEDIUM, is_absent=True), Step("fast", FAST)], ["vid"]
    ),
    "pattern_range_quiet": Pattern(
        [Step("slow", SLOW, 1, 4), Step("absent", _speed(lambda speed: speed > 50), lasting=1, is_absent=True)],
        ["vid"],
        30,
    ),
    "pattern_lasts": Pattern([Step("slow", _speed(lambda speed: speed < 30), lasting=2)], ["vid"]),
    "pattern_then_lasts": Pattern(
        [Step("fast", FAST), Step("slow", SLOW, lasting=1.5), Step("back", _speed(lambda speed: speed >= 15))],
        ["vid"],
        20,
    ),
    "pattern_silence": Pattern([Step("seen", lambda _: True), SILENT], ["vid"]),
    "pattern_quiet": Pattern(
        [
            Step("fast", FAST),
            Step("absent", FAST, lasting=2, is_absent=True),
            Step("absent", _speed(lambda speed: speed < 0), lasting=1, is_absent=True),
            Step("then", lambda _: True),
        ],
        ["vid"],
    ),
}


# Several operators -----------------------------------------------------------------


def _chained(reading: Reading) -> Expected:
    """Means of windows with a default, each with the one before, of the merged streams without slow events."""
    kept = [(s, e) for s, e in reading if e["n"] >= 10]
    found: Expected = []
    last: dict[str, float] = {}
    results = windowed(Windows(kept, spans(5, 5), ["vid"], ALLOWS_ALL), ["vid"], {"mean": ("avg", "speed", 0)})
    for each in sorted(results, key=lambda each: each["_time"]):
        mean = -1.0 if each["mean"] is None else each["mean"]
        own = {"vid": each["vid"], "mean": mean, "level": 7, "time": each["window_end"]}
        found.append({"_id": each["_id"], "_time": each["_time"], **own, "before": last.get(each["vid"])})
        last[each["vid"]] = mean
    return found


def _joined_results(reading: Reading) -> Expected:
    """The results of windows joined with another stream: a result is just before the end of its window."""
    results = timed(10, 10, FEW)([(s, e) for s, e in reading if s == "a"])
    found = []
    for each in results:
        near: list[Event | None] = [
            e
            for s, e in reading
            if s == "b" and e["vid"] == each["vid"] and abs(e["_time"] - each["_time"] + 1) <= 5 * SECOND
        ]
        for other in near or [None]:
            own = {} if other is None else {"level": other["level"], "time": other["time"]}
            id_ = f"{each['_id']}+{'' if other is None else other['_id']}"
            found.append({**each, "_id": id_, **own})
    return found


def _merged(reading: Reading) -> Expected:
    """Sums of windows of two streams, one of which is deduplicated before."""
    once = {e["_id"] for e in obvious.deduplicated([each for each in reading if each[0] == "a"], ["vid", "n"], 30)}
    kept = [(s, e) for s, e in reading if s == "e" or e["_id"] in once]
    return windowed(Windows(kept, spans(10, 10), ["vid"], ALLOWS_ALL), ["vid"], FEW)


CASES = [
    Case(
        "tumbling",
        "a",
        lambda reading: timed(10, 10, ALL)([each for each in reading if each[1]["n"] >= 5]),
        order="vid",
    ),
    Case("late", "a", timed(10, 10, ALL, 5), order="vid", late=late_of(10, 5)),
    Case("late_update", "a", _kept, late=late_of(10, 5, HOUR)),
    Case("sliding", "a", timed(10, 4, ALL, offset=1), order="vid"),
    Case("updates", "a", _updates),
    Case("days", "d", _days, order="vid"),
    Case("sessions", "a", _sessions, order="vid"),
    Case("counted", "a", _counted),
    Case("counted_all", "a", counted([], 7, 7, FEW)),
    Case("running", "a", _running),
    Case("totals", "a", totals(10, 10), order="vid"),
    Case("totals_sliding", "a", totals(10, 5), order="vid"),
    Case("totals_counted", "a", counted(["vid"], 4, 3, ALL, so_far=True)),
    Case("fastest", "a", _fastest),
    Case("sorted", "a", ordered(["-speed", "n"]), order=""),
    Case("best", "a", ordered(["-n"], ["vid"], 2), order="vid"),
    Case("sorted_counted", "a", _sorted_by_count, order=""),
    Case("top", "a", _top),
    Case("once", "a", distinct(["vid"], 2)),
    Case("once_by_id", "a", lambda reading: [same(event) for _, event in reading]),
    Case("pairs", "ab", join("ab", ["vid"], 2)),
    Case("left", "ab", join("ab", ["vid"], 1, "left")),
    Case("full", "ab", join("ab", ["vid"], 2, "full", 3), late=_late_for_join, may_restart=False),
    Case("everything", "bc", join("bc", [], 0.5)),
    Case("three", "abc", _three),
    Case("tuples", "ab", _tuples, may_restart=False),
    Case("middle", "ab", _middle),
    Case("itself", "a", _itself),
    Case("lookup", "ab", _lookup, may_restart=False),
    Case("lookup_required", "ab", _lookup_required, may_restart=False),
    Case("previous", "a", previous(["vid"], 1)),
    Case("previous_all", "a", previous([], 3)),
    Case("chained", "ae", _chained),
    Case("merged", "ae", _merged),
    Case("joined_results", "ab", _joined_results),
    *(Case(name, "a", matches(pattern)) for name, pattern in PATTERNS.items()),
]
