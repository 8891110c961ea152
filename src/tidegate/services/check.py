"""Checks definitions as a whole: names, cycles, and the types along every pipeline."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tidegate.errors import DefinitionError, DefinitionProblem, did_you_mean, error_text
from tidegate.model import Schema
from tidegate.services.definitions import Definitions, Service, Stream
from tidegate.services.findings import Findings, Spot
from tidegate.services.operators import Custom
from tidegate.services.schema_inference import Shape, input_path, note_constraints, note_terms, shape_into
from tidegate.services.sources.registry import note_event_format


def check(
    definitions: Definitions,
    *,
    functions: Collection[str] | None = None,
    hints: Callable[[str], bool] = lambda _: True,
) -> dict[str, Shape]:
    """Return the shape of every service, by name. Raises `DefinitionError` with all problems of all definitions.

    `functions` are the services whose custom functions are imported, to check that they exist; None: all. Importing
    runs code: never pass a service that came over the network, and never import in the gateway. `hints` returns
    whether messages may name a stream or service.
    """
    shapes, problems = examine(definitions, functions=functions, hints=hints)
    if problems:
        raise DefinitionError(problems)
    return shapes


def stream_schemas(definitions: Definitions) -> dict[str, Schema]:
    """Return the schema of every raw stream and of every service's output, by name. Raises `DefinitionError`."""
    raw = {name: stream.schema for name, stream in definitions.streams.items()}
    return raw | {name: shape.output for name, shape in check(definitions, functions=()).items()}


@dataclass(frozen=True, slots=True)
class Usable:
    """The valid part of some definitions."""

    definitions: Definitions
    schemas: dict[str, Schema]
    """The schema of each raw stream and each service's output in that part, by name."""
    problems: dict[str, str]
    """Why the other streams and services can't be used, by name."""


def usable(definitions: Definitions) -> Usable:
    """Return the valid part of definitions, without invalid ones and all that read them. Never raises for a definition.

    Stored definitions were checked when they were applied, but perhaps by another version of Tidegate with other rules.
    """
    try:
        return Usable(definitions, stream_schemas(definitions), {})
    except Exception:  # at least one definition is invalid, or its check raises
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
        invalid_inputs = [name for name in service.inputs if name in problems]
        if invalid_inputs:
            problems[service.name] = f"reads {', '.join(invalid_inputs)}, which can't be used"
            continue
        try:
            needed = {name: services[name] for name in _upstream(service, services)}
            check(Definitions(streams, {**needed, service.name: service}), functions=())
            services[service.name] = service
        except Exception as error:
            problems[service.name] = error_text(error)
    valid = Definitions(streams, services, definitions.places)
    return Usable(valid, stream_schemas(valid), problems)


def _upstream(service: Service, services: Mapping[str, Service]) -> set[str]:
    """Return the names of all services that a service reads, directly or indirectly."""
    upstream: set[str] = set()
    stack = list(service.inputs)
    while stack:
        name = stack.pop()
        if name in services and name not in upstream:
            upstream.add(name)
            stack += services[name].inputs
    return upstream


def examine(
    definitions: Definitions,
    broken: Collection[str] = (),
    *,
    functions: Collection[str] | None = None,
    hints: Callable[[str], bool] = lambda _: True,
) -> tuple[dict[str, Shape], list[DefinitionProblem]]:
    """Return the shapes of all valid services, by name, and all problems.

    `broken` are names that exist but could not be parsed. A service that reads one has no shape and is not checked
    further. `functions` and `hints` are as in `check`.
    """
    findings = Findings(definitions.places)
    schemas = {stream.name: stream.schema for stream in definitions.streams.values() if _is_valid(stream, findings)}
    for name in definitions.services.keys() & definitions.streams.keys():
        findings.report(("services", name), f"the name {name!r} is taken already by streams.{name}")
    names = {*definitions.streams, *definitions.services, *broken}
    shapes: dict[str, Shape] = {}
    for service in ordered(definitions.services, findings, hints):
        shape = _shape(service, schemas, names, findings, hints)
        if functions is None or service.name in functions:
            _note_functions(service, findings)
        if shape is not None:
            shapes[service.name] = shape
            schemas[service.name] = shape.output
    return {name: shapes[name] for name in definitions.services if name in shapes}, findings.problems


def _is_valid(stream: Stream, findings: Findings) -> bool:
    before = len(findings.problems)
    spot = Spot(None, ("streams", stream.name), findings)
    note_terms(stream.schema.terms, stream.schema, spot.at("terms", None))
    note_constraints(stream.schema.constraints, stream.schema, spot.at("constraints", None))
    note_event_format(stream.source, stream.schema, spot.at("source", None))
    return len(findings.problems) == before


def _shape(
    service: Service,
    schemas: Mapping[str, Schema],
    names: Collection[str],
    findings: Findings,
    hints: Callable[[str], bool],
) -> Shape | None:
    """Return the shape of a service; None if the service or one of its inputs has problems."""
    before = len(findings.problems)
    for name in service.inputs:
        if name not in names:
            hint = did_you_mean(name, sorted(filter(hints, names)))
            findings.report(input_path(service, name), f"unknown stream or service {name!r}{hint}")
    if not all(name in schemas for name in service.inputs):
        return None
    shape = shape_into(service, schemas, findings)
    if shape is not None:
        _note_fields(service, shape.output, findings)
    return shape if len(findings.problems) == before else None


def _note_fields(service: Service, output: Schema, findings: Findings) -> None:
    """Report attributes of `access.fields` that can't be restricted: unknown ones, and the event time."""
    attributes = [field.name for field in output.root]
    spot = Spot(None, ("services", service.name, "access", "fields"), findings)
    for name in service.access.fields:
        at = spot.at(name, None)
        if name not in attributes:
            hint = did_you_mean(name, attributes) or f"; expected one of {', '.join(attributes)}"
            at.report(f"unknown attribute {name!r}{hint}")
        elif name == output.event_time:
            at.report(f"{name!r} is the event time, which every event shows")


def ordered(
    services: Mapping[str, Service], findings: Findings, hints: Callable[[str], bool] = lambda _: True
) -> list[Service]:
    """Return services in topological order, each after all services that it reads.

    Reports each cycle once, and names only the services that `hints` allows. A service of a cycle is included.
    """
    done: dict[str, Service] = {}
    reported: set[str] = set()
    for name in services:
        stack = [(name, iter(services[name].inputs))] if name not in done else []
        while stack:
            current, inputs = stack[-1]
            path = [entry for entry, _ in stack]
            following = next((entry for entry in inputs if entry in services and entry not in done), None)
            if following is None:
                done[current] = services[current]
                stack.pop()
            elif following in path:
                cycle = [*path[path.index(following) :], following]
                if not reported & {*cycle}:
                    path_of_input = input_path(services[following], cycle[1])
                    findings.report(path_of_input, f"it reads itself: {_cycle_text(cycle, hints)}")
                reported |= {*cycle}
            else:
                stack.append((following, iter(services[following].inputs)))
    return list(done.values())


def _cycle_text(cycle: list[str], hints: Callable[[str], bool]) -> str:
    return " <- ".join(name if hints(name) else "a service that you may not see" for name in cycle)


def _note_functions(service: Service, findings: Findings) -> None:
    for n, operator in enumerate(service.pipeline):
        if isinstance(operator, Custom) and ":" in operator.function:
            spot = Spot(None, ("services", service.name, "pipeline", n, "custom", "function"), findings)
            _note_function(operator.function, spot)


def _note_function(name: str, spot: Spot) -> None:
    module, _, function = name.partition(":")
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # imported code may raise anything
        spot.report(f"can't import {module!r}: {type(error).__name__}: {error}")
        return
    value: object = imported
    for part in function.split("."):
        value = getattr(value, part, None)
    if not callable(value):
        spot.report(f"{module!r} has no function {function!r}{did_you_mean(function, dir(imported))}")
