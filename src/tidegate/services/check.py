"""Whether definitions hold together: names, cycles, types along every pipeline."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tidegate.errors import DefinitionError, DefinitionProblem, did_you_mean, error_text
from tidegate.model import Schema
from tidegate.services.definitions import Definitions, Service, Stream
from tidegate.services.findings import Findings, Spot
from tidegate.services.operators import Custom
from tidegate.services.shapes import Shape, note_constraints, note_terms, shape_into


def check(
    definitions: Definitions,
    *,
    functions: Collection[str] | None = None,
    hints: Callable[[str], bool] = lambda _: True,
) -> dict[str, Shape]:
    """Give the shape of every service, or raise a `DefinitionError` with every problem of all of them.

    `functions`: the services whose custom functions are imported, to see that they are there; None: all. Importing runs
    code: never name a service that came over the network, and never import in the gateway. `hints` says which streams
    and services messages may name.
    """
    shapes, problems = examine(definitions, functions=functions, hints=hints)
    if problems:
        raise DefinitionError(problems)
    return shapes


def stream_schemas(definitions: Definitions) -> dict[str, Schema]:
    """Give the schema of every stream, raw or put out by a service, of definitions that hold together."""
    raw = {name: stream.schema for name, stream in definitions.streams.items()}
    return raw | {name: shape.output for name, shape in check(definitions, functions=()).items()}


@dataclass(frozen=True, slots=True)
class Usable:
    """The part of some definitions that holds together."""

    definitions: Definitions
    schemas: dict[str, Schema]
    """Of every stream of that part, raw or put out by a service."""
    problems: dict[str, str]
    """By name, why the other streams and services can't be used."""


def usable(definitions: Definitions) -> Usable:
    """Leave out what does not hold together, and all that reads it. Raises nothing for one definition's sake.

    What a registry holds was checked when it was applied, perhaps by another version of Tidegate with other rules.
    """
    try:
        return Usable(definitions, stream_schemas(definitions), {})
    except Exception:  # a few are wrong, or one of them is such that checking it fails
        return _usable_each(definitions)


def _usable_each(definitions: Definitions) -> Usable:
    streams: dict[str, Stream] = {}
    services: dict[str, Service] = {}
    problems: dict[str, str] = {}
    for stream in definitions.streams.values():
        try:
            check(Definitions({stream.name: stream}), functions=())
            streams[stream.name] = stream
        except Exception as error:
            problems[stream.name] = error_text(error)
    for service in ordered(definitions.services, Findings(definitions.places)):
        lost = [name for name in service.inputs if name in problems]
        if lost:
            problems[service.name] = f"reads {', '.join(lost)}, which can't be used"
            continue
        try:
            needed = {name: services[name] for name in _above(service, services)}
            check(Definitions(streams, {**needed, service.name: service}), functions=())
            services[service.name] = service
        except Exception as error:
            problems[service.name] = error_text(error)
    found = Definitions(streams, services, definitions.places)
    return Usable(found, stream_schemas(found), problems)


def _above(service: Service, services: Mapping[str, Service]) -> set[str]:
    """All services that a service reads, directly or not."""
    found: set[str] = set()
    waiting = list(service.inputs)
    while waiting:
        name = waiting.pop()
        if name in services and name not in found:
            found.add(name)
            waiting += services[name].inputs
    return found


def examine(
    definitions: Definitions,
    broken: Collection[str] = (),
    *,
    functions: Collection[str] | None = None,
    hints: Callable[[str], bool] = lambda _: True,
) -> tuple[dict[str, Shape], list[DefinitionProblem]]:
    """Give the shapes of the services that have one, and every problem.

    What reads something `broken` is left aside: its own problems can't be told. `functions` as in `check`.
    """
    findings = Findings(definitions.places)
    schemas = {stream.name: stream.schema for stream in definitions.streams.values() if _is_sound(stream, findings)}
    for name in definitions.services.keys() & definitions.streams.keys():
        findings.blame(("services", name), f"the name {name!r} is taken already by streams.{name}")
    known = {*definitions.streams, *definitions.services, *broken}
    shapes: dict[str, Shape] = {}
    for service in ordered(definitions.services, findings):
        found = _shape(service, schemas, known, findings, hints)
        if functions is None or service.name in functions:
            _note_functions(service, findings)
        if found is not None:
            shapes[service.name] = found
            schemas[service.name] = found.output
    return {name: shapes[name] for name in definitions.services if name in shapes}, findings.problems


def _is_sound(stream: Stream, findings: Findings) -> bool:
    before = len(findings.problems)
    spot = Spot(None, ("streams", stream.name), findings)
    note_terms(stream.schema.terms, stream.schema, spot.at("terms", None))
    note_constraints(stream.schema.constraints, stream.schema, spot.at("constraints", None))
    return len(findings.problems) == before


def _shape(
    service: Service,
    schemas: Mapping[str, Schema],
    known: Collection[str],
    findings: Findings,
    hints: Callable[[str], bool],
) -> Shape | None:
    """Give a service's shape, unless it or something it reads has problems."""
    before = len(findings.problems)
    spot = Spot(None, ("services", service.name, "from"), findings)
    for name in dict.fromkeys(service.inputs):
        if name not in known:
            spot.blame(f"unknown stream or service {name!r}{did_you_mean(name, sorted(filter(hints, known)))}")
    if not all(name in schemas for name in service.inputs):
        return None
    found = shape_into(service, schemas, findings)
    if found is not None:
        _note_fields(service, found.output, findings)
    return found if len(findings.problems) == before else None


def _note_fields(service: Service, output: Schema, findings: Findings) -> None:
    """Note attributes that can't be kept from anybody: they are not there, or every event shows them elsewhere."""
    known = [field.name for field in output.root]
    spot = Spot(None, ("services", service.name, "access", "fields"), findings)
    for name in service.access.fields:
        at = spot.at(name, None)
        if name not in known:
            hint = did_you_mean(name, known) or f"; expected one of {', '.join(known)}"
            at.blame(f"unknown attribute {name!r}{hint}")
        elif name == output.event_time:
            at.blame(f"{name!r} is the event time, which every event shows")


def ordered(services: Mapping[str, Service], findings: Findings) -> list[Service]:
    """Put services behind those that they read; note each cycle once."""
    found: dict[str, Service] = {}
    noted: set[str] = set()
    for name in services:
        path: list[str] = []
        waiting = [(name, iter(services[name].inputs))] if name not in found else []
        while waiting:
            current, inputs = waiting[-1]
            path = [each for each, _ in waiting]
            following = next((each for each in inputs if each in services and each not in found), None)
            if following is None:
                found[current] = services[current]
                waiting.pop()
            elif following in path:
                cycle = [*path[path.index(following) :], following]
                if not noted & {*cycle}:
                    findings.blame(("services", following, "from"), f"it reads itself: {' <- '.join(cycle)}")
                noted |= {*cycle}
            else:
                waiting.append((following, iter(services[following].inputs)))
    return list(found.values())


def _note_functions(service: Service, findings: Findings) -> None:
    for n, operator in enumerate(service.pipeline):
        if isinstance(operator, Custom) and ":" in operator.function:
            spot = Spot(None, ("services", service.name, "pipeline", n, "custom", "function"), findings)
            _note_function(operator.function, spot)


def _note_function(name: str, spot: Spot) -> None:
    module, _, function = name.partition(":")
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever the code of others raises while it is imported
        spot.blame(f"can't import {module!r}: {type(error).__name__}: {error}")
        return
    found: object = imported
    for part in function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        spot.blame(f"{module!r} has no function {function!r}{did_you_mean(function, dir(imported))}")
