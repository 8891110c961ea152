"""A service as a frame that a writer takes: its inputs, operators, constraints and masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines import output, records
from tidegate.pipelines.connector import attach
from tidegate.pipelines.operators import custom, enrich, project
from tidegate.pipelines.operators import filter as filtering
from tidegate.pipelines.plain.state import clock as plain_clock
from tidegate.pipelines.planner import Plan, plan
from tidegate.pipelines.resources import RunnerResources
from tidegate.pipelines.stateful import pipeline as stateful
from tidegate.pipelines.stateful.stage import Flow, Timing
from tidegate.services import operators
from tidegate.services import schema_inference as shapes
from tidegate.services.definitions import Service


@dataclass(frozen=True)
class Following:
    """Where a scan of a stateless service begins: behind what an output has already."""

    output: str
    notes: bool
    """True: the reader stores its position beside that output. Only valid where every record is dealt with before the
    next one is read."""


@dataclass(frozen=True)
class Tasks:
    """The partitions that a service with state has."""

    inputs: Mapping[str, Sequence[str]]
    """The partitions of each input."""
    state: int = 1
    """How many partitions its state has."""


Scan = Callable[[str, Following | None, int], DataFrame]
"""Returns a stream's records as `partition`, `position`, `arrived`, `value`, `tick`, `caught_up`.

None: Spark's checkpoint knows the position. The number says how many state partitions get ticks; 0: there are none.
"""


@dataclass(frozen=True)
class Compiled:
    """A service that is ready to be written."""

    plan: Plan
    schema: Schema
    """The schema of its output."""
    frame: DataFrame
    """With the writer's columns."""


def plan_service(service: Service, inputs: Mapping[str, Schema], *, obstacle: str = "") -> Plan:
    """Choose how a service runs; `inputs` are the schemas of its inputs, `obstacle` is why nothing is real-time."""
    shape = shapes.shape(service, inputs)
    return plan(service, _before(service, inputs, shape), shape.unmasked, obstacle=obstacle)


def compile_service(
    service: Service,
    inputs: Mapping[str, Schema],
    scan: Scan,
    *,
    key: bytes,
    obstacle: str = "",
    resources: RunnerResources | None = None,
    tasks: Tasks | None = None,
) -> Compiled:
    """Compile a service; `key` is the secret of its masks, `obstacle` why nothing runs in real-time mode here.

    `resources` are the functions, connections and folders that it may name; None: there are none. `tasks` are its
    partitions; None: each input has one, and so has the state.
    """
    shape = shapes.shape(service, inputs)
    chosen = plan(service, _before(service, inputs, shape), shape.unmasked, obstacle=obstacle)
    resources = resources or RunnerResources()
    if chosen.stages:
        frame = _stateful(service, inputs, shape, scan, chosen, resources, tasks or Tasks({}))
        out = output.finish(frame, service, shape.unmasked, shape.output, keyed=True, key=key)
        return Compiled(chosen, shape.output, out)
    following = None if chosen.keyed else Following(service.name, notes=chosen.mode == "real-time")
    parsers = {name: records.parser(inputs[name], shows=not service.mask) for name in service.inputs}
    frames = {name: parser(scan(name, following, 0), name) for name, parser in parsers.items()}
    frame = _pipeline(service, frames, inputs, shape, resources, counts="" if obstacle else service.name)
    out = output.finish(frame, service, shape.unmasked, shape.output, keyed=chosen.keyed, key=key)
    return Compiled(chosen, shape.output, out)


def _stateful(
    service: Service,
    inputs: Mapping[str, Schema],
    shape: shapes.Shape,
    scan: Scan,
    chosen: Plan,
    resources: RunnerResources,
    tasks: Tasks,
) -> DataFrame:
    """Compile the operators for the state engine. Returns the events, and the records that were refused."""
    in_batches = chosen.mode == "micro-batch"
    java_clock = partial(attach.source_clock, "" if in_batches else service.name)
    clock = plain_clock.source_clock if chosen.is_plain else java_clock

    def read(name: str) -> Flow:
        parser = records.parser(inputs[name], shows=not service.mask)
        frame = parser(scan(name, None, tasks.state), name, clock=clock, max_ahead_s=service.max_ahead_s)
        sources = tuple(f"{name}/{partition}" for partition in tasks.inputs.get(name, ["0"]))
        return Flow(frame, inputs[name], sources)

    timing = Timing(
        service.name,
        tasks.state,
        service.idle_s,
        service.on_late,
        has_connector=not chosen.is_plain,
        batches=in_batches,
    )
    context = stateful.Context(service, shape.steps, timing, chosen.stages, resources, read)
    return stateful.compile_pipeline(context).where(F.col("_tick").isNull())


def _before(service: Service, inputs: Mapping[str, Schema], shape: shapes.Shape) -> list[Schema]:
    """The schema before each operator; of several inputs the first's."""
    return [inputs[service.inputs[0]], *shape.steps][: len(service.pipeline)]


def _pipeline(
    service: Service,
    parsed: Mapping[str, DataFrame],
    inputs: Mapping[str, Schema],
    shape: shapes.Shape,
    resources: RunnerResources,
    *,
    counts: str,
) -> DataFrame:
    """Compile a pipeline without a state. `counts` names the service whose metrics count the removed events."""
    frames = [parsed[name] for name in service.main]
    frame = frames[0]
    for operator, before, after in zip(service.pipeline, _before(service, inputs, shape), shape.steps, strict=True):
        match operator:
            case operators.Merge():
                named = [_branch(parsed, inputs, branch, counts) for branch in operator.inputs]
                frame = _union([*(frames if frame is frames[0] else [frame]), *named])
            case operators.FilterOperator():
                frame = filtering.apply(frame, operator, before, counts)
            case operators.Project():
                frame = project.apply(frame, operator, before, after)
            case operators.Enrich():
                frame = enrich.apply(frame, operator, before, after, resources, service.origin)
            case operators.Custom():
                target = resources.function(operator.function, service.origin)
                frame = custom.over_batches(frame, operator, before, target)
            case _:
                raise AssertionError("an operator with state")
    return frame


def _branch(
    parsed: Mapping[str, DataFrame], inputs: Mapping[str, Schema], branch: operators.Branch, counts: str
) -> DataFrame:
    """One more input of an operator, filtered."""
    frame = parsed[branch.stream]
    if branch.filter is None:
        return frame
    return filtering.apply(frame, branch.filter, inputs[branch.stream], counts)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole
