"""Which of Spark's modes a service runs in, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tidegate.errors import FilterNotNative
from tidegate.filters.constraints import Constraints
from tidegate.model import Schema
from tidegate.pipelines.filters import truth
from tidegate.pipelines.operators import deduplicate
from tidegate.pipelines.operators import filter as filtering
from tidegate.services.definitions import Service
from tidegate.services.operators import (
    Aggregate,
    CountWindow,
    Custom,
    Deduplicate,
    Filter,
    Incremental,
    Join,
    Operator,
    Sort,
)

Mode = Literal["real-time", "micro-batch"]


@dataclass(frozen=True)
class Plan:
    """How a service runs."""

    mode: Mode
    reason: str
    stateful: bool
    """Whether it keeps a state: then it recovers from Spark's checkpoint, else from its own output."""
    keyed: bool
    """Whether its events are told apart by key and revision, not by the position of their source."""
    revised: bool
    """Whether an event may come again with a later revision."""
    output: Literal["append", "update"]
    refusing: Mode
    """What the query beside a keyed service runs in, which sorts out the records that can't be read."""

    @property
    def identity(self) -> Literal["position", "key", "revision"]:
        """How a writer tells its events apart."""
        return "position" if not self.keyed else "revision" if self.revised else "key"


def plan(service: Service, schemas: Sequence[Schema], output: Schema, *, obstacle: str = "") -> Plan:
    """Choose: real-time wherever it can do all that the service asks.

    `schemas` are those before each operator, `output` is the last with the
    service's constraints. `obstacle` says why nothing can run in real-time mode
    here; empty where it can.
    """
    steps = list(zip(service.pipeline, schemas, strict=True))
    refusing: Mode = "micro-batch" if obstacle else "real-time"
    obstacles = [obstacle] if obstacle else []
    obstacles += [text for operator, schema in steps if (text := _obstacle(operator, schema))]
    obstacles += _constraint_obstacles(output)
    stateful = [operator for operator, _ in steps if _has_state(operator)]
    if len(stateful) > 1:
        names = " and ".join(type(operator).__name__.lower() for operator in stateful)
        obstacles.append(f"{names} both keep a state, and real-time mode takes one")
    keyed = bool(stateful) or any(isinstance(operator, Custom) for operator, _ in steps)
    updates = any(_emits_updates(operator) for operator, _ in steps)
    if obstacles:
        output_mode: Literal["append", "update"] = "update" if updates else "append"
        return Plan("micro-batch", "; ".join(obstacles), bool(stateful), keyed, updates, output_mode, refusing)
    reason = "native operators" + (" with a state that real-time mode keeps" if stateful else " without a state")
    return Plan("real-time", reason, bool(stateful), keyed, updates, "update", refusing)


def _has_state(operator: Operator) -> bool:
    windowed = isinstance(operator, Custom) and operator.window is not None
    return windowed or isinstance(operator, Aggregate | Incremental | Sort | Join | Deduplicate)


def _emits_updates(operator: Operator) -> bool:
    if isinstance(operator, Incremental):
        return operator.window is None or operator.emit == "updates"
    return isinstance(operator, Aggregate) and operator.emit == "updates"


def _obstacle(operator: Operator, schema: Schema) -> str:
    """Why an operator can't run in real-time mode; nothing where it can."""
    match operator:
        case Filter() if not filtering.is_native(operator, schema):
            return f"filter {operator.text!r} has no exact native form, so Python evaluates it"
        case Aggregate() if isinstance(operator.window, CountWindow):
            return "aggregate has a window by count, whose state is ours"
        case Aggregate() if operator.emit == "final":
            return "aggregate emits a window when it closes, which real-time mode never says (emit: updates would do)"
        case Incremental() if operator.window is not None:
            return "incremental emits at the end of windows, which real-time mode never says"
        case Sort():
            return "sort waits for the end of its window"
        case Join():
            return "join pairs two streams, which real-time mode does not do yet"
        case Deduplicate() if not deduplicate.by_time(operator, schema):
            return (
                f"deduplicate by {', '.join(operator.by)} must remember events of other times, {operator.within_s:g} s"
            )
        case Custom():
            return f"custom function {operator.function!r} is Python"
    return ""


def _constraint_obstacles(schema: Schema) -> list[str]:
    found = []
    for filter_ in Constraints(schema).filters.values():
        try:
            truth(filter_)
        except FilterNotNative:
            found.append(f"constraint {filter_.text!r} has no exact native form")
    return found
