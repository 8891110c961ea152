"""Line charts as SVG, written by hand: no plotting library for a few figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

Points = Sequence[tuple[float, float]]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
"""The palette of Okabe and Ito, which colour-blind readers can distinguish."""

WIDTH, HEIGHT = 900, 480
LEFT, RIGHT, TOP, BOTTOM = 88, 290, 56, 64


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its title, range and pixels."""

    label: str
    low: float
    high: float
    log: bool
    begin: float
    """The pixel of `low`."""
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high, value = (math.log10(x) if self.log else x for x in (self.low, self.high, value))
        return round(self.begin + (value - low) / (high - low) * (self.end - self.begin), 1)

    def ticks(self) -> list[float]:
        """Return round values in the range: decades on a log axis, with 2 and 5 if there are few."""
        if not self.log:
            step = _round_step((self.high - self.low) / 6)
            first = math.ceil(self.low / step - 1e-9)
            return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1,) if len(decades) > 4 else (1, 2, 5)
        slack = 1 + 1e-9
        ticks = [f * 10.0**d for d in decades for f in factors]
        return [t for t in ticks if self.low / slack <= t <= self.high * slack]


def line_chart(
    title: str, x_label: str, y_label: str, series: Mapping[str, Points], *, log_x: bool, log_y: bool = True
) -> str:
    """Draw one line per series, with a mark at every point and a legend.

    A series without points is in the legend all the same: it says that it was not measured.
    """
    points = [point for each in series.values() for point in each]
    x = _axis(x_label, [p[0] for p in points], log_x, LEFT, WIDTH - RIGHT)
    y = _axis(y_label, [p[1] for p in points], log_y, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="13" fill="#222">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="28" font-size="16" font-weight="bold">{escape(title)}</text>',
        *_grid(x, y),
    ]
    for n, (name, each) in enumerate(series.items()):
        parts += _line(name, each, x, y, COLOURS[n % len(COLOURS)], dashed=n >= len(COLOURS))
        parts += _legend(n, name if each else f"{name} (none)", COLOURS[n % len(COLOURS)])
    return "\n".join([*parts, "</svg>", ""])


def _axis(label: str, values: list[float], log: bool, begin: float, end: float) -> Axis:
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    if log:
        low, high = _rounded_log(low, up=False), _rounded_log(high, up=True)
    elif label and begin > end:
        low = min(0.0, low)
    if low == high:
        low, high = (low / 2, high * 2) if log else (low - 1, high + 1)
    return Axis(label, low, high, log, begin, end)


def _rounded_log(value: float, up: bool) -> float:
    """Return the next of 1, 2, 5, 10, and so on."""
    decade = 10.0 ** math.floor(math.log10(value))
    steps = [decade * f for f in (1, 2, 5, 10)]
    if up:
        return next(s for s in steps if s >= value * (1 - 1e-9))
    return next(s for s in reversed(steps) if s <= value * (1 + 1e-9))


def _round_step(wanted: float) -> float:
    decade = 10.0 ** math.floor(math.log10(wanted))
    return next(decade * f for f in (1, 2, 5, 10) if decade * f >= wanted * (1 - 1e-9))


def _grid(x: Axis, y: Axis) -> list[str]:
    parts = []
    for tick in x.ticks():
        at = x.at(tick)
        parts.append(f'<line x1="{at}" y1="{y.begin}" x2="{at}" y2="{y.end}" stroke="#e5e5e5"/>')
        parts.append(f'<text x="{at}" y="{y.begin + 20}" text-anchor="middle">{shown(tick)}</text>')
    for tick in y.ticks():
        at = y.at(tick)
        parts.append(f'<line x1="{x.begin}" y1="{at}" x2="{x.end}" y2="{at}" stroke="#e5e5e5"/>')
        parts.append(f'<text x="{x.begin - 8}" y="{at + 4}" text-anchor="end">{shown(tick)}</text>')
    middle_x, middle_y = (x.begin + x.end) / 2, (y.begin + y.end) / 2
    return [
        *parts,
        f'<path d="M{x.begin} {y.end} V{y.begin} H{x.end}" fill="none" stroke="#222"/>',
        f'<text x="{middle_x}" y="{y.begin + 46}" text-anchor="middle">{escape(x.label)}</text>',
        f'<text transform="translate(22 {middle_y}) rotate(-90)" text-anchor="middle">{escape(y.label)}</text>',
    ]


def _line(name: str, points: Points, x: Axis, y: Axis, colour: str, dashed: bool) -> list[str]:
    if not points:
        return []
    places = [(x.at(a), y.at(b)) for a, b in points]
    line = " ".join(f"{a},{b}" for a, b in places)
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    marks = []
    for (a, b), (u, v) in zip(places, points, strict=True):
        said = f"<title>{escape(name)}: {shown(v)} at {shown(u)}</title>"
        marks.append(f'<circle cx="{a}" cy="{b}" r="4" fill="{colour}">{said}</circle>')
    return [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>', *marks]


def _legend(place: int, text: str, colour: str) -> list[str]:
    left, y = WIDTH - RIGHT + 24, TOP + 14 + 24 * place
    return [
        f'<path d="M{left} {y} h24" stroke="{colour}" stroke-width="2"/>',
        f'<circle cx="{left + 12}" cy="{y}" r="4" fill="{colour}"/>',
        f'<text x="{left + 32}" y="{y + 4}">{escape(text)}</text>',
    ]


def shown(value: float) -> str:
    """Return a short form of a number: 250 k, 1.2 M."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
