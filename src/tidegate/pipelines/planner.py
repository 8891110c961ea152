"""Chooses the mode of Spark in which a service runs, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tidegate.filters.constraints import Constraints
from tidegate.model import Schema
from tidegate.pipelines import nativeness
from tidegate.pipelines.operators import filter as filtering
from tidegate.services.definitions import Service
from tidegate.services.operators import (
    WORDS,
    Aggregate,
    Custom,
    Deduplicate,
    FilterOperator,
    Incremental,
    Join,
    Lookup,
    Operator,
    PatternOperator,
    Previous,
    Sort,
    TimeWindow,
)

Mode = Literal["real-time", "micro-batch"]


@dataclass(frozen=True)
class Plan:
    """How a service runs."""

    mode: Mode
    reason: str
    keyed: bool
    """True if an output event is identified by key and revision; False: by the position of its source record."""
    revised: bool
    """True if a later event with a higher revision may replace an event."""
    stages: int
    """How many stages of the state engine it has."""
    is_plain: bool = False
    """True without the connector: Python runs the stages."""

    @property
    def stateful(self) -> bool:
        """True if it keeps a state: then it recovers from Spark's checkpoint, else from its own output."""
        return self.stages > 0

    @property
    def state_engine(self) -> str:
        """What writes its state, in either mode: no other can read it."""
        return "Python" if self.is_plain else "the connector"

    @property
    def output(self) -> Literal["append", "update"]:
        """Spark's output mode. Real-time mode has no other than update."""
        return "update" if self.revised or self.mode == "real-time" else "append"

    @property
    def identity(self) -> Literal["position", "key", "revision"]:
        """How a writer recognises an event that it has written already."""
        return "position" if not self.keyed else "revision" if self.revised else "key"


def plan(service: Service, schemas: Sequence[Schema], output: Schema, *, obstacle: str = "") -> Plan:
    """Choose real-time mode if all operators and constraints of the service run in it; otherwise micro-batches.

    Needs no JVM.

    `schemas` are the schemas before each operator, `output` is the last one, with the constraints of the service.
    `obstacle` is the reason why real-time mode is not available here; empty if it is.
    """
    steps = list(zip(service.pipeline, schemas, strict=True))
    results = [*schemas[1:], output]
    obstacles = [obstacle] if obstacle else []
    obstacles += [
        text
        for (operator, schema), after in zip(steps, results, strict=False)
        if (text := _obstacle(operator, schema, after))
    ]
    obstacles += _constraint_obstacles(output)
    stateful = [operator for operator, _ in steps if _has_state(operator)]
    keyed = bool(stateful) or any(isinstance(operator, Custom) for operator, _ in steps)
    revised = any(_emits_updates(operator) for operator, _ in steps)
    revised = revised or (service.on_late == "update" and any(_has_final_windows(each) for each in stateful))
    words = ", ".join(WORDS[type(operator)] for operator in stateful)
    reason = f"native operators, and the state engine for {words}" if stateful else "native operators without a state"
    if obstacles:
        mode: Mode = "micro-batch"
        reason = "; ".join(obstacles)
    else:
        mode = "real-time"
    return Plan(mode, reason, keyed, revised, len(stateful), bool(obstacle))


def _has_state(operator: Operator) -> bool:
    windowed = isinstance(operator, Custom) and operator.window is not None
    return windowed or isinstance(
        operator, Aggregate | Incremental | Sort | Join | Deduplicate | Lookup | Previous | PatternOperator
    )


def _emits_updates(operator: Operator) -> bool:
    if isinstance(operator, Incremental):
        return operator.window is None or operator.emit == "updates"
    return isinstance(operator, Aggregate) and operator.emit == "updates"


def _obstacle(operator: Operator, schema: Schema, after: Schema) -> str:
    """Why an operator can't run in real-time mode; nothing where it can. `after` is the schema of its results."""
    match operator:
        case FilterOperator() if not filtering.is_native(operator, schema):
            return f"filter {operator.text!r} has no exact native form, so Python evaluates it"
        case PatternOperator() if not all(_is_native_text(step.where, schema) for step in operator.steps):
            return "a condition of pattern has no exact native form, so Python evaluates it"
        case Aggregate() | Incremental() if not _is_native_text(operator.having, after):
            return f"having {operator.having!r} has no exact native form, so Python evaluates it"
        case Custom():
            return f"custom function {operator.function!r} is Python"
    return ""


def _is_native_text(text: str | None, schema: Schema) -> bool:
    return text is None or filtering.is_native(FilterOperator(text), schema)


def _has_final_windows(operator: Operator) -> bool:
    return isinstance(operator, Aggregate) and isinstance(operator.window, TimeWindow)


def _constraint_obstacles(schema: Schema) -> list[str]:
    filters = Constraints(schema).filters.values()
    return [f"constraint {each.text!r} has no exact native form" for each in filters if not nativeness.is_native(each)]
