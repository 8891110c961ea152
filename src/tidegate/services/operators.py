"""What a pipeline is made of: one frozen dataclass an operator, apart from how it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from tidegate.model import Schema

Emit = Literal["final", "updates"]
"""One event per key when a window closes, or one per change."""


@dataclass(frozen=True)
class TimeWindow:
    """Windows over the event time: of `length_s`, one begins every `slide_s`."""

    length_s: float
    slide_s: float
    lateness_s: float = 0.0
    """How much later than the newest event an event may be and still count."""


@dataclass(frozen=True)
class CountWindow:
    """Windows over the order of the events: the last `length` of them, at every `slide`."""

    length: int
    slide: int


Window = TimeWindow | CountWindow


@dataclass(frozen=True)
class Filter:
    """Keep the events that match; the filter language."""

    text: str
    params: tuple[str, ...] = ()


@dataclass(frozen=True)
class Computed:
    """One attribute of a projection: an expression, or a value for events that have none."""

    expression: str
    """`speed`, `pos.x`, `speed * 3.6`, `concat(cid, '-', vid)`."""
    default: Any = None
    """Where the expression gives nothing."""
    type: str | None = None
    """Cast to it; None: as the expression has it."""


@dataclass(frozen=True)
class Project:
    """Give each event just these attributes: selected, renamed, computed, or with a default."""

    attributes: Mapping[str, Computed]
    keep: bool = False
    """Whether the other attributes stay."""


@dataclass(frozen=True)
class SortKey:
    """One attribute to sort by."""

    attribute: str
    descending: bool = False


@dataclass(frozen=True)
class Sort:
    """Put the events of each window in order."""

    by: tuple[SortKey, ...]
    window: Window


@dataclass(frozen=True)
class Aggregation:
    """One aggregate: of an attribute, under a name."""

    function: Literal["sum", "count", "min", "max", "avg"]
    attribute: str | None
    """None: of events, which only `count` can."""
    name: str | None
    """None (`min` and `max` only): the whole event that holds the extreme."""


@dataclass(frozen=True)
class Aggregate:
    """Aggregate each window, by keys.

    The output has the keys, the aggregates, `window_start` and `window_end`
    (timestamps; for windows by count the times of their first and last event);
    its event time is `window_end`. With a whole event it has all of that
    event's attributes first.
    """

    aggregations: tuple[Aggregation, ...]
    window: Window
    by: tuple[str, ...] = ()
    emit: Emit = "final"


@dataclass(frozen=True)
class Incremental:
    """Aggregate across windows: at the end of each, the value over all events so far.

    Without a window, one event per change (`emit: updates`); `window_start` and `window_end` are then the times of
    the first and the last event so far.
    """

    aggregations: tuple[Aggregation, ...]
    window: TimeWindow | None = None
    by: tuple[str, ...] = ()
    emit: Emit = "final"


@dataclass(frozen=True)
class Merge:
    """Make one stream of several of the same schema. A pipeline of several inputs begins with it or a join."""


@dataclass(frozen=True)
class Join:
    """Pair the events of two inputs that agree on attributes (none: all), at most so far apart in time.

    Attributes that both have are those of the left input, under `<right>_<attribute>` those of the right; those
    that they agree on come once. The event time is the left one's.
    """

    on: tuple[str, ...]
    within_s: float
    lateness_s: float = 0.0


@dataclass(frozen=True)
class Deduplicate:
    """Let each event through once: by attributes, or by `_id` where none are named."""

    by: tuple[str, ...] = ()
    within_s: float = 600.0
    """How far apart in event time two of a kind may be."""


@dataclass(frozen=True)
class Table:
    """A static table on disk or in a database."""

    path: str | None = None
    format: Literal["csv", "parquet", "jdbc"] | None = None
    """None: by the file's ending."""
    schema: Schema | None = None
    url: str | None = None
    table: str | None = None
    connection: str | None = None
    """A connection of the profile, instead of a URL."""


@dataclass(frozen=True)
class Enrich:
    """Add the columns of a static table to the events whose attributes equal its own of the same name."""

    table: Table
    on: tuple[str, ...]
    required: bool = False
    """Whether events without a row are left out; else they have nulls."""


@dataclass(frozen=True)
class Custom:
    """A Python function over Arrow: an iterator of record batches to another, in the order of the input.

    Named as the profile registers it, or in a file of the operator as
    `module:function`. Every batch has the attributes, and the reserved `_id` and
    `_time`. Without a window a call sees a batch as it comes; the rows it gives
    carry the `_id` of the event they come from.
    """

    function: str
    schema: Schema
    """Of what it gives."""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Handed to it by name."""
    by: tuple[str, ...] = ()
    window: Window | None = None
    """With a window it is called with all events of a key and window at once, in order."""


Operator = Filter | Project | Sort | Aggregate | Incremental | Merge | Join | Deduplicate | Enrich | Custom
