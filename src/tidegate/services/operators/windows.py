"""Windows over a stream: by event time, by count, and by session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from tidegate.errors import did_you_mean
from tidegate.model import Schema
from tidegate.model.units import duration_text
from tidegate.services.findings import Spot
from tidegate.services.operators.inference import need_event_time
from tidegate.services.operators.settings import (
    Settings,
    read_seconds,
    required_setting,
    without_empty,
    write_seconds,
)

_EVENTS = re.compile(r"([0-9]{1,15})\s*events?", re.ASCII)
_DURATION = re.compile(r"(ms|s|m|h|d)\s*$")
MAX_WINDOWS = 100_000
"""Windows that an event may be in: the state has an entry for each."""
_KEYS = ("length", "slide", "lateness", "offset", "zone", "session")


@dataclass(frozen=True)
class TimeWindow:
    """Windows over the event time: one of `length_s` starts every `slide_s`.

    Windows start at multiples of `slide_s` since 1970-01-01T00:00 in UTC or, with a `zone`, in local time.
    """

    length_s: float
    slide_s: float
    lateness_s: float = 0.0
    """How much later than the newest event an event may be and still count."""
    offset_s: float = 0.0
    """Shifts the start of all windows: 6 h makes days that start at 06:00."""
    zone: str | None = None
    """An IANA time zone. Windows are aligned to its local time: `1d` is a local day, also on days of 23 or 25 hours."""


@dataclass(frozen=True)
class CountWindow:
    """Windows over the order of events: the last `length` events, after every `slide` events."""

    length: int
    slide: int


@dataclass(frozen=True)
class SessionWindow:
    """Windows of events of one key that are less than `gap_s` apart; they end after `gap_s` without an event."""

    gap_s: float
    lateness_s: float = 0.0
    """How much later than the newest event an event may be and still count."""


Window = TimeWindow | CountWindow | SessionWindow


def read_window(spot: Spot) -> Window:
    """Read a window of any kind."""
    settings = spot.entries(_KEYS, "a window, such as {length: 60s, slide: 10s} or {session: 5m}")
    if "session" in settings:
        return _read_session(settings)
    length = required_setting(settings, "length", spot)
    slide = settings.get("slide", length)
    if _events(length) is not None:
        return _read_count(length, slide, settings)
    if not isinstance(length.value, str) or not _DURATION.search(length.value):
        length.refuse("a length of time or a number of events, such as 60s or 1000 events")
        return CountWindow(1, 1)
    return _read_time(length, slide, settings)


def read_fixed_window(spot: Spot) -> TimeWindow | CountWindow:
    """Read a window by time or by count; reports a session, whose end depends on its events."""
    window = read_window(spot)
    match window:
        case SessionWindow():
            spot.refuse("a window by time or by count, such as {length: 60s}")
            return CountWindow(1, 1)
        case TimeWindow() | CountWindow():
            return window


def read_count_window(spot: Spot) -> CountWindow:
    """Read a window by count; reports any other."""
    window = read_window(spot)
    match window:
        case CountWindow():
            return window
        case TimeWindow() | SessionWindow():
            spot.refuse("a window by count, such as {length: 100 events, slide: 10 events}")
            return CountWindow(1, 1)


def _read_time(length: Spot, slide: Spot, settings: Mapping[str, Spot]) -> TimeWindow:
    length_s, slide_s = length.seconds(), slide.seconds()
    if slide_s > length_s:
        slide.refuse(f"at most the window's length, {length.value}")
    offset_s = read_seconds(settings, "offset")
    if offset_s >= slide_s and "offset" in settings:
        settings["offset"].refuse(f"less than the window's slide, {slide.value}")
    zone = _read_zone(settings["zone"]) if "zone" in settings else None
    return TimeWindow(length_s, slide_s, read_seconds(settings, "lateness"), offset_s, zone)


def _read_zone(spot: Spot) -> str:
    name = spot.text("a time zone, such as Europe/Berlin")
    if name and not _is_zone(name):
        spot.refuse("a time zone, such as Europe/Berlin", did_you_mean(name, _some_zones()))
    return name


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, not a name, or a folder of the time zone database
        return False
    return True


def _some_zones() -> list[str]:
    from zoneinfo import available_timezones  # reads the whole database: only for a message

    return sorted(available_timezones())


def _read_count(length: Spot, slide: Spot, settings: Mapping[str, Spot]) -> CountWindow:
    whole, step = _events(length) or 0, _events(slide)
    if whole < 1:
        length.refuse("at least 1 event")
    if step is None or not 1 <= step <= max(whole, 1):
        slide.refuse(f"1 to {whole} events, as its length is {length.value}")
    for key in ("lateness", "offset", "zone"):
        if key in settings:
            settings[key].report(f"a window by count has no {key}: expected none")
    return CountWindow(whole, step or 1)


def _read_session(settings: Mapping[str, Spot]) -> SessionWindow:
    for key in ("length", "slide", "offset", "zone"):
        if key in settings:
            settings[key].report(f"a session has no {key}: expected none")
    return SessionWindow(settings["session"].seconds(), read_seconds(settings, "lateness"))


def _events(spot: Spot) -> int | None:
    match = _EVENTS.fullmatch(spot.value.strip()) if isinstance(spot.value, str) else None
    return int(match[1]) if match else None


def write_window(window: Window) -> Settings:
    """Return a window in the form that `read_window` takes."""
    match window:
        case CountWindow():
            slide = f"{window.slide} events" if window.slide != window.length else None
            return {"length": f"{window.length} events", **without_empty(slide=slide)}
        case SessionWindow():
            lateness = write_seconds(window.lateness_s)
            return {"session": duration_text(window.gap_s), **without_empty(lateness=lateness)}
        case TimeWindow():
            return {
                "length": duration_text(window.length_s),
                **without_empty(
                    slide=duration_text(window.slide_s) if window.slide_s != window.length_s else None,
                    lateness=write_seconds(window.lateness_s),
                    offset=write_seconds(window.offset_s),
                    zone=window.zone,
                ),
            }


def note_window(window: Window | None, schema: Schema, spot: Spot) -> None:
    """Report a window that can't be applied to events of a schema. `spot` is that of the operator."""
    at = spot.at("window", None)
    match window:
        case TimeWindow():
            need_event_time(schema, at, "for a window by time")
            if not 0 < window.slide_s <= window.length_s or window.lateness_s < 0:
                at.report("expected a slide above 0 and at most its length, and no negative lateness")
            elif window.length_s > MAX_WINDOWS * window.slide_s:
                at.report(
                    f"expected a slide of at least {duration_text(window.length_s / MAX_WINDOWS)}: an event is in "
                    f"{MAX_WINDOWS:,} windows at most"
                )
            elif not 0 <= window.offset_s < window.slide_s:
                at.report("expected an offset of at least 0 and less than the slide")
        case SessionWindow():
            need_event_time(schema, at, "for a session")
            if window.gap_s <= 0 or window.lateness_s < 0:
                at.report("expected a gap above 0, and no negative lateness")
        case CountWindow():
            if not 1 <= window.slide <= window.length:
                at.report(f"expected a slide from 1 to its length, {window.length} events")
        case None:
            pass


def window_text(window: Window | None) -> str:
    """Return a window without its lateness, which may change."""
    match window:
        case None:
            return "everything so far"
        case CountWindow():
            return f"{window.length} events every {window.slide}"
        case SessionWindow():
            return f"sessions with gaps of {duration_text(window.gap_s)}"
        case TimeWindow():
            zone = f" in {window.zone}" if window.zone else ""
            offset = f" from {duration_text(window.offset_s)} on" if window.offset_s else ""
            return f"{duration_text(window.length_s)} every {duration_text(window.slide_s)}{offset}{zone}"
