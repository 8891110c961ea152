"""What subscribers of a city's data want, and four models of giving it to them: SDaaS, section 5.3 and figure 8.

Three streams of vehicles and one of cameras, all with the same record. A subscription wants a window of 0.1 % of
the one or of the other, and of it some attributes. Those who want the same attributes of the same data are one
kind of demand (table 4).
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.delivery.events import STREAM
from benchmarks.delivery.harness import Serving, gateway_alone, make_streams, serving, whole
from benchmarks.delivery.listeners import Wanted

SEED = 4
VEHICLES = ("taxi", "bus", "truck")
CAMERAS = ("cameras",)
STREAMS = (*VEHICLES, *CAMERAS)
CELLS = 997
"""A prime, as the streams take turns: each has all cells, equally often."""
SOUND = "satellites >= 4"
"""What the services promise of their events; one event in eleven does not keep it."""

RAW = f"streams: {{{', '.join(f'{name}: {STREAM}' for name in STREAMS)}}}\n"
SERVICES = f"""{RAW}
services:
  gps: {{from: [{", ".join(VEHICLES)}], pipeline: [merge], constraints: {{satellites: ">= 4"}}}}
  plates: {{from: cameras, constraints: {{satellites: ">= 4"}}}}
"""
TOPICS = f"""
streams: {{{", ".join(f"raw_{name}: {STREAM}" for name in STREAMS)}}}
services: {{{", ".join(f"{name}: {{from: raw_{name}}}" for name in STREAMS)}}}
"""
"""Each raw stream as it is. There is no Spark: the topics are what is appended to."""

ATTRIBUTES = {
    "gps": ("vid", "time", "longitude", "latitude", "speed", "direction", "satellites"),
    "plates": ("vid", "time", "cell"),
}
"""What may be wanted: 126 and 6 ways to want some, not all, as table 4 has it."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One subscription, before it is known how it is served."""

    data: Literal["gps", "plates"]
    filter: str
    attributes: tuple[str, ...]

    @property
    def select(self) -> str:
        """What is asked for: when an event was sent is always among it, as it is measured by."""
        return ",".join(("t", *self.attributes))

    @property
    def streams(self) -> tuple[str, ...]:
        """The raw streams that have it."""
        return VEHICLES if self.data == "gps" else CAMERAS


def demands(count: int, seed: int = SEED) -> list[Demand]:
    """So many, vehicles and cameras in turn; fewer are the beginning of more."""
    drawn = random.Random(seed)
    found: list[Demand] = []
    for n in range(count):
        data: Literal["gps", "plates"] = "plates" if n % 2 else "gps"
        names = ATTRIBUTES[data]
        bits = drawn.randrange(1, 2 ** len(names) - 1)
        if data == "gps":
            # A hundredth of the cells and a tenth of the directions, which are independent of each other.
            cell, direction = drawn.randrange(CELLS - 9), drawn.randrange(324)
            text = f"cell BETWEEN {cell} AND {cell + 9} AND direction BETWEEN {direction} AND {direction + 36}"
        else:
            text = f"cell = {drawn.randrange(CELLS)}"
        found.append(Demand(data, text, tuple(name for k, name in enumerate(names) if bits >> k & 1)))
    return found


def kinds(wanted: Sequence[Demand]) -> int:
    """Kinds of demand: the same attributes of the same data."""
    return len({(each.data, each.attributes) for each in wanted})


@dataclass(frozen=True, slots=True)
class Model:
    """A way to give subscribers what they want."""

    name: str
    serve: Callable[[], AbstractContextManager[Serving]]
    wanted: Callable[[Demand], list[Wanted]]
    """What a subscriber asks the server for, and does itself."""
    services: Callable[[Sequence[Demand]], int]
    """How many have to be made for some demands (table 5)."""
    left: str
    """What is left for the subscriber to do."""
    on_spark: bool = False


@contextmanager
def _traditional() -> Iterator[Serving]:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        folder = Path(name)
        make_streams(folder, STREAMS)
        (folder / "streams.yaml").write_text(RAW)
        command = [sys.executable, "-m", "benchmarks.peers.traditional", folder / "log", folder / "streams.yaml"]
        with serving(folder, list(map(str, command))) as found:
            yield found


def _both(*filters: str) -> str:
    return " AND ".join(f"({each})" for each in filters)


TRADITIONAL = Model(
    "traditional",
    _traditional,
    lambda each: [Wanted(",".join(each.streams), _both(each.filter, SOUND), each.select)],
    kinds,
    "nothing",
)
TOPIC = Model(
    "topic-only",
    lambda: gateway_alone(TOPICS),
    lambda each: [
        Wanted(stream, own_filter=_both(each.filter, SOUND), own_select=each.select) for stream in each.streams
    ],
    lambda _: len(STREAMS),
    "filter, merge, check, pick",
)
CONTENT = Model(
    "content-based",
    lambda: gateway_alone(TOPICS),
    lambda each: [Wanted(stream, each.filter, own_filter=SOUND, own_select=each.select) for stream in each.streams],
    lambda _: len(STREAMS),
    "merge, check, pick",
)
TIDEGATE = Model(
    "services",
    lambda: whole(SERVICES),
    lambda each: [Wanted(each.data, each.filter, each.select)],
    lambda wanted: len({each.data for each in wanted}),
    "nothing",
    on_spark=True,
)
MODELS = (TRADITIONAL, TOPIC, CONTENT, TIDEGATE)
