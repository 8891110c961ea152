"""Compiles a service to a frame: reads its inputs, applies operators, checks constraints, masks attributes.

The frame has the columns that a writer reads. Runs on the driver and starts nothing.
"""

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
from tidegate.pipelines.streams import reading_name
from tidegate.services import operators
from tidegate.services import schema_inference as shapes
from tidegate.services.definitions import Service


@dataclass(frozen=True)
class Following:
    """Tells a scan of a stateless service to start after the records that an output has already."""

    output: str
    notes: bool
    """True if the reader stores its position next to that output. Only valid if each record is processed completely
    before the next one is read."""


@dataclass(frozen=True)
class Tasks:
    """The partitions of a service with state, one task each."""

    inputs: Mapping[str, Sequence[str]]
    """The partitions of each input."""
    state: int = 1
    """Number of state partitions."""


Scan = Callable[[str, Following | None, int, int], DataFrame]
"""Returns a stream's records as `partition`, `position`, `arrived`, `value`, `tick`, `caught_up`.

None: Spark's checkpoint knows the position. The first number says how many state partitions get ticks; 0: there are
none. The second one counts the readings of the same stream, from 0.
"""


@dataclass(frozen=True)
class Compiled:
    """A compiled service: the frame that a writer writes, and the plan that was chosen for it."""

    plan: Plan
    schema: Schema
    """The schema of its output."""
    frame: DataFrame
    """With the writer's columns."""


def plan_service(service: Service, inputs: Mapping[str, Schema], *, obstacle: str = "") -> Plan:
    """Choose the mode of a service. `inputs` are the schemas of its inputs. Needs no JVM.

    `obstacle` is the reason why real-time mode is not available here; empty if it is.
    """
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
    """Compile a service. `key` is the secret of its masks.

    `obstacle` is the reason why real-time mode is not available here; empty if it is. `resources` are the functions,
    connections and folders that the service may name; None: none. `tasks` are its partitions; None: one per input, and
    one of the state. Raises a `ServiceError` if an operator can't run in the mode that was chosen.
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
    frames = {name: parser(scan(name, following, 0, 0), name) for name, parser in parsers.items()}
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

    def read(name: str, reading: int) -> Flow:
        parser = records.parser(inputs[name], shows=not service.mask)
        scanned, label = scan(name, None, tasks.state, reading), reading_name(name, reading)
        frame = parser(scanned, name, reading=label, clock=clock, max_ahead_s=service.max_ahead_s)
        sources = tuple(f"{label}/{partition}" for partition in tasks.inputs.get(name, ["0"]))
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
    frame = stateful.compile_pipeline(context).where(F.col("_tick").isNull())
    if len(service.reads) == len(service.inputs):
        return frame
    return _refused_once(frame, "" if chosen.is_plain else service.name)


def _refused_once(frame: DataFrame, counts: str) -> DataFrame:
    """Remove the refused records of further readings of a stream: the first reading has refused them too.

    `counts` names the service whose metrics count them as filtered; empty: none do.
    """
    is_again = F.col("_problem").isNotNull() & F.col("_source").contains("#")
    kept = ~F.coalesce(is_again, F.lit(False))
    return frame.where(kept | filtering.counted(F.lit(False), counts) if counts else kept)


def _before(service: Service, inputs: Mapping[str, Schema], shape: shapes.Shape) -> list[Schema]:
    """Return the schema before each operator; that of the first input if there are several."""
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
    """Return a further input of an operator, with its filter applied."""
    frame = parsed[branch.stream]
    if branch.filter is None:
        return frame
    return filtering.apply(frame, branch.filter, inputs[branch.stream], counts)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole
