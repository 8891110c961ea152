"""Chooses the mode of Spark in which a service runs, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tidegate.errors import FilterNotNative
from tidegate.filters.constraints import Constraints
from tidegate.model import Schema
from tidegate.pipelines.filters import truth
from tidegate.pipelines.operators import filter as filtering
from tidegate.services.definitions import Service
from tidegate.services.operators import (
    WORDS,
    Aggregate,
    CountWindow,
    Custom,
    Deduplicate,
    FilterOperator,
    Incremental,
    Join,
    Lookup,
    Operator,
    PatternOperator,
    Previous,
    SessionWindow,
    Sort,
    TimeWindow,
    Window,
)

Mode = Literal["real-time", "micro-batch"]


@dataclass(frozen=True)
class Plan:
    """How a service runs."""

    mode: Mode
    reason: str
    stateful: bool
    """True if it has state. It then recovers from Spark's checkpoint, otherwise from its own output."""
    keyed: bool
    """True if an output event is identified by key and revision; False: by the position of its source record."""
    revised: bool
    """True if a later event with a higher revision may replace an event."""
    output: Literal["append", "update"]
    refusing: Mode
    """The mode of the second query of a keyed service in micro-batches, which quarantines unreadable records."""
    stages: int = 0
    """Number of stages of the state engine; 0 in micro-batches, where Spark's own operators have the state."""

    @property
    def identity(self) -> Literal["position", "key", "revision"]:
        """How a writer recognises an event that it has written already."""
        return "position" if not self.keyed else "revision" if self.revised else "key"


def plan(service: Service, schemas: Sequence[Schema], output: Schema, *, obstacle: str = "") -> Plan:
    """Choose real-time mode if all operators and constraints of the service run in it; otherwise micro-batches.

    `schemas` are the schemas before each operator, `output` is the last one, with the constraints of the service.
    `obstacle` is the reason why real-time mode is not available here; empty if it is.
    """
    steps = list(zip(service.pipeline, schemas, strict=True))
    refusing: Mode = "micro-batch" if obstacle else "real-time"
    obstacles = [obstacle] if obstacle else []
    obstacles += [text for operator, schema in steps if (text := _obstacle(operator, schema))]
    obstacles += _constraint_obstacles(output)
    stateful = [operator for operator, _ in steps if _has_state(operator)]
    keyed = bool(stateful) or any(isinstance(operator, Custom) for operator, _ in steps)
    revised = any(_emits_updates(operator) for operator, _ in steps)
    if obstacles:
        output_mode: Literal["append", "update"] = "update" if revised else "append"
        return Plan("micro-batch", "; ".join(obstacles), bool(stateful), keyed, revised, output_mode, refusing)
    if not stateful:
        return Plan("real-time", "native operators without a state", False, keyed, revised, "update", refusing)
    revised = revised or (service.on_late == "update" and any(_has_final_windows(operator) for operator in stateful))
    words = ", ".join(WORDS[type(operator)] for operator in stateful)
    reason = f"native operators, and the state engine for {words}"
    return Plan("real-time", reason, True, True, revised, "update", refusing, len(stateful))


def _has_state(operator: Operator) -> bool:
    windowed = isinstance(operator, Custom) and operator.window is not None
    return windowed or isinstance(
        operator, Aggregate | Incremental | Sort | Join | Deduplicate | Lookup | Previous | PatternOperator
    )


def _emits_updates(operator: Operator) -> bool:
    if isinstance(operator, Incremental):
        return operator.window is None or operator.emit == "updates"
    return isinstance(operator, Aggregate) and operator.emit == "updates"


def _obstacle(operator: Operator, schema: Schema) -> str:
    """Return why an operator can't run in real-time mode; empty if it can."""
    match operator:
        case FilterOperator() if not filtering.is_native(operator, schema):
            return f"filter {operator.text!r} has no exact native form, so Python evaluates it"
        case PatternOperator() if not all(_is_native_text(step.where, schema) for step in operator.steps):
            return "a condition of pattern has no exact native form, so Python evaluates it"
        case Custom():
            return f"custom function {operator.function!r} is Python"
    return ""


def _is_native_text(text: str | None, schema: Schema) -> bool:
    return text is None or filtering.is_native(FilterOperator(text), schema)


def _has_final_windows(operator: Operator) -> bool:
    return isinstance(operator, Aggregate) and isinstance(operator.window, TimeWindow)


def is_native(operator: Operator) -> bool:
    """Return True if an operator can run on Spark's own operators in micro-batches."""
    match operator:
        case Lookup() | Previous() | PatternOperator():
            return False
        case Join():
            is_plain = operator.window is None and operator.how == "inner" and bool(operator.on)
            return is_plain and not operator.inputs
        case Sort():
            return operator.limit is None and not operator.per and _is_plain(operator.window)
        case Aggregate() | Incremental():
            functions = {aggregation.function for aggregation in operator.aggregations}
            simple = operator.having is None and functions <= {"sum", "count", "min", "max", "avg"}
            counted = isinstance(operator, Incremental) and isinstance(operator.window, CountWindow)
            return simple and not counted and _is_plain(operator.window)
    return True


def _is_plain(window: Window | None) -> bool:
    match window:
        case TimeWindow():
            return not window.offset_s and window.zone is None
        case SessionWindow():
            return False
    return True


def _constraint_obstacles(schema: Schema) -> list[str]:
    native = []
    for filter_ in Constraints(schema).filters.values():
        try:
            truth(filter_)
        except FilterNotNative:
            native.append(f"constraint {filter_.text!r} has no exact native form")
    return native
