"""A heat map like the paper's figures 7 to 10, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

CELL, LEFT, TOP, BOTTOM = 44, 84, 48, 56


def heat_map(title: str, sizes: Sequence[int], cells: Mapping[tuple[int, int], float], baseline: float | None) -> str:
    """Draw one column per theme size of events, and one row, from below, per theme size of subscriptions.

    A cell that exceeds the baseline is square and one that does not is round, as in the paper; blue is low, red high.
    """
    side = CELL * len(sizes)
    width, height = LEFT + side + 24, TOP + side + BOTTOM
    low, high = min(cells.values()), max(cells.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/><text x="12" y="24">{escape(title)}</text>',
        f'<text x="{LEFT}" y="{height - 12}">tags of events</text>',
        f'<text x="12" y="{TOP + 12}">tags of</text><text x="12" y="{TOP + 26}">subscriptions</text>',
    ]
    for n, size in enumerate(sizes):
        x, y = LEFT + n * CELL, TOP + side - (n + 1) * CELL
        parts.append(f'<text x="{x + CELL / 2}" y="{TOP + side + 18}" text-anchor="middle">{size}</text>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + CELL / 2 + 4}" text-anchor="end">{size}</text>')
    for (subscriptions, events), value in sorted(cells.items()):
        x = LEFT + sizes.index(events) * CELL
        y = TOP + side - (sizes.index(subscriptions) + 1) * CELL
        round_by = 0 if baseline is None or value > baseline else CELL // 2
        parts.append(
            f'<rect x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{CELL - 2}" rx="{round_by}" '
            f'fill="{colour(value, low, high)}"/>'
        )
        shown = f"{value:.2f}" if high < 10 else f"{value:.0f}"
        parts.append(f'<text x="{x + CELL / 2}" y="{y + CELL / 2 + 4}" text-anchor="middle">{shown}</text>')
    return "\n".join([*parts, "</svg>", ""])


def colour(value: float, low: float, high: float) -> str:
    """Return a colour from blue over white to red.

    >>> colour(0.0, 0.0, 1.0), colour(0.5, 0.0, 1.0), colour(1.0, 0.0, 1.0)
    ('#5f8fff', '#ffffff', '#ff6f5f')
    """
    share = 0.5 if high <= low else (value - low) / (high - low)
    pale = abs(share - 0.5) * 2
    red, green, blue = (255, 111, 95) if share > 0.5 else (95, 143, 255)
    mixed = (round(255 + (each - 255) * pale) for each in (red, green, blue))
    return "#" + "".join(f"{each:02x}" for each in mixed)
