"""The demands of subscribers to a city's data, and four models of serving them: SDaaS, section 5.3 and figure 8.

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
"""A prime: the streams alternate, and each has all cells equally often."""
SOUND = "satellites >= 4"
"""The constraint of the services; one event in eleven violates it."""

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
"""One service per raw stream, unchanged. There is no Spark: events are appended to the topics."""

ATTRIBUTES = {
    "gps": ("vid", "time", "longitude", "latitude", "speed", "direction", "satellites"),
    "plates": ("vid", "time", "cell"),
}
"""The selectable attributes: 126 and 6 proper subsets, as in table 4."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One subscription, independent of the model that serves it."""

    data: Literal["gps", "plates"]
    filter: str
    attributes: tuple[str, ...]

    @property
    def select(self) -> str:
        """The selected attributes; always includes the send time, which the latency is measured by."""
        return ",".join(("t", *self.attributes))

    @property
    def streams(self) -> tuple[str, ...]:
        """The raw streams with this data."""
        return VEHICLES if self.data == "gps" else CAMERAS


def demands(count: int, seed: int = SEED) -> list[Demand]:
    """Return a number of demands, vehicles and cameras in turn; a smaller number is a prefix of a larger one."""
    drawn = random.Random(seed)
    found: list[Demand] = []
    for n in range(count):
        data: Literal["gps", "plates"] = "plates" if n % 2 else "gps"
        names = ATTRIBUTES[data]
        bits = drawn.randrange(1, 2 ** len(names) - 1)
        if data == "gps":
            # A hundredth of the cells and a tenth of the directions, which are independent.
            cell, direction = drawn.randrange(CELLS - 9), drawn.randrange(324)
            text = f"cell BETWEEN {cell} AND {cell + 9} AND direction BETWEEN {direction} AND {direction + 36}"
        else:
            text = f"cell = {drawn.randrange(CELLS)}"
        found.append(Demand(data, text, tuple(name for k, name in enumerate(names) if bits >> k & 1)))
    return found


def kinds(wanted: Sequence[Demand]) -> int:
    """Return the number of kinds of demand; a kind is the same attributes of the same data."""
    return len({(each.data, each.attributes) for each in wanted})


@dataclass(frozen=True, slots=True)
class Model:
    """A model of serving subscribers."""

    name: str
    serve: Callable[[], AbstractContextManager[Serving]]
    wanted: Callable[[Demand], list[Wanted]]
    """What a subscriber requests from the server, and what it does itself."""
    services: Callable[[Sequence[Demand]], int]
    """The number of services that some demands need (table 5)."""
    left: str
    """The work that is left to the subscriber."""
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
