"""Compiles a service to a frame: reads its inputs, applies operators, checks constraints, masks attributes.

The frame has the columns that a writer reads. Runs on the driver and starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.errors import ServiceError
from tidegate.model import Schema
from tidegate.pipelines import output, records
from tidegate.pipelines.operators import aggregate, custom, deduplicate, enrich, incremental, join, project, sort
from tidegate.pipelines.operators import filter as filtering
from tidegate.pipelines.planner import Plan, is_native, plan
from tidegate.pipelines.resources import RunnerResources
from tidegate.pipelines.stateful import pipeline as stateful
from tidegate.pipelines.stateful.stage import Flow, Timing
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


Scan = Callable[[str, Following | None, int], DataFrame]
"""Returns the records of a stream, with the columns `partition`, `position`, `arrived`, `value`, `tick`, `caught_up`.

Arguments: the stream, the `Following` (None: Spark's checkpoint knows the position), and the number of state
partitions that get ticks (0: none).
"""


@dataclass(frozen=True)
class Compiled:
    """A compiled service: the frame that a writer writes, and the plan that was chosen for it."""

    plan: Plan
    schema: Schema
    """The schema of its output."""
    frame: DataFrame
    """Has the columns `output.COLUMNS`."""
    refused: DataFrame | None
    """The unreadable records of a keyed service in micro-batches, as its operators do not pass them on; else None."""


def plan_service(service: Service, inputs: Mapping[str, Schema], *, obstacle: str = "") -> Plan:
    """Choose the mode of a service. `inputs` are the schemas of its inputs.

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
        return Compiled(chosen, shape.output, out, None)
    _need_engine(service, chosen)
    following = None if chosen.keyed else Following(service.name, notes=chosen.mode == "real-time")
    parsers = {name: records.parser(inputs[name], shows=not service.mask) for name in service.inputs}

    def parsed(follow: Following | None) -> dict[str, DataFrame]:
        return {name: parser(scan(name, follow, 0), name) for name, parser in parsers.items()}

    frames = parsed(following)
    if chosen.keyed:
        frames = {name: frame.where(F.col("_problem").isNull()) for name, frame in frames.items()}
    counts = "" if obstacle else service.name
    frame = _pipeline(service, frames, inputs, shape, resources, counts)
    out = output.finish(frame, service, shape.unmasked, shape.output, keyed=chosen.keyed, key=key)
    refused = None
    if chosen.keyed:
        refused = _refused(service, parsed(Following(service.quarantine, notes=True)).values(), key)
    return Compiled(chosen, shape.output, out, refused)


def _need_engine(service: Service, chosen: Plan) -> None:
    """Raise a `ServiceError` if an operator only runs in real-time mode, with the reason why this service does not."""
    for operator in service.pipeline:
        if not is_native(operator):
            word = shapes.WORDS[type(operator)]
            raise ServiceError(
                f"{word} in this form needs real-time mode, and the service can't run in it: {chosen.reason}"
            )


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

    def read(name: str) -> Flow:
        parser = records.parser(inputs[name], shows=not service.mask)
        frame = parser(scan(name, None, tasks.state), name, ticks_of=service.name, max_ahead_s=service.max_ahead_s)
        sources = tuple(f"{name}/{partition}" for partition in tasks.inputs.get(name, ["0"]))
        return Flow(frame, inputs[name], sources)

    timing = Timing(service.name, tasks.state, service.idle_s, service.on_late)
    context = stateful.Context(service, shape.steps, timing, chosen.stages, resources, read)
    return stateful.compile_pipeline(context).where(F.col("_tick").isNull())


def _before(service: Service, inputs: Mapping[str, Schema], shape: shapes.Shape) -> list[Schema]:
    """Return the schema before each operator; that of the first input if there are several."""
    return [inputs[service.inputs[0]], *shape.steps][: len(service.pipeline)]


def _refused(service: Service, frames: Iterable[DataFrame], key: bytes) -> DataFrame:
    """Return the records of all inputs that can't be read."""
    return _union([output.unreadable(frame.where(F.col("_problem").isNotNull()), service, key) for frame in frames])


def _pipeline(
    service: Service,
    parsed: Mapping[str, DataFrame],
    inputs: Mapping[str, Schema],
    shape: shapes.Shape,
    resources: RunnerResources,
    counts: str,
) -> DataFrame:
    frames = [parsed[name] for name in service.main]
    frame = frames[0]
    for operator, before, after in zip(service.pipeline, _before(service, inputs, shape), shape.steps, strict=True):
        match operator:
            case operators.Merge():
                named = [_branch(parsed, inputs, branch, counts) for branch in operator.inputs]
                frame = _union([*(frames if frame is frames[0] else [frame]), *named])
            case operators.Join():
                left, right = service.main
                frame = join.apply(frames[0], frames[1], operator, (inputs[left], inputs[right]), right)
            case operators.Lookup() | operators.Previous() | operators.PatternOperator():
                raise AssertionError("refused before")
            case operators.FilterOperator():
                frame = filtering.apply(frame, operator, before, counts)
            case operators.Project():
                frame = project.apply(frame, operator, before, after)
            case operators.Sort():
                frame = sort.apply(frame, operator, before)
            case operators.Aggregate():
                frame = aggregate.apply(frame, operator, before, after)
            case operators.Incremental():
                frame = incremental.apply(frame, operator, before, after)
            case operators.Deduplicate():
                frame = deduplicate.apply(frame, operator, before)
            case operators.Enrich():
                frame = enrich.apply(frame, operator, before, after, resources, service.origin)
            case operators.Custom():
                target = resources.function(operator.function, service.origin)
                frame = custom.apply(frame, operator, before, target)
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
