"""A service as a frame that a writer takes: its inputs, operators, constraints and masks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines import output, records
from tidegate.pipelines.operators import aggregate, custom, deduplicate, enrich, incremental, join, project, sort
from tidegate.pipelines.operators import filter as filtering
from tidegate.pipelines.planner import Plan, plan
from tidegate.pipelines.resources import RunnerResources
from tidegate.services import operators, shapes
from tidegate.services.definitions import Service


@dataclass(frozen=True)
class Following:
    """How a scan knows where to begin: behind what an output has already."""

    output: str
    notes: bool
    """Whether the reader notes how far it has come, beside that output: only where every record is dealt with
    before the next is read."""


Scan = Callable[[str, Following | None], DataFrame]
"""Gives a stream's records as `partition`, `position`, `arrived`, `value`. None: Spark's checkpoint knows the place."""


@dataclass(frozen=True)
class Compiled:
    """A service that is ready to be written."""

    plan: Plan
    schema: Schema
    """Of its output."""
    frame: DataFrame
    """With the writer's columns."""
    refused: DataFrame | None
    """Beside it, the records that can't be read: operators with a state have no room for them."""


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
) -> Compiled:
    """Compile a service; `key` is the secret of its masks, `obstacle` why nothing runs in real-time mode here.

    `resources` are the functions, connections and folders that it may name; None: there are none.
    """
    shape = shapes.shape(service, inputs)
    chosen = plan(service, _before(service, inputs, shape), shape.unmasked, obstacle=obstacle)
    following = None if chosen.keyed else Following(service.name, notes=chosen.mode == "real-time")
    parsers = {name: records.parser(inputs[name], shows=not service.mask) for name in service.inputs}

    def parsed(follow: Following | None) -> dict[str, DataFrame]:
        return {name: parser(scan(name, follow), name) for name, parser in parsers.items()}

    frames = parsed(following)
    if chosen.keyed:
        frames = {name: frame.where(F.col("_problem").isNull()) for name, frame in frames.items()}
    frame = _pipeline(service, frames, inputs, shape, resources or RunnerResources())
    out = output.finish(frame, service, shape.unmasked, shape.output, keyed=chosen.keyed, key=key)
    refused = None
    if chosen.keyed:
        refused = _refused(service, parsed(Following(service.quarantine, notes=True)).values(), key)
    return Compiled(chosen, shape.output, out, refused)


def _before(service: Service, inputs: Mapping[str, Schema], shape: shapes.Shape) -> list[Schema]:
    """The schema before each operator; of several inputs the first's."""
    return [inputs[service.inputs[0]], *shape.steps][: len(service.pipeline)]


def _refused(service: Service, frames: Iterable[DataFrame], key: bytes) -> DataFrame:
    """The records of all inputs that can't be read."""
    return _union([output.unreadable(each.where(F.col("_problem").isNotNull()), service, key) for each in frames])


def _pipeline(
    service: Service,
    parsed: Mapping[str, DataFrame],
    inputs: Mapping[str, Schema],
    shape: shapes.Shape,
    resources: RunnerResources,
) -> DataFrame:
    frames = [parsed[name] for name in service.inputs]
    frame = frames[0]
    for operator, before, after in zip(service.pipeline, _before(service, inputs, shape), shape.steps, strict=True):
        match operator:
            case operators.Merge():
                frame = _union(frames)
            case operators.Join():
                left, right = service.inputs
                frame = join.apply(frames[0], frames[1], operator, (inputs[left], inputs[right]), right)
            case operators.Filter():
                frame = filtering.apply(frame, operator, before)
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


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole
