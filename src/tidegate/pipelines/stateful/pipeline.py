"""Compiles the operators of a service with state, one after the other, for the state engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from tidegate.model import Schema
from tidegate.pipelines.operators import custom as custom_functions
from tidegate.pipelines.operators import enrich, project
from tidegate.pipelines.operators import filter as filtering
from tidegate.pipelines.resources import RunnerResources
from tidegate.pipelines.stateful import aggregate, custom, join, latest, pattern, sort
from tidegate.pipelines.stateful.stage import Flow, Stages, Timing, with_frame
from tidegate.services.definitions import Service
from tidegate.services.operators import (
    Aggregate,
    Branch,
    Custom,
    Deduplicate,
    Enrich,
    FilterOperator,
    Incremental,
    Join,
    Lookup,
    Merge,
    Operator,
    PatternOperator,
    Previous,
    Project,
    Sort,
)


@dataclass
class Context:
    """The inputs of `compile_pipeline`."""

    service: Service
    schemas: Sequence[Schema]
    """The schema after each operator."""
    timing: Timing
    total: int
    """Number of stages with state."""
    resources: RunnerResources
    read: Callable[[str, int], Flow]
    """Reads an input, and again with the next number: real-time mode refuses a source that a query uses twice."""
    stages: Stages = field(init=False)
    readings: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.stages = Stages(self.timing, self.total)

    def input(self, name: str) -> Flow:
        """Return the next reading of an input."""
        flow = self.read(name, self.readings[name])
        self.readings[name] += 1
        return flow


def compile_pipeline(context: Context) -> DataFrame:
    """Return the frame of results, with ticks and refused records."""
    service = context.service
    flows = [context.input(name) for name in service.main]
    names = list(service.main)
    for operator, after in zip(service.pipeline, context.schemas, strict=True):
        flow = _apply(context, operator, flows, names, after)
        flows, names = [flow], [service.name]
    return flows[0].frame


def _apply(context: Context, operator: Operator, flows: Sequence[Flow], names: Sequence[str], after: Schema) -> Flow:
    flow, stages, service = flows[0], context.stages, context.service
    match operator:
        case Merge():
            return _union([*flows, *(_branch(context, input_) for input_ in operator.inputs)], after)
        case Join():
            branches = [*flows, *(_branch(context, input_) for input_ in operator.inputs)]
            named = [*names, *(input_.stream for input_ in operator.inputs)]
            return join.apply(branches, named, operator, after, stages)
        case Lookup():
            table = _branch(context, Branch(operator.stream, operator.filter))
            return latest.look_up(flow, table, operator, after, stages)
        case Previous():
            return latest.previous(flow, operator, after, stages)
        case Deduplicate():
            return latest.deduplicate(flow, operator, stages)
        case Aggregate() | Incremental():
            return aggregate.apply(flow, operator, after, stages)
        case Sort():
            return sort.apply(flow, operator, stages)
        case PatternOperator():
            return pattern.apply(flow, operator, after, stages)
        case FilterOperator():
            return with_frame(flow, filtering.apply(flow.frame, operator, flow.schema, context.timing.counts))
        case Project():
            return Flow(project.apply(flow.frame, operator, flow.schema, after), after, flow.sources)
        case Enrich():
            frame = enrich.apply(flow.frame, operator, flow.schema, after, context.resources, service.origin)
            return Flow(frame, after, flow.sources)
        case Custom():
            target = context.resources.function(operator.function, service.origin)
            if operator.window is not None:
                return custom.apply(flow, operator, target, stages)
            return Flow(custom_functions.over_batches(flow.frame, operator, flow.schema, target), after, flow.sources)


def _branch(context: Context, branch: Branch) -> Flow:
    """One more input of an operator, filtered."""
    flow = context.input(branch.stream)
    if branch.filter is None:
        return flow
    return with_frame(flow, filtering.apply(flow.frame, branch.filter, flow.schema, context.timing.counts))


def _union(flows: Sequence[Flow], after: Schema) -> Flow:
    frame = flows[0].frame
    for flow in flows[1:]:
        frame = frame.unionByName(flow.frame, allowMissingColumns=True)
    return Flow(frame, after, tuple(dict.fromkeys(source for flow in flows for source in flow.sources)))
